"""Tasks of a session, and the result that a session reports to its parent."""

import pytest

from scratchbus import AsyncBus, Bus
from scratchbus.errors import (
    Conflict,
    EventIdReused,
    InvalidField,
    InvalidId,
    InvalidName,
    NotFound,
    SessionOver,
    TooLarge,
)
from tests.inspection import log_length


def test_ending_a_task_returns_its_title_and_summary(bus):
    task = bus.begin_task("s1", "Survey the sheets")
    text = bus.end_task(task, "Six sheets, 2,400 rows.")
    assert "Survey the sheets" in text
    assert text.endswith("Six sheets, 2,400 rows.")


def test_another_client_can_end_tasks_in_any_order(connect):
    first = connect().begin_task("s1", "one")
    second = connect().begin_task("s1", "two")
    other = connect("another")
    assert "one" in other.end_task(first, "done")
    assert "two" in other.end_task(second, "done")
    assert first != second


def test_a_task_ends_once(bus):
    task = bus.begin_task("s1", "Survey the sheets")
    bus.end_task(task, "done")
    length = log_length(bus)
    assert bus.end_task(task, "done").endswith("done")
    with pytest.raises(Conflict, match="has ended with another summary"):
        bus.end_task(task, "done again")
    assert log_length(bus) == length


def test_a_retry_begins_and_ends_a_task_once(bus):
    task = bus.begin_task("s1", "Survey the sheets", event_id="begin")
    assert bus.begin_task("s1", "Survey the sheets", event_id="begin") == task
    text = bus.end_task(task, "done", event_id="end")
    assert bus.end_task(task, "done", event_id="end") == text
    assert log_length(bus) == 2
    with pytest.raises(EventIdReused):
        bus.begin_task("s1", "Something else", event_id="begin")
    with pytest.raises(EventIdReused):
        bus.end_task(task, "something else", event_id="end")


def test_a_task_is_recorded_as_events(bus):
    task = bus.begin_task("s1", "Survey the sheets")
    bus.end_task(task, "done")
    begun, ended = bus.events(pages=["session:s1"])
    assert (begun.kind, begun.title) == ("task_begun", "Survey the sheets")
    assert (ended.kind, ended.summary) == ("task_ended", "done")
    assert begun.subject == ended.subject == task.partition("@")[0]


@pytest.mark.parametrize(
    ("task", "error"),
    [
        ("nonsense", InvalidId),
        (None, InvalidId),
        ("task_1768000000000@s1", NotFound),
        ("task_1768000000000@no spaces", InvalidName),
    ],
)
def test_an_unknown_task_cannot_be_ended(bus, task, error):
    with pytest.raises(error):
        bus.end_task(task, "done")


@pytest.mark.parametrize("text", ["", " ", None, 7, "\ud800"])
def test_a_task_needs_a_title_and_a_summary(bus, text):
    task = bus.begin_task("s1", "x")
    with pytest.raises(InvalidField):
        bus.begin_task("s1", text)
    with pytest.raises(InvalidField):
        bus.end_task(task, text)
    assert log_length(bus) == 1


def test_a_result_goes_to_the_page_of_the_parent(bus, connect):
    bus.notepad("parent").write("my own plan")
    child = bus.spawn_session("parent")
    reported = connect("child").report_result(child, "No issues in the revenue sheets.")
    (seen,) = bus.page("session:parent").active()
    assert seen == reported
    assert (seen.content, seen.source, seen.type) == ("No issues in the revenue sheets.", "child", "observation")
    assert (seen.tags, seen.context) == (["session_result"], {"session": child})


def test_a_result_changes_no_notepad(bus):
    bus.notepad("parent").write("my own plan")
    child = bus.spawn_session("parent")
    bus.notepad(child).write("internal working state")
    bus.report_result(child, "No issues.")
    assert (bus.notepad("parent").read(), bus.notepad(child).read()) == ("my own plan", "internal working state")


def test_a_retry_reports_once(bus):
    child = bus.fork_session("parent")
    first = bus.report_result(child, "No issues.", event_id="result")
    assert bus.report_result(child, "No issues.", event_id="result") == first
    assert len(bus.page("session:parent").active()) == 1


def test_an_ended_session_cannot_begin_or_end_tasks_but_can_report(bus):
    child = bus.spawn_session("parent")
    task = bus.begin_task(child, "Survey the sheets", event_id="mine")
    bus.end_session(child)
    assert bus.begin_task(child, "Survey the sheets", event_id="mine") == task
    with pytest.raises(SessionOver):
        bus.begin_task(child, "Fix the totals")
    with pytest.raises(SessionOver):
        bus.end_task(task, "done")
    assert bus.report_result(child, "No issues.").content == "No issues."


def test_a_session_without_a_parent_cannot_report(bus: Bus) -> None:
    bus.notepad("alone").write("x")
    bus.spawn_session("top")
    for session in ("alone", "top", "never-heard-of"):
        with pytest.raises(NotFound, match="has no parent"):
            bus.report_result(session, "No issues.")


def test_a_result_has_the_limits_of_an_observation(bus):
    child = bus.spawn_session("parent")
    with pytest.raises(InvalidField):
        bus.report_result(child, " ")
    with pytest.raises(TooLarge):
        bus.report_result(child, "x" * 100_000)


@pytest.mark.anyio
async def test_async_tasks_and_results_behave_the_same(engine, bus_name, bus):
    child = bus.spawn_session("parent")
    async with AsyncBus.connect(engine.url, source="another", bus=bus_name, shards=engine.shards) as other:
        task = await other.begin_task(child, "Survey the sheets")
        assert (await other.end_task(task, "Six.")).endswith("\nSix.")
        reported = await other.report_result(child, "No issues.")
    assert bus.page("session:parent").active() == [reported]
