"""Agent runs: their four outcomes, and the scratchpad update after each."""

import asyncio

import pytest

from scratchbus import AsyncBus
from scratchbus.errors import EngineUnreachable, InvalidField, Unauthorized

NEW = '```json\n{"scratchpad": "what I learned"}\n```'


class Model:
    """Records prompts and always gives the same answer, or raises it if it is an exception."""

    def __init__(self, answer=NEW):
        self.answer = answer
        self.prompts = []

    def __call__(self, prompt):
        self.prompts.append(prompt)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    async def answer_async(self, prompt):
        await asyncio.sleep(0)
        return self(prompt)

    def was_prompted(self, outcome, summary, steps):
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
    assert model.was_prompted("completed", "42 beans", 2)
    assert "**Task**: Count the beans\n" in model.prompts[0]
    assert names(run) == ["look", "done", "scratchpad_update"]
    assert run.outcome == "completed"


def test_scratchpad_prompt_is_called_after_error(bus, model):
    with bus.run("analyst", "Count the beans", ask=model) as run:
        run.error("there is no jar")
    assert model.was_prompted("error", "there is no jar", 1)
    assert names(run) == ["error", "scratchpad_update"]


def test_scratchpad_prompt_is_called_after_max_steps_reached(bus, model):
    with bus.run("analyst", "Count the beans", ask=model) as run:
        for number in range(3):
            run.step("look", turn=number)
        run.max_steps(3)
    assert run.outcome == "incomplete - max steps reached"
    assert model.was_prompted("incomplete - max steps reached", run.summary, 3)
    assert "3" in run.summary


def test_scratchpad_update_persists_to_the_next_run(connect, bus, pad, model):
    with bus.run("analyst", "Count the beans", ask=model) as run:
        assert "_Your scratchpad is empty." in run.whoami
    assert run.steps[-1] == ("scratchpad_update", {"content": "what I learned"})
    assert pad.read() == "what I learned"
    with connect("analyst").run("analyst", "Count them again", ask=model) as run:
        assert "what I learned" in run.whoami


def test_a_run_takes_the_longest_event_id(bus, pad, model):
    for _ in range(2):
        with bus.run("analyst", "Count the beans", ask=model, event_id="x" * 200) as run:
            run.done("42 beans")
    assert pad.read() == "what I learned"
    assert [event.kind for event in pad.history()].count("run_ended") == 1


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


def test_an_exception_is_recorded_and_raised_again(bus, pad, model):
    with pytest.raises(ValueError, match="no jar"), bus.run("analyst", "Count the beans", ask=model) as run:
        give_up(10)
    assert run.outcome == "exception"
    assert model.was_prompted("exception", "Agent encountered an error: no jar", 1)
    details = run.steps[0].details
    assert details["message"] == "no jar"
    assert len(details["backtrace"]) == 5
    assert all("in give_up" in line for line in details["backtrace"])
    assert pad.read() == "what I learned"


def test_an_exception_is_raised_again_when_the_model_fails(bus):
    model = Model(RuntimeError("the model is gone"))
    with pytest.raises(ValueError, match="no jar"), bus.run("analyst", "Count the beans", ask=model) as run:
        give_up(0)
    assert names(run) == ["error", "scratchpad_update_failed"]


class Silent(Exception):
    def __str__(self):
        raise ValueError("no text")


def test_exceptions_whose_text_fails_neither_hide_the_error_nor_fail_the_run(bus):
    with bus.run("analyst", "Count the beans", ask=Model(Silent("asked"))) as run:
        pass
    assert run.steps == [("scratchpad_update_failed", {"error": "Silent: Silent('asked')"})]
    with pytest.raises(Silent), bus.run("analyst", "Count the beans", ask=Model()) as run:
        raise Silent("worked")
    assert run.summary == "Agent encountered an error: Silent('worked')"


def test_a_run_without_an_outcome_is_completed(bus, model):
    with bus.run("analyst", "Count the beans", ask=model):
        pass
    assert model.was_prompted("completed", "Task completed", 0)


def test_a_null_answer_keeps_the_scratchpad_and_records_no_step(bus, pad):
    pad.write("old")
    with bus.run("analyst", "Count the beans", ask=Model('{"scratchpad": null}')) as run:
        run.done()
    assert (names(run), pad.read()) == (["done"], "old")


def test_a_long_answer_is_cut(bus, pad):
    with bus.run("analyst", "Count the beans", ask=Model('{"scratchpad": "' + "x" * 50_000 + '"}')) as run:
        pass
    assert run.steps[-1].details == {"content": "x" * 100}
    assert pad.read() == "x" * 10_000


def test_a_run_that_could_not_ask_is_refused_at_its_start(bus):
    with pytest.raises(InvalidField, match=r"^ask: 'gpt' cannot be called; pass a function"):
        bus.run("analyst", "Count the beans", ask="gpt")


def test_an_interrupt_is_recorded_without_a_prompt(bus, pad, model):
    with pytest.raises(KeyboardInterrupt), bus.run("analyst", "Count the beans", ask=model) as run:
        raise KeyboardInterrupt
    assert model.prompts == []
    assert (run.outcome, run.summary) == ("exception", "Agent encountered an error: KeyboardInterrupt")
    assert [event.outcome for event in pad.history()] == ["exception"]


def test_an_interrupt_of_the_last_call_leaves_the_run_recorded(bus, pad):
    with pytest.raises(KeyboardInterrupt), bus.run("analyst", "Fix it", ask=Model(KeyboardInterrupt())) as run:
        run.done("fixed")
    assert [(event.kind, event.outcome) for event in pad.history()] == [("run_ended", "completed")]


async def test_a_cancelled_last_call_leaves_the_run_recorded(engine, bus_name, connect):
    is_asked = asyncio.Event()

    async def ask(prompt):
        is_asked.set()
        await asyncio.Event().wait()

    async def work(bus):
        async with bus.run("analyst", "Fix it", ask=ask) as run:
            run.done("fixed")

    pad = connect("analyst").scratchpad("analyst")
    async with AsyncBus.connect(engine.url, source="analyst", bus=bus_name, shards=engine.shards) as bus:
        task = asyncio.create_task(work(bus))
        await is_asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [(event.kind, event.outcome) for event in pad.history()] == [("run_ended", "completed")]


def test_a_run_is_in_the_history_of_the_scratchpad(bus, pad, model):
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


def test_a_run_ends_normally_without_an_engine(bus, model):
    with bus.run("analyst", "Count the beans", ask=model) as run:
        bus.close()
        run.done("42 beans")
    assert names(run) == ["done", "scratchpad_update_failed"]


@pytest.mark.parametrize("source", ["reviewer", None])
def test_a_client_cannot_run_as_another_agent(connect, model, source):
    with pytest.raises(Unauthorized), connect(source).run("analyst", "Count the beans", ask=model):
        pytest.fail("the run started")
    assert model.prompts == []


@pytest.mark.anyio
async def test_async_runs_behave_the_same(engine, bus_name, connect, pad):
    model = Model()
    async with AsyncBus.connect(engine.url, source="analyst", bus=bus_name, shards=engine.shards) as bus:
        async with bus.run("analyst", "Count the beans", ask=model.answer_async) as run:
            assert "_Your scratchpad is empty." in run.whoami
            run.done("42 beans")
        assert model.was_prompted("completed", "42 beans", 1)
        assert names(run) == ["done", "scratchpad_update"]
        with pytest.raises(ValueError, match="no jar"):
            async with bus.run("analyst", "Count the beans", ask=Model(RuntimeError("gone")).answer_async) as run:
                give_up(0)
        assert (names(run), run.outcome) == (["error", "scratchpad_update_failed"], "exception")
        with pytest.raises(asyncio.CancelledError):
            async with bus.run("analyst", "Count the beans", ask=model.answer_async) as run:
                raise asyncio.CancelledError
        assert (run.outcome, len(model.prompts)) == ("exception", 1)
        async with bus.run("analyst", "Count the beans", ask=model) as run:
            pass
        assert names(run) == ["scratchpad_update"]
        assert await bus.scratchpad("analyst").read() == pad.read() == "what I learned"
