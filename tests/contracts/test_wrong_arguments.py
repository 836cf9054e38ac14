"""Any wrong value of any argument raises a ScratchbusError with a message of one line."""

import inspect
import math
from secrets import token_hex
from types import GeneratorType
from typing import Any

import pytest

from scratchbus import AsyncBus, Bus, NewObservation, because
from scratchbus.domain.items import ItemChange
from scratchbus.errors import InvalidField, ScratchbusError
from scratchbus.subscriptions import Subscription
from scratchbus.work import Work

pytestmark = [
    pytest.mark.engines("embedded"),  # arguments are checked before any engine is asked
    pytest.mark.damages_the_log,  # some accepted values are odd; `test_huge_numbers` reads them
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
    "negative": -1,
    "a number": 5,
    "2**53": 2**53,
    "2**64": 2**64,
    "5,000 digits": 10**5000,
    "a fraction": 1.5,
    "nan": math.nan,
    "inf": math.inf,
    "bytes": b"x",
    "empty": "",
    "a text": "x",
    "a position": "1-1",
    "a far position": "999999999999999-999999999999999",
    "many positions": "1-1," * 50,
    "a surrogate": "\ud800",
    "NUL": "\0",
    "long": "9" * 10_000,
    "a list": [5],
    "a list of surrogates": ["\ud800"],
    "an empty list": [],
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

SOME = ("None", "2**64", "a fraction", "a surrogate", "a list of surrogates", "deep inside", "an object")
"""Enough for the asyncio facade: both facades share their parsers, and differ in their signatures alone."""

SKIPPED = {"follow", "progress", "counter", "ask", "self", "unknown", "changes"}
"""Arguments that are called or waited for."""


ID = "the id of an existing observation"

OPERATIONS: dict[str, dict[str, dict[str, Any]]] = {
    "bus": {
        "page": {},
        "view": {},
        "events": {},
        "subscribe": {"name": "sub"},
        "work": {"name": "work"},
        "unsubscribe": {"name": "sub"},
        "dead_letters": {},
        "retry_dead_letters": {"name": "there"},
        "drop_dead_letters": {"name": "there"},
        "import_events": {"lines": []},
        "push_types": {"registry": "x"},
        "push_relations": {"relations": "x"},
        "notes": {"session": "s"},
        "notepad": {"session": "s"},
        "todo": {"session": "s"},
        "session": {"session": "s"},
        "spawn_session": {"parent": "s"},
        "fork_session": {"parent": "s"},
        "end_session": {"session": "over"},
        "begin_task": {"session": "s", "title": "x"},
        "end_task": {"task": "s:task_1", "summary": "x"},
        "report_result": {"session": "s", "result": "x"},
        "scratchpad": {"agent": "tester"},
        "recall": {"query": "x"},
        "items": {},
        "turns": {"session": "s"},
        "files": {"session": "s"},
        "texts": {"scope": "s"},
        "facts": {"scope": "s"},
        "preferences": {"of": "s"},
    },
    "page": {
        "add": {"type": "observation", "content": "x"},
        "add_many": {"items": [NewObservation(type="observation", content="x")]},
        "get": {"id": ID},
        "list": {},
        "active": {},
        "update": {"id": ID, "content": "x"},
        "review": {"id": ID},
        "resolve": {"id": ID},
        "archive": {"id": ID},
        "reopen": {"id": ID},
        "clear_resolved": {"ids": [GHOST]},
        "claim": {"id": ID},
        "claim_next": {"types": "reminder"},
        "release": {"id": ID},
        "link": {"id": ID, "action": "x"},
        "refute": {"id": ID, "reason": "x"},
        "erase": {"id": ID, "reason": "x"},
        "trace": {"action": "x"},
        "consequences": {"id": ID},
        "exposure": {"id": ID},
        "history": {"id": ID},
        "whole_id": {"text": GHOST},
        "as_of": {"when": "1-1"},
    },
    "context": {
        "assemble": {},
        "surface": {"query": "x"},
        "should_warn": {"used": 1, "limit": 2},
        "after_compaction": {"session": "s"},
    },
    "notes": {
        "add": {"content": "x"},
        "scratch": {"content": "x"},
        "search": {},
        "list": {},
        "update": {"id": "note_1", "content": "x"},
        "delete": {"id": "note_1"},
        "history": {},
        "as_of": {"when": "1-1"},
    },
    "notepad": {
        "write": {"content": "x"},
        "append": {"text": "x"},
        "update": {"operation": "append", "content": "x"},
        "as_of": {"when": "1-1"},
    },
    "todo": {
        "write": {"todos": [{"id": "1", "content": "x"}]},
        "as_of": {"when": "1-1"},
    },
    "scratchpad": {
        "write": {"content": "x"},
        "end_of_run_prompt": {"task": "x", "outcome": "x", "summary": "x", "steps": 1},
        "accept_reply": {"text": "x"},
        "as_of": {"when": "1-1"},
    },
    "facts": {
        "assert_fact": {"subject": "a", "relation": "uses", "object": "b"},
        "retract": {"id": "fact_1", "reason": "x"},
        "query": {},
        "neighbours": {"entity": "a"},
        "path": {"a": "a", "b": "b"},
        "timeline": {"subject": "a", "relation": "uses"},
        "why": {"fact": "fact_1"},
        "same_as": {"a": "a", "b": "b"},
        "not_same_as": {"a": "a", "b": "b"},
        "ingest": {"text": "a -> uses -> b"},
        "render_triplets": {"budget": 100},
    },
    "preferences": {
        "remember": {"key": "k", "text": "x"},
        "edit": {"key": "k", "text": "x"},
        "forget": {"key": "k"},
        "history": {},
        "as_of": {"when": "1-1"},
    },
    "turns": {
        "append": {"role": "user", "content": "x"},
        "list": {},
        "compact": {"summary": "x"},
        "as_of": {"when": "1-1"},
    },
    "files": {
        "write": {"path": "a", "content": "x"},
        "read": {"path": "a"},
        "delete": {"path": "a"},
        "path": {},
        "history": {"path": "a"},
        "as_of": {"when": "1-1"},
    },
    "texts": {
        "create": {"path": "a", "content": "x"},
        "read": {"path": "a"},
        "list": {},
        "replace": {"path": "a", "old": "x", "new": "y"},
        "insert": {"path": "a", "line": 0, "text": "x"},
        "delete": {"path": "a"},
        "rename": {"path": "a", "to": "b"},
        "history": {"path": "a"},
        "as_of": {"path": "a", "when": "1-1"},
    },
    "items": {
        "put": {"namespace": ["a"], "key": "k", "value": {"x": 1}},
        "delete": {"namespace": ["a"], "key": "k"},
        "write": {"changes": [ItemChange(["a"], "k", {"x": 1})]},
        "use": {"used": []},
        "history": {"namespace": ["a"], "key": "k"},
    },
}
"""Each operation, by the object it is a method of, with arguments that it accepts."""


def operations(bus, id):
    """Return, by name, each operation with arguments that it accepts."""
    homes = {
        "bus": bus, "page": bus.page(), "context": bus.context, "notes": bus.notes("s"), "notepad": bus.notepad("s"),
        "todo": bus.todo("s"), "scratchpad": bus.scratchpad("tester"), "facts": bus.facts("s"),
        "preferences": bus.preferences("s"), "texts": bus.texts("s"), "turns": bus.turns("s"),
        "files": bus.files("s"), "items": bus.items("s"),
    }  # fmt: skip
    return {
        f"{home}.{name}": (getattr(homes[home], name), {key: id if each is ID else each for key, each in good.items()})
        for home, methods in OPERATIONS.items()
        for name, good in methods.items()
    }


def calls(bus, name, id, labels=tuple(WRONG)):
    """Yield each call of an operation with one wrong argument: its label, the operation, its arguments."""
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
    """Use the result of an operation, unless that would wait forever."""
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


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setattr("scratchbus.commands.files.home_of", lambda settings: tmp_path / "home")


@pytest.fixture
def inhabited_bus(connect):
    bus = connect()
    bus.page().add("observation", "x")
    with bus.subscribe("there"):
        return bus


@pytest.mark.slow
@pytest.mark.parametrize("home", OPERATIONS)
def test_a_wrong_argument_raises_a_scratchbus_error(inhabited_bus, home):
    problems, id = [], inhabited_bus.page().list()[-1].id
    for name in [each for each in operations(inhabited_bus, id) if each.startswith(f"{home}.")]:
        for label, operation, positional, given in calls(inhabited_bus, name, id):
            try:
                use(operation(*positional, **given))
            except Exception as error:
                problems.append(problem_of(label, error))
    assert [each for each in problems if each] == []


@pytest.mark.anyio
@pytest.mark.parametrize("home", OPERATIONS)
async def test_a_wrong_argument_of_the_async_facade_raises_a_scratchbus_error(engine_url, connect, bus_name, home):
    problems, _ = [], connect()  # which deletes the bus after the test
    async with await AsyncBus.connect(engine_url, source="tester", bus=bus_name) as bus:
        known = await bus.page().add("observation", "x")
        for name in [each for each in operations(bus, known.id) if each.startswith(f"{home}.")]:
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
def test_a_wrong_setting_raises_a_scratchbus_error(setting):
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
def test_a_wrong_cause_raises_a_scratchbus_error(argument):
    problems = []
    for label, wrong in WRONG.items():
        try:
            with because(**{argument: wrong}):
                pass
        except Exception as error:
            problems.append(problem_of(f"{argument}={label}", error))
    assert [each for each in problems if each] == []


@pytest.mark.parametrize("change", [{"text": 5}, {"text": "\ud800"}, {"ttl": "1"}, {"value": 5}, {"key": None}])
def test_a_wrong_field_of_a_change_is_refused(connect, change):
    with pytest.raises(InvalidField, match=next(iter(change))):
        connect().items("s").write([ItemChange(("a",), "k", {"x": 1})._replace(**change)])


@pytest.mark.parametrize("matches", [5, [5], "x"])
def test_wrong_matches_are_refused(connect, matches):
    with pytest.raises(InvalidField, match="matches"):
        connect().items("s").read().namespaces(matches)
