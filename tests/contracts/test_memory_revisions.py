"""Revisions and retries of memory writes."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from scratchbus import AsyncBus, Bus, Memories, Notepad, Notes, Scratchpad, Todo
from scratchbus.errors import EventIdReused, InvalidField, InvalidId, RevisionConflict, VersionConflict
from tests.inspection import log_length, project

WRITERS: dict[type, tuple[str, ...]] = {
    Notes: ("add", "scratch", "update", "delete"),
    Notepad: ("write", "append", "update"),
    Todo: ("write",),
    Scratchpad: ("write", "accept_reply", "record_run"),
    Memories: ("spawn_session", "fork_session", "end_session", "begin_task", "end_task", "report_result", "run"),
}


@pytest.fixture(params=["notepad", "scratchpad"])
def text(request: pytest.FixtureRequest, bus: Bus) -> Any:
    return bus.notepad("s1") if request.param == "notepad" else bus.scratchpad("tester")


@pytest.fixture
def todo(bus: Bus) -> Todo:
    return bus.todo("s1")


def items(*ids: str) -> list[dict[str, str]]:
    return [{"id": id, "content": "x"} for id in ids]


@pytest.mark.parametrize("cls", WRITERS)
def test_every_write_takes_an_event_id(cls):
    for name in WRITERS[cls]:
        assert "event_id" in inspect.signature(getattr(cls, name)).parameters, name


def test_read_with_revision_returns_the_last_revision(bus, text):
    assert text.read_with_revision() == ("", 0)
    assert [text.write("a"), text.write("b")] == [1, 2]
    for _ in ("not folded", "folded"):
        assert text.read_with_revision() == ("b", 2)
        project(bus)


def test_edits_return_their_revision(bus):
    notepad = bus.notepad("s1")
    assert [notepad.append("a"), notepad.append("b", line=True), notepad.update("delete", "a")] == [1, 2, 3]


def test_write_at_the_current_revision_succeeds(text):
    first = text.write("a")
    assert text.write("b", revision=first) == 2
    assert text.read() == "b"


def test_write_at_an_old_revision_is_refused(bus, text):
    first = text.write("a")
    text.write("b")
    length = log_length(bus)
    with pytest.raises(RevisionConflict, match="has changed since revision 1; read it again") as refused:
        text.write("c", revision=first)
    assert (refused.value.expected, refused.value.actual) == (1, 2)
    assert isinstance(refused.value, VersionConflict)
    assert (text.read(), log_length(bus)) == ("b", length)


def test_revision_0_requires_an_empty_text(text):
    text.write("a", revision=0)
    with pytest.raises(RevisionConflict, match="is not empty"):
        text.write("b", revision=0)
    text.write("")
    text.write("c", revision=0)
    assert text.read() == "c"


@pytest.mark.engines("memory")
@pytest.mark.parametrize("revision", [-1, "1", True, 1.5])
def test_bad_revision_is_refused(text, todo, revision):
    for write in (lambda: text.write("x", revision=revision), lambda: todo.write([], revision=revision)):
        with pytest.raises(InvalidField, match=r"revision: .* is not a whole number"):
            write()


def test_retry_at_a_revision_returns_the_first_result(text):
    text.write("a")
    assert text.write("b", revision=1, event_id="mine") == 2
    text.write("c")
    assert text.write("b", revision=1, event_id="mine") == 2
    for other in ({"revision": 2}, {}):
        with pytest.raises(EventIdReused):
            text.write("b", event_id="mine", **other)
    assert text.read() == "c"


def test_todo_write_needs_the_current_revision(todo):
    first = todo.write(items("1"), revision=0)
    second = todo.write(items("1", "2"), revision=first.revision)
    for revision in (0, first.revision):
        for merge in (False, True):
            with pytest.raises(RevisionConflict):
                todo.write(items("3"), merge, revision=revision)
    assert todo.read() == second
    assert todo.write(items("3"), merge=True, revision=second.revision).revision == 3


def test_second_write_at_one_revision_is_refused(bus, connect):
    bus.notepad("s1").write("a")
    connect("another").notepad("s1").write("b", revision=1)
    with pytest.raises(RevisionConflict):
        bus.notepad("s1").write("c", revision=1)


def test_run_with_an_event_id_is_recorded_once(bus):
    def ask(_: str) -> str:
        return '{"scratchpad": "Mondays"}'

    for _ in range(2):
        with bus.run("tester", "look", ask=ask, event_id="run-1") as run:
            run.done("seen")
        assert run.steps[-1].name == "scratchpad_update"
    events = bus.scratchpad("tester").history()
    assert [(event.kind, event.id) for event in events] == [
        ("scratchpad_written", "run-1/scratchpad"),
        ("run_ended", "run-1"),
    ]
    for event_id in ("no spaces", "x" * 201):
        with pytest.raises(InvalidId):
            bus.run("tester", "look", ask=ask, event_id=event_id)


def test_reply_with_an_event_id_is_accepted_once(bus):
    pad = bus.scratchpad("tester")
    for _ in range(2):
        assert pad.accept_reply('{"scratchpad": "x"}', event_id="reply-1")
    assert len(pad.history()) == 1
    assert "used before with other arguments" in str(pad.accept_reply('{"scratchpad": "y"}', event_id="reply-1").error)


async def test_async_memories_have_revisions(engine, bus):
    name = bus.core.log.bus
    async with AsyncBus.connect(engine.url, source="tester", bus=name, shards=engine.shards) as theirs:
        for text in (theirs.notepad("s1"), theirs.scratchpad("tester")):
            assert await text.write("a", revision=0) == 1
            assert await text.read_with_revision() == ("a", 1)
            with pytest.raises(RevisionConflict):
                await text.write("b", revision=0)
        assert await theirs.notepad("s1").append("b") == 2
        assert (await theirs.todo("s1").write(items("1"), revision=0)).revision == 1


def test_note_changes_need_the_current_revision(bus):
    note = bus.notes("s1").add("first").note
    bus.notes("s1").update(note.id, "second", revision=note.version)
    for write in (
        lambda: bus.notes("s1").update(note.id, "third", revision=note.version),
        lambda: bus.notes("s1").delete(note.id, revision=note.version),
    ):
        with pytest.raises(RevisionConflict) as refused:
            write()
        assert (refused.value.expected, refused.value.actual) == (1, 2)
    assert bus.notes("s1").list().notes[0].content == "second"
    assert bus.notes("s1").delete(note.id, revision=2).note.content == "second"


def test_past_notes_can_be_searched(bus):
    bus.notes("s1").add("The bank", ["Hours"])
    bus.notes("s1").add("A bank", ["other"])
    then, now = bus.position(), bus.notes("s1").search("bank", ["hours"])
    bus.notes("s1").add("One more bank", ["hours"])
    assert bus.notes("s1").as_of(then, "bank", ["hours"]) == now
    assert [each.content for each in bus.notes("s1").as_of(then, "BANK").notes] == ["A bank", "The bank"]
