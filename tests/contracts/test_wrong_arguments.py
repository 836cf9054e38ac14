"""Whatever is given in the place of whatever argument, the answer is an error of the tree, and says what to do."""

import inspect
import math
from secrets import token_hex
from types import GeneratorType

import pytest

from scratchbus import AsyncBus, Bus, NewObservation, because
from scratchbus.errors import ScratchbusError
from scratchbus.subscriptions import Subscription
from scratchbus.work import Work

pytestmark = [
    pytest.mark.engines("embedded"),  # arguments are checked before any engine is asked
    pytest.mark.damages_the_log,  # some of what is accepted is odd: `test_bounds` reads it
]


def nested(levels):
    value: list[object] = []
    for _ in range(levels):
        value = [value]
    return value


GHOST = "01ARZ3NDEKTSV4RRFFQ69G5FAV"

WRONG = {
    "None": None,
    "True": True,
    "zero": 0,
    "less than nothing": -1,
    "a number": 5,
    "2**53": 2**53,
    "2**64": 2**64,
    "beyond all measure": 10**5000,
    "a fraction": 1.5,
    "nan": math.nan,
    "inf": math.inf,
    "bytes": b"x",
    "empty": "",
    "a text": "x",
    "a place": "1-1",
    "a far place": "999999999999999-999999999999999",
    "many places": "1-1," * 50,
    "half a character": "\ud800",
    "NUL": "\0",
    "long": "9" * 10_000,
    "a list": [5],
    "a list of halves": ["\ud800"],
    "no list": [],
    "unhashable": [["x"]],
    "a mapping": {"a": 5},
    "a mapping of numbers": {1: 2},
    "a large number inside": {"a": 10**5000},
    "a large number as a key": {10**5000: 1},
    "an item of a large number": [{"id": 10**5000, "content": "x"}],
    "an item with a large number as a key": [{10**5000: "x"}],
    "deep": nested(100_000),
    "deep inside": {"a": nested(100_000)},
    "an object": object(),
    "a type": str,
}

SOME = ("None", "2**64", "a fraction", "half a character", "a list of halves", "deep inside", "an object")
"""For the asyncio facade, from which the other is generated: one parser serves both, a signature is either's own."""

SKIPPED = {"stop", "follow", "progress", "counter", "ask", "self", "unknown", "changes"}
"""What is called or waited for, and not a value."""


def operations(bus, id):
    """Return, by name, each operation with arguments that it accepts."""
    page = bus.page()
    context, notes, notepad, todo = bus.context, bus.notes("s"), bus.notepad("s"), bus.todo("s")
    scratchpad = bus.scratchpad("tester")
    by_id = {"id": id}
    return {
        "bus.page": (bus.page, {}),
        "bus.view": (bus.view, {}),
        "bus.events": (bus.events, {}),
        "bus.subscribe": (bus.subscribe, {"name": "sub"}),
        "bus.work": (bus.work, {"name": "work"}),
        "bus.unsubscribe": (bus.unsubscribe, {"name": "sub"}),
        "bus.dead_letters": (bus.dead_letters, {}),
        "bus.retry_dead_letters": (bus.retry_dead_letters, {"name": "there"}),
        "bus.drop_dead_letters": (bus.drop_dead_letters, {"name": "there"}),
        "bus.import_events": (bus.import_events, {"lines": []}),
        "bus.push_types": (bus.push_types, {"registry": "x"}),
        "bus.notes": (bus.notes, {"session": "s"}),
        "bus.notepad": (bus.notepad, {"session": "s"}),
        "bus.todo": (bus.todo, {"session": "s"}),
        "bus.session": (bus.session, {"session": "s"}),
        "bus.spawn_session": (bus.spawn_session, {"parent": "s"}),
        "bus.fork_session": (bus.fork_session, {"parent": "s"}),
        "bus.end_session": (bus.end_session, {"session": "over"}),
        "bus.begin_task": (bus.begin_task, {"session": "s", "title": "x"}),
        "bus.end_task": (bus.end_task, {"task": "s:task_1", "summary": "x"}),
        "bus.report_result": (bus.report_result, {"session": "s", "result": "x"}),
        "bus.scratchpad": (bus.scratchpad, {"agent": "tester"}),
        "page.add": (page.add, {"type": "observation", "content": "x"}),
        "page.add_many": (page.add_many, {"items": [NewObservation(type="observation", content="x")]}),
        "page.get": (page.get, by_id),
        "page.list": (page.list, {}),
        "page.active": (page.active, {}),
        "page.update": (page.update, {**by_id, "content": "x"}),
        "page.review": (page.review, by_id),
        "page.resolve": (page.resolve, by_id),
        "page.archive": (page.archive, by_id),
        "page.reopen": (page.reopen, by_id),
        "page.clear_resolved": (page.clear_resolved, {"ids": [GHOST]}),
        "page.claim": (page.claim, by_id),
        "page.claim_next": (page.claim_next, {"types": "reminder"}),
        "page.release": (page.release, by_id),
        "page.link": (page.link, {**by_id, "action": "x"}),
        "page.refute": (page.refute, {**by_id, "reason": "x"}),
        "page.erase": (page.erase, {**by_id, "reason": "x"}),
        "page.trace": (page.trace, {"action": "x"}),
        "page.consequences": (page.consequences, by_id),
        "page.exposure": (page.exposure, by_id),
        "page.history": (page.history, by_id),
        "page.whole_id": (page.whole_id, {"text": GHOST}),
        "page.as_of": (page.as_of, {"when": "1-1"}),
        "context.assemble": (context.assemble, {}),
        "context.surface": (context.surface, {"query": "x"}),
        "context.should_warn": (context.should_warn, {"used": 1, "limit": 2}),
        "context.after_compaction": (context.after_compaction, {"session": "s"}),
        "notes.add": (notes.add, {"content": "x"}),
        "notes.scratch": (notes.scratch, {"content": "x"}),
        "notes.search": (notes.search, {}),
        "notes.list": (notes.list, {}),
        "notes.update": (notes.update, {"id": "note_1", "content": "x"}),
        "notes.delete": (notes.delete, {"id": "note_1"}),
        "notes.history": (notes.history, {}),
        "notes.as_of": (notes.as_of, {"when": "1-1"}),
        "notepad.write": (notepad.write, {"content": "x"}),
        "notepad.append": (notepad.append, {"text": "x"}),
        "notepad.update": (notepad.update, {"operation": "append", "content": "x"}),
        "notepad.as_of": (notepad.as_of, {"when": "1-1"}),
        "todo.write": (todo.write, {"todos": [{"id": "1", "content": "x"}]}),
        "todo.as_of": (todo.as_of, {"when": "1-1"}),
        "scratchpad.write": (scratchpad.write, {"content": "x"}),
        "scratchpad.end_of_run_prompt": (
            scratchpad.end_of_run_prompt,
            {"task": "x", "outcome": "x", "summary": "x", "steps": 1},
        ),
        "scratchpad.accept_reply": (scratchpad.accept_reply, {"text": "x"}),
        "scratchpad.as_of": (scratchpad.as_of, {"when": "1-1"}),
    }


def calls(bus, name, id, labels=tuple(WRONG)):
    """Yield every call of an operation with one wrong argument: what says which it is, the operation, its arguments."""
    operation, good = operations(bus, id)[name]
    parameters = inspect.signature(operation).parameters
    extra = {"content", "status", "tags", "context", "confidence", "expires_at"} if name == "page.update" else set()
    for argument in [*parameters, *extra]:
        if argument not in SKIPPED:
            for label in labels:
                wrong = WRONG[label]
                positional = [wrong if argument == "id" else good["id"]] if name == "page.update" else []
                given = {
                    key: value for key, value in (good | {argument: wrong}).items() if not positional or key != "id"
                }
                yield f"{name}({argument}={label})", operation, positional, given


def use(result):
    """Use what an operation returned, as far as that does not wait for what never comes."""
    if isinstance(result, GeneratorType):
        list(result)
    elif isinstance(result, Subscription):
        with result:
            pass
    elif isinstance(result, Work):
        result.close()


def problem_of(label, error):
    if isinstance(error, ScratchbusError):
        text = str(error)
        return "" if text and "\n" not in text and len(text) < 2_000 else f"{label}: {text[:200]!r}"
    return f"{label}: {type(error).__name__}: {str(error)[:200]}"


@pytest.fixture
def inhabited_bus(connect):
    bus = connect()
    bus.page().add("observation", "x")
    with bus.subscribe("there"):
        return bus


@pytest.mark.parametrize("room", ["bus", "page", "context", "notes", "notepad", "todo", "scratchpad"])
def test_a_wrong_argument_is_an_error_of_the_tree(inhabited_bus, room):
    problems, id = [], inhabited_bus.page().list()[-1].id
    for name in [each for each in operations(inhabited_bus, id) if each.startswith(f"{room}.")]:
        for label, operation, positional, given in calls(inhabited_bus, name, id):
            try:
                use(operation(*positional, **given))
            except Exception as error:
                problems.append(problem_of(label, error))
    assert [each for each in problems if each] == []


@pytest.mark.anyio
@pytest.mark.parametrize("room", ["bus", "page", "context", "notes", "notepad", "todo", "scratchpad"])
async def test_a_wrong_argument_of_the_asyncio_facade_is_an_error_of_the_tree(engine_url, connect, bus_name, room):
    problems, _ = [], connect()  # which leaves nothing behind
    async with await AsyncBus.connect(engine_url, source="tester", bus=bus_name) as bus:
        known = await bus.page().add("observation", "x")
        for name in [each for each in operations(bus, known.id) if each.startswith(f"{room}.")]:
            for label, operation, positional, given in calls(bus, name, known.id, SOME):
                try:
                    result = operation(*positional, **given)
                    if inspect.isawaitable(result):
                        await result
                    elif inspect.isasyncgen(result) or name == "bus.events":
                        async for _ in result:
                            pass
                except Exception as error:
                    problems.append(problem_of(label, error))
    assert [each for each in problems if each] == []


@pytest.mark.parametrize(
    "setting", ["url", "source", "config", "instance", "shards", "default_expiration", "log_level"]
)
def test_a_wrong_setting_is_an_error_of_the_tree(setting):
    problems = []
    for label, wrong in WRONG.items():
        if (setting, label) == ("url", "long"):
            continue  # a URL is shown as a whole
        try:
            Bus.connect(**{"url": f"memory://{token_hex(6)}"} | {setting: wrong}).close()
        except Exception as error:
            problems.append(problem_of(f"{setting}={label}", error))
    assert [each for each in problems if each] == []


@pytest.mark.parametrize("argument", ["cause", "traceparent"])
def test_a_wrong_reason_is_an_error_of_the_tree(argument):
    problems = []
    for label, wrong in WRONG.items():
        try:
            with because(**{argument: wrong}):
                pass
        except Exception as error:
            problems.append(problem_of(f"{argument}={label}", error))
    assert [each for each in problems if each] == []
