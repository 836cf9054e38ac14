"""Runs of agents: four ways to end, and a scratchpad that is brought up to date after each."""

import asyncio

import pytest

from scratchbus import AsyncBus
from scratchbus.errors import EngineUnreachable, Unauthorized

NEW = '```json\n{"scratchpad": "what I learned"}\n```'


class Model:
    """Answers each prompt with the same words, and keeps the prompts; an exception is raised instead."""

    def __init__(self, answer=NEW):
        self.answer = answer
        self.prompts = []

    def __call__(self, prompt):
        self.prompts.append(prompt)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    async def later(self, prompt):
        await asyncio.sleep(0)
        return self(prompt)

    def was_told(self, outcome, summary, steps):
        (prompt,) = self.prompts
        for line in (f"**Outcome**: {outcome}\n", f"**Summary**: {summary}\n", f"**Steps taken**: {steps}\n"):
            assert line in prompt, prompt
        return True


@pytest.fixture
def bus(connect):
    return connect("analyst")


@pytest.fixture
def pad(bus):
    return bus.scratchpad("analyst")


@pytest.fixture
def model():
    return Model()


def names(run):
    return [step.name for step in run.steps]


def give_up(levels):
    if levels == 0:
        raise ValueError("no jar")
    give_up(levels - 1)


def test_scratchpad_prompt_is_called_after_done(bus, pad, model):
    with bus.run("analyst", "Count the beans", ask=model) as run:
        run.step("look", where="the jar")
        run.done("42 beans")
    assert model.was_told("completed", "42 beans", 2)
    assert "**Task**: Count the beans\n" in model.prompts[0]
    assert names(run) == ["look", "done", "scratchpad_update"]
    assert run.outcome == "completed"


def test_scratchpad_prompt_is_called_after_error(bus, model):
    with bus.run("analyst", "Count the beans", ask=model) as run:
        run.error("there is no jar")
    assert model.was_told("error", "there is no jar", 1)
    assert names(run) == ["error", "scratchpad_update"]


def test_scratchpad_prompt_is_called_after_max_steps_reached(bus, model):
    with bus.run("analyst", "Count the beans", ask=model) as run:
        for number in range(3):
            run.step("look", turn=number)
        run.max_steps(3)
    assert run.outcome == "incomplete - max steps reached"
    assert model.was_told("incomplete - max steps reached", run.summary, 3)
    assert "3" in run.summary


def test_scratchpad_update_persists_to_the_next_run(connect, bus, pad, model):
    with bus.run("analyst", "Count the beans", ask=model) as run:
        assert "_Your scratchpad is empty." in run.whoami
    assert run.steps[-1] == ("scratchpad_update", {"content": "what I learned"})
    assert pad.read() == "what I learned"
    with connect("analyst").run("analyst", "Count them again", ask=model) as run:
        assert "what I learned" in run.whoami


@pytest.mark.parametrize(
    "answer", ["I am done.", "{", None, EngineUnreachable("the model is gone"), RuntimeError(), ValueError("x\ny")]
)
def test_scratchpad_update_errors_do_not_fail_the_task(bus, pad, answer):
    pad.write("old")
    with bus.run("analyst", "Count the beans", ask=Model(answer)) as run:
        run.done("42 beans")
    assert names(run) == ["done", "scratchpad_update_failed"]
    assert run.steps[-1].details["error"]
    assert (run.outcome, pad.read()) == ("completed", "old")


def test_an_exception_is_told_and_goes_on_to_the_caller(bus, pad, model):
    with pytest.raises(ValueError, match="no jar"), bus.run("analyst", "Count the beans", ask=model) as run:
        give_up(10)
    assert run.outcome == "exception"
    assert model.was_told("exception", "Agent encountered an error: no jar", 1)
    details = run.steps[0].details
    assert details["message"] == "no jar"
    assert len(details["backtrace"]) == 5
    assert all("in give_up" in line for line in details["backtrace"])
    assert pad.read() == "what I learned"


def test_an_exception_comes_through_also_when_the_model_is_gone(bus):
    model = Model(RuntimeError("the model is gone"))
    with pytest.raises(ValueError, match="no jar"), bus.run("analyst", "Count the beans", ask=model) as run:
        give_up(0)
    assert names(run) == ["error", "scratchpad_update_failed"]


def test_a_run_that_says_nothing_is_completed(bus, model):
    with bus.run("analyst", "Count the beans", ask=model):
        pass
    assert model.was_told("completed", "Task completed", 0)


def test_an_answer_of_null_leaves_the_scratchpad_and_no_step(bus, pad):
    pad.write("old")
    with bus.run("analyst", "Count the beans", ask=Model('{"scratchpad": null}')) as run:
        run.done()
    assert (names(run), pad.read()) == (["done"], "old")


def test_a_long_answer_is_cut_and_its_step_shows_the_beginning(bus, pad):
    with bus.run("analyst", "Count the beans", ask=Model('{"scratchpad": "' + "x" * 50_000 + '"}')) as run:
        pass
    assert run.steps[-1].details == {"content": "x" * 100}
    assert pad.read() == "x" * 10_000


def test_an_interruption_is_recorded_and_not_held_up_by_a_question(bus, pad, model):
    with pytest.raises(KeyboardInterrupt), bus.run("analyst", "Count the beans", ask=model) as run:
        raise KeyboardInterrupt
    assert model.prompts == []
    assert (run.outcome, run.summary) == ("exception", "Agent encountered an error: KeyboardInterrupt")
    assert [event.outcome for event in pad.history()] == ["exception"]


def test_a_run_is_on_record_in_the_history_of_the_scratchpad(bus, pad, model):
    with bus.run("analyst", "Count the beans", ask=model) as run:
        run.step("look", where="the jar", odd={1})
        run.done("42 beans")
    written, ended = pad.history()
    assert (written.kind, written.content) == ("scratchpad_written", "what I learned")
    assert (ended.kind, ended.task, ended.outcome, ended.summary) == (
        "run_ended", "Count the beans", "completed", "42 beans",
    )  # fmt: skip
    assert [step["name"] for step in ended.steps] == names(run)
    assert ended.steps[0]["details"] == {"where": "the jar", "odd": "{1}"}
    assert pad.read() == "what I learned"


def test_a_run_without_an_engine_ends_like_any_other(bus, model):
    with bus.run("analyst", "Count the beans", ask=model) as run:
        bus.close()
        run.done("42 beans")
    assert names(run) == ["done", "scratchpad_update_failed"]


@pytest.mark.parametrize("source", ["reviewer", None])
def test_nobody_runs_as_another_agent(connect, model, source):
    with pytest.raises(Unauthorized), connect(source).run("analyst", "Count the beans", ask=model):
        pytest.fail("it was let in")
    assert model.prompts == []


@pytest.mark.anyio
async def test_a_run_with_asyncio_is_the_same(engine, bus_name, connect, pad):
    model = Model()
    async with AsyncBus.connect(engine.url, source="analyst", bus=bus_name, shards=engine.shards) as bus:
        async with bus.run("analyst", "Count the beans", ask=model.later) as run:
            assert "_Your scratchpad is empty." in run.whoami
            run.done("42 beans")
        assert model.was_told("completed", "42 beans", 1)
        assert names(run) == ["done", "scratchpad_update"]
        with pytest.raises(ValueError, match="no jar"):
            async with bus.run("analyst", "Count the beans", ask=Model(RuntimeError("gone")).later) as run:
                give_up(0)
        assert (names(run), run.outcome) == (["error", "scratchpad_update_failed"], "exception")
        with pytest.raises(asyncio.CancelledError):
            async with bus.run("analyst", "Count the beans", ask=model.later) as run:
                raise asyncio.CancelledError
        assert (run.outcome, len(model.prompts)) == ("exception", 1)
        async with bus.run("analyst", "Count the beans", ask=model) as run:
            pass
        assert names(run) == ["scratchpad_update"]
        assert await bus.scratchpad("analyst").read() == pad.read() == "what I learned"
