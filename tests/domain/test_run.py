"""Runs: their steps and their four outcomes."""

import json

import pytest

from scratchbus.domain.position import Position
from scratchbus.domain.runs import RunRecord, ScratchpadReply, event_fields, prompt_of, record_exception, record_reply


@pytest.fixture
def record():
    return RunRecord("analyst", "Count the beans")


def deep(levels):
    if levels == 0:
        raise ValueError("too deep")
    deep(levels - 1)


class Silent(Exception):
    def __str__(self):
        raise ValueError("no text")


def names(record):
    return [step.name for step in record.steps]


def test_a_run_is_completed_by_default(record):
    assert (record.outcome, record.summary, record.steps) == ("completed", "Task completed", [])


def test_steps_keep_their_order_and_details(record):
    record.step("look", where="in the jar")
    record.step("count", beans=42, name="of the beans")
    assert names(record) == ["look", "count"]
    assert record.steps[1].details == {"beans": 42, "name": "of the beans"}


def test_done_records_the_summary(record):
    record.done("42 beans")
    assert (record.outcome, record.summary) == ("completed", "42 beans")
    assert record.steps == [("done", {"message": "42 beans"})]
    record.done()
    assert record.summary == "Task completed"


def test_error_records_the_reason(record):
    record.error("there is no jar")
    assert (record.outcome, record.summary) == ("error", "there is no jar")
    assert record.steps == [("error", {"message": "there is no jar"})]
    record.error()
    assert record.summary == "Agent encountered an error"


def test_max_steps_records_the_limit(record):
    record.max_steps(20)
    assert record.outcome == "incomplete - max steps reached"
    assert record.summary == "Reached maximum steps (20) without completing task"
    assert record.steps == []


def test_an_exception_records_five_lines_of_its_traceback(record):
    record.done("too early")
    with pytest.raises(ValueError, match="too deep") as raised:
        deep(20)
    record_exception(record, raised.value)
    details = record.steps[-1].details
    assert (record.outcome, record.summary) == ("exception", "Agent encountered an error: too deep")
    assert details["message"] == "too deep"
    assert len(details["backtrace"]) == 5
    assert all(line.endswith("in deep") and "test_run.py:" in line for line in details["backtrace"])


def test_a_short_traceback_is_recorded_innermost_first(record):
    with pytest.raises(ValueError, match="too deep") as raised:
        deep(1)
    record_exception(record, raised.value)
    assert record.steps[-1].name == "error"
    lines = record.steps[-1].details["backtrace"]
    assert [line.split(" in ")[1] for line in lines] == ["deep", "deep", raised.traceback[0].name]
    numbers = [int(line.split(" in ")[0].rpartition(":")[2]) for line in lines]
    assert numbers == [entry.lineno + 1 for entry in reversed(raised.traceback)]


def test_an_exception_without_a_message_is_named_by_its_class(record):
    record_exception(record, KeyError())
    assert record.summary == "Agent encountered an error: KeyError"


def test_an_exception_whose_text_fails_is_shown_by_its_repr(record):
    record_exception(record, Silent("odd"))
    assert record.summary == "Agent encountered an error: Silent('odd')"
    assert record.steps[-1].details == {"message": "Silent('odd')", "backtrace": []}


def test_a_scratchpad_update_records_a_hundred_characters(record):
    record_reply(record, ScratchpadReply("x" * 500))
    record_reply(record, ScratchpadReply(error="the engine is gone"))
    record_reply(record, ScratchpadReply())
    assert record.steps == [
        ("scratchpad_update", {"content": "x" * 100}),
        ("scratchpad_update_failed", {"error": "the engine is gone"}),
    ]


def test_only_a_changed_scratchpad_is_a_success():
    assert ScratchpadReply("x")
    assert ScratchpadReply("")
    assert not ScratchpadReply()
    assert not ScratchpadReply(error="no")


def test_the_prompt_has_the_outcome_and_the_number_of_steps(record):
    record.step("look")
    record.done("42 beans")
    for line in ("**Task**: Count the beans", "**Outcome**: completed", "**Summary**: 42 beans", "**Steps taken**: 2"):
        assert line in prompt_of(record)


def test_a_run_record_is_limited_in_size(record):
    circle: dict[str, object] = {}
    circle["self"] = circle
    record.task = "x" * 10_000
    for number in range(1_000):
        record.step("look", at=number)
    record.step("big", text="y" * 10_000)
    record.step("odd", at={1, 2}, of=object(), by=("a", None), half="\ud800")
    record.step("circle", of=circle)
    record.step("keys", of={("a", 1): 2})
    record.step("nan", of=float("nan"))
    kept = event_fields(record)
    assert (len(kept["task"]), len(kept["steps"])) == (1_000, 500)
    assert kept["steps"][0] == {"name": "look", "details": {"at": 505}}
    assert all(len(json.dumps(step, ensure_ascii=False).encode()) < 1_200 for step in kept["steps"])


def test_details_are_recorded_as_json_or_as_a_text(record):
    record.step("plain", at=Position(5, 7), of=Silent, by=("a", None), half="\ud800")
    record.step("nan", of=float("nan"))
    record.step("keys", of={("a", 1): 2})
    record.step("huge", of=10**5_000)
    plain, *others = (step["details"] for step in event_fields(record)["steps"])
    assert plain == {"at": [5, 7, 0], "of": str(Silent), "by": ["a", None], "half": "?"}
    assert others == [{"cut": "{'of': nan}"}, {"cut": "{'of': {('a', 1): 2}}"}, {"cut": "a dict"}]
