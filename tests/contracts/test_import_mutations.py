"""A changed export is refused with its line, or makes a sound bus that every reader can read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scratchbus import Bus
from scratchbus.errors import CodeTooOld, InvalidExport, NotFound
from tests.contracts.test_export import export
from tests.contracts.test_import_refusals import assert_untouched
from tests.contracts.test_verify import live
from tests.engines import NewBus
from tests.inspection import assert_sound, project

pytestmark = pytest.mark.real

ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2, 7, 101, 2**31, 2**46, 2**53, 2**63, 2**64, 10**12, 10**30, 6 * 10**4000, 0.5, -0.5,
    1e308, "", " ", "a|b", "a b", "x" * 300, "y" * 70_000, "\x1b]0;t\x07", "\u202e", "\x00", "ACTIVE", "active",
    "resolved", "archived", "cleared", "erased", "open", "closed", "final", "main", "user:42", "_bus", "types",
    "session", "note_1", "1-1", "9-9", "1/2", "2/1", "2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00", "01M7ZG05XPKZK2CR4XCAZB2BQ8", [], ["a", "a"], [1], [[]], {}, {"a": 1}, {"a": {"b": []}},
    "added", "updated", "repeated", "status_changed", "claimed", "released", "lapsed", "linked", "due", "cleared",
    "erased", "types_changed", "context_rendered", "notepad_written", "note_added", "session_ended", "todo_written",
]  # fmt: skip


@pytest.fixture(scope="module")
def lines(new_bus: NewBus) -> list[str]:
    """An export with every kind of event."""
    with new_bus() as bus:
        live(bus)
        remember(bus)
        erased = bus.page().add("observation", "secret")
        bus.page().update(erased.id, content="more of it")
        bus.page().erase(erased.id, reason="asked for")
        worked = bus.page().add("reminder", "now", ttl="1h")
        claim = bus.page().claim(worked.id)
        bus.page().release(worked.id, fence=claim.fence)
        return export(bus)


def remember(bus: Bus) -> None:
    session = bus.notepad("s1")
    session.write("a b c")
    session.update("find_replace", find="b", replace="bb")
    notes = bus.notes("s1")
    note = notes.add("a note", tags=["t"]).note
    notes.update(note.id, content="another")
    notes.delete(notes.add("gone").note.id)
    bus.todo("s1").write([{"id": "1", "content": "do"}])
    task = bus.begin_task("s1", "a task")
    turns = bus.turns("s1")
    turns.append("user", "said", tokens=1)
    bus.end_task(task, "done")
    turns.append("tool", "more", task=task)
    turns.compact("all of it")
    texts = bus.texts("project")
    texts.create("a", "one\n")
    texts.replace("a", "one", "two")
    texts.insert("a", 1, "three")
    texts.rename("a", "b")
    texts.delete("b")
    bus.fork_session("s1", session="s2")
    bus.end_session("s2")
    facts = bus.facts("p1")
    facts.assert_fact("App", "runs_on", "Node 20", valid_at="2026-01-01", invalid_at="2027-01-01", confidence=0.5)
    facts.retract(facts.assert_fact("App", "runs_on", "Node 24", source_text="we upgraded").id, "misread")


def paths(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every value in a line."""
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from paths(inner, (*at, key))


def changed(line: str, draw: Callable[[st.SearchStrategy[Any]], Any]) -> str:
    """Return a line with one value set, dropped or added, or cut off."""
    parsed = json.loads(line)
    what = draw(st.sampled_from(["set", "set", "set", "drop", "add", "tear"]))
    if what == "tear":
        return line[: draw(st.integers(0, len(line) - 1))]
    *way, last = draw(st.sampled_from([path for path in paths(parsed) if path]))
    holder = parsed
    for key in way:
        holder = holder[key]
    if what == "drop":
        del holder[last]
    elif what == "add" and isinstance(holder, dict):
        names = ["priority", "times", "ttl", "fence", "status", "kind", "expires_at", "tags", "evidence", "v", "cause"]
        holder[draw(st.sampled_from(names))] = draw(st.sampled_from(ODD))
    else:
        holder[last] = draw(st.sampled_from(ODD))
    return json.dumps(parsed)


def read_everything(bus: Bus) -> None:
    """Read a bus through every reader."""
    events = list(bus.events())
    for name in {event.page for event in events if event.page != "_bus"}:
        page = bus.page(name)
        everything = page.list(limit=1_000)
        page.active()
        bus.context.assemble(page=name, record=False)
        with bus.view(name) as view:
            view.list()
        for each in everything:
            page.get(each.id)
            each.model_dump_json()
        for subject in {event.subject for event in events if event.page == name}:
            try:
                page.history(subject)
            except NotFound:
                pytest.fail(f"{subject} on {name} has no history")
        if name.startswith("session:"):
            session = name.removeprefix("session:")
            bus.notepad(session).read()
            bus.notes(session).list()
            bus.todo(session).read()
            bus.notes(session).history()
    bus.refresh_types()
    bus.status()
    export(bus)
    bus.rebuild()


def test_tombstone_with_a_prev_is_refused(new_bus: NewBus, lines: list[str]) -> None:
    changed_lines = []
    for line in lines:
        parsed = json.loads(line)
        if parsed["kind"] == "erased":
            parsed["prev"] = " "
        changed_lines.append(json.dumps(parsed))
    assert changed_lines != lines
    with new_bus() as copy, pytest.raises(InvalidExport, match="came before it"):
        copy.import_events(changed_lines)


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_changed_export_is_refused_or_makes_a_sound_bus(new_bus: NewBus, lines: list[str], data: st.DataObject) -> None:
    given_lines = list(lines)
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(0, len(given_lines) - 1))
        match data.draw(st.sampled_from(["change"] * 8 + ["drop", "twice", "swap"])):
            case "change":
                given_lines[at] = changed(given_lines[at], data.draw) if given_lines[at].endswith("}") else "{"
            case "drop":
                del given_lines[at]
            case "twice":
                given_lines.insert(at, given_lines[at])
            case _:
                given_lines[at - 1], given_lines[at] = given_lines[at], given_lines[at - 1]
    with new_bus() as copy:
        try:
            copy.import_events(given_lines)
        except (InvalidExport, CodeTooOld):
            assert_untouched(copy)
            return
        assert copy.verify().findings == []
        read_everything(copy)
        copy.page().add("observation", "and on it goes")
        project(copy)
        assert copy.verify().findings == []
        assert_sound(copy)
