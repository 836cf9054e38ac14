"""The notepad of a session."""

from __future__ import annotations

import subprocess
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scratchbus import AsyncBus, Bus
from scratchbus.archive.export import line_of
from scratchbus.errors import EventIdReused, InvalidField, InvalidId, InvalidName, NotFound, TooLarge
from scratchbus.eventlog.append import append
from tests import launcher
from tests.engines import Engine
from tests.inspection import log_length, project, raw_append, remembered, send


@pytest.fixture
def notepad(bus: Bus):
    return bus.notepad("s1")


def test_an_unused_notepad_is_empty(notepad):
    assert notepad.read() == ""
    assert notepad.history() == []


def test_written_text_is_read_on_every_connection(bus, notepad, connect):
    notepad.write("# Plan\n- [ ] survey")
    assert notepad.read() == connect("another").notepad("s1").read() == "# Plan\n- [ ] survey"
    project(bus)
    assert notepad.read() == "# Plan\n- [ ] survey"
    assert bus.notepad("s2").read() == ""


def test_each_operation_edits_the_text(notepad):
    notepad.append("b")
    notepad.update("append", "c\n")
    notepad.update("prepend", "a")
    assert notepad.read() == "abc\n"
    notepad.update("find_replace", find="bc", replace="BC")
    notepad.update("delete", "a")
    assert notepad.read() == "BC\n"


def test_writing_an_empty_text_clears_the_notepad(notepad):
    notepad.write("something")
    notepad.write("")
    assert notepad.read() == ""
    assert [event.kind for event in notepad.history()] == ["notepad_written", "notepad_written"]


def test_replace_all_edits_every_match(notepad):
    notepad.write("- [ ] a\n- [ ] b\n")
    notepad.update("find_replace", find="[ ]", replace="[x]", replace_all=True)
    assert notepad.read() == "- [x] a\n- [x] b\n"
    notepad.update("delete", "- [x] ", replace_all=True)
    assert notepad.read() == "a\nb\n"


REFUSED = {
    "a missing text": (("find_replace", None, "zebra", "x"), "find: 'zebra' is not on the notepad; read it"),
    "an ambiguous text": (("find_replace", None, "an", "x"), "'an' is on the notepad 2 times; include more"),
    "a text that overlaps itself": (("delete", "ana"), "content: 'ana' is on the notepad 2 times"),
    "a deletion of a missing text": (("delete", "zebra"), "content: 'zebra' is not on the notepad"),
    "nothing to find": (("find_replace", None, "", "x"), "find: is empty; give the exact text"),
    "no text to find": (("find_replace", None, None, "x"), "find: is missing; find_replace needs it"),
    "no replacement": (("find_replace", None, "b", None), "replace: is missing; find_replace needs it"),
    "nothing to append": (("append",), "content: is missing; append needs it"),
    "an unused argument": (("append", "x", "y"), "find: append does not take it; give content"),
    "an unknown operation": (
        ("erase", "x"),
        "operation: 'erase' is not an operation; use one of: append, prepend, find_replace",
    ),
    "a list as operation": ((["append"], "x"), "operation: ['append'] is not an operation; use one of"),
    "a number as content": (("append", 7), "content: 7 is not a text"),
    "invalid Unicode": (("append", "\ud800"), "content: is not valid Unicode text"),
    "a text as replace_all": (("delete", "b", None, None, "yes"), "replace_all: 'yes' is neither true nor false"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_edit_says_why_and_changes_nothing(bus, notepad, case):
    arguments, message = REFUSED[case]
    notepad.write("banana")
    length = log_length(bus)
    with pytest.raises(InvalidField) as refused:
        notepad.update(*arguments)
    assert message in str(refused.value)
    assert log_length(bus) == length
    assert notepad.read() == "banana"


def test_counting_of_matches_stops_at_1000(notepad):
    notepad.write("a" * 100_000)
    with pytest.raises(InvalidField, match="is on the notepad 1000 times or more"):
        notepad.update("delete", "a" * 50_000)


def test_append_line_starts_a_new_line(notepad):
    notepad.append("- survey", line=True)
    assert notepad.read() == "- survey\n"
    for content in ("# Plan", "# Plan\n"):
        notepad.write(content)
        notepad.append("- survey", line=True)
        assert notepad.read() == "# Plan\n- survey\n"
    for _ in range(2):
        notepad.append("- fix", line=True, event_id="once")
    assert notepad.read() == "# Plan\n- survey\n- fix\n"


def test_unused_arguments_can_be_empty(notepad):
    notepad.update("append", "x", find="", replace="")
    assert notepad.read() == "x"


def test_find_in_an_empty_notepad_says_it_is_empty(notepad):
    with pytest.raises(InvalidField, match="is not on the notepad, which is empty; nothing was changed"):
        notepad.update("find_replace", find="x", replace="y")


def test_notepad_over_the_limit_is_refused(connect):
    notepad = connect(max_notepad=10).notepad("s1")
    notepad.write("0123456789")
    for edit in (lambda: notepad.append("x"), lambda: notepad.write("x" * 11)):
        with pytest.raises(TooLarge, match="notepad: 11 characters is over the limit of 10"):
            edit()
    notepad.update("find_replace", find="9", replace="é")
    assert notepad.read() == "012345678é"


def test_bad_session_name_is_refused(bus):
    for name in ("", "a b", "x#y", "x" * 121, None):
        with pytest.raises(InvalidName, match=r"session: .* is not a name"):
            bus.notepad(name)


def test_retry_changes_nothing_and_refuses_other_arguments(bus, notepad):
    notepad.write("one two", event_id="w1")
    notepad.update("delete", "one ", event_id="d1")
    notepad.append("!")
    length = log_length(bus)
    notepad.update("delete", "one ", event_id="d1")
    notepad.write("one two", event_id="w1")
    assert notepad.read() == "two!"
    for reuse in (lambda: notepad.append("x", event_id="w1"), lambda: notepad.update("delete", "zz", event_id="d1")):
        with pytest.raises(EventIdReused):
            reuse()
    assert log_length(bus) == length


def test_history_and_as_of_show_each_edit(bus, notepad):
    notepad.write("a")
    notepad.append("b")
    bus.notepad("s2").write("another's")
    notepad.update("delete", "a")
    events = notepad.history()
    assert [(event.kind, event.by) for event in events] == [
        ("notepad_written", "tester"), ("notepad_edited", "tester"), ("notepad_edited", "tester"),
    ]  # fmt: skip
    assert [notepad.as_of(event.position) for event in events] == ["a", "ab", "b"]
    assert notepad.as_of(events[-1].at) == "b"
    assert bus.page("session:s1").history("notepad") == events


def test_events_can_be_filtered_by_kinds_of_edits(bus, notepad):
    notepad.append("x")
    assert [event.content for event in bus.events(kinds=["notepad_edited"])] == ["x"]
    assert list(bus.events(kinds=["notepad_written"])) == []


def test_notepad_is_not_listed_as_an_observation(bus, notepad):
    notepad.write("x")
    page = bus.page("session:s1")
    observation = page.add("observation", "y")
    assert [each.id for each in page.list()] == [each.id for each in page.active()] == [observation.id]
    with bus.view("session:s1") as view:
        assert [each.id for each in view.list()] == [observation.id]
    assert [each.id for each in page.as_of(observation.position).list()] == [observation.id]
    assert notepad.read() == "x"


def test_rebuild_keeps_the_notepad(bus, notepad):
    notepad.write("kept")
    project(bus)
    before = remembered(bus)
    bus.rebuild()
    assert remembered(bus) == before
    assert notepad.read() == "kept"
    assert bus.verify().findings == []


@pytest.mark.damages_the_log
def test_verify_finds_changed_documents(bus, notepad):
    notepad.write("kept")
    project(bus)
    ((page, _),) = remembered(bus)
    key = send(bus, "KEYS", f"{{{bus.core.log.bus}:*memory:{page}")[0]
    send(bus, "HSET", key, "notepad", send(bus, "HGET", key, "notepad").replace(b"kept", b"lost"))
    send(bus, "HSET", key, "note_5", b"{}")
    assert sorted((one.kind, one.where.split()[-1]) for one in bus.verify().findings) == [
        ("document", "note_5"), ("document", "notepad"),
    ]  # fmt: skip


@pytest.mark.damages_the_log
def test_unreadable_event_marks_the_notepad_damaged(bus, notepad):
    notepad.write("kept")
    raw_append(bus, "session:s1", subject="notepad", kind="exploded")
    for _ in ("not folded", "folded"):
        assert notepad.read() == "kept"
        project(bus)
    assert remembered(bus)["session:s1", "notepad"].damaged


def test_erased_notepad_can_be_written_again(bus, notepad):
    notepad.write("a secret")
    notepad.append(", and more")
    page = bus.page("session:s1")
    tombstone = page.erase("notepad", reason="asked for")
    assert len(tombstone.positions) == 2
    assert notepad.read() == ""
    assert notepad.history() == [tombstone]
    notepad.append("new text")
    assert notepad.read() == "new text"
    assert bus.verify().findings == []
    page.erase("notepad", reason="again")
    assert notepad.read() == ""


def test_session_record_cannot_be_erased(bus, notepad):
    notepad.write("x")
    with pytest.raises(InvalidId, match="the record of a session itself cannot be erased"):
        bus.page("session:s1").erase("session", reason="x")
    with pytest.raises(NotFound):
        bus.page("session:s1").erase("note_1", reason="x")


def test_import_makes_an_equal_notepad(bus, notepad, connect):
    notepad.write("kept")
    notepad.append("!")
    lines = [line_of(event) for event in bus.events()]
    other = connect(bus=f"{bus.core.log.bus}-2")
    other.import_events(lines)
    assert other.notepad("s1").read() == "kept!"
    other.notepad("s1").append("!")
    assert other.verify().findings == []


EDITOR = """
import sys
from scratchbus import Bus

url, name, who = sys.argv[1:]
with Bus.connect(url, bus=name, source=who) as bus:
    notepad = bus.notepad("s1")
    for number in range(30):
        notepad.append(f"{who}-{number}\\n")
        notepad.update("find_replace", find=f"{who}: {number} ", replace=f"{who}: {number + 1} ")
"""


@pytest.mark.real
def test_concurrent_processes_lose_no_edits(embedded_url: str, real_bus: Bus):
    notepad = real_bus.notepad("s1")
    notepad.write("left: 0 right: 0 \n")
    command = launcher.command("-c", EDITOR, embedded_url, real_bus.core.log.bus)
    writers = [subprocess.Popen([*command, who]) for who in ("left", "right")]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    first, *lines = notepad.read().splitlines()
    assert first == "left: 30 right: 30 "
    assert sorted(lines) == sorted(f"{who}-{number}" for who in ("left", "right") for number in range(30))
    assert len(notepad.history()) == 121


def test_edit_is_reapplied_after_a_concurrent_edit(bus, notepad, connect, monkeypatch):
    other, name = connect("another").notepad("s1"), "scratchbus.commands.memory.append"
    notepad.write("one two")

    def late(*arguments, **keywords):
        monkeypatch.setattr(name, append)
        other.update("delete", "one ")
        return (yield from append(*arguments, **keywords))

    monkeypatch.setattr(name, late)
    notepad.update("find_replace", find="two", replace="2")
    assert notepad.read() == "2"
    notepad.write("one two")
    monkeypatch.setattr(name, late)
    with pytest.raises(InvalidField, match="'one' is not on the notepad"):
        notepad.update("find_replace", find="one", replace="1")
    assert notepad.read() == "two"
    assert len(notepad.history()) == 5


async def test_async_notepad_edits_the_same(engine: Engine, bus_name: str):
    async with AsyncBus.connect(engine.url, source="tester", bus=bus_name, shards=engine.shards) as bus:
        notepad = bus.notepad("s1")
        await notepad.write("a")
        await notepad.append("b")
        await notepad.update("prepend", "_")
        assert await notepad.read() == "_ab"
        (first, *_) = await notepad.history()
        assert await notepad.as_of(first.position) == "a"


TEXTS = st.text(alphabet="ab \né", max_size=6)
EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), TEXTS),
        st.tuples(st.sampled_from(["append", "prepend"]), TEXTS),
        st.tuples(st.just("delete"), TEXTS, st.booleans()),
        st.tuples(st.just("find_replace"), TEXTS, TEXTS, st.booleans()),
    ),
    max_size=12,
)


def expected(text: str, operation: str, *given: Any) -> str | None:
    """Return the text after an edit, or None if the edit must be refused."""
    if operation in ("write", "append", "prepend"):
        return {"write": "", "append": text, "prepend": ""}[operation] + str(given[0]) + text * (operation == "prepend")
    find, *new, is_all = given
    places = [at for at in range(len(text)) if find and text.startswith(find, at)]
    if not places or (len(places) > 1 and not is_all):
        return None
    return str(text.replace(find, "".join(new)))


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=EDITS, is_folded=st.booleans())
def test_edits_match_a_plain_text(many_notepads, edits, is_folded):
    number, bus = many_notepads
    notepad, text = bus.notepad(f"s{next(number)}"), ""
    for edit in edits:
        after = expected(text, *edit)
        name, *given = edit
        if name == "write":
            notepad.write(*given)
        else:
            keywords = (
                {"find": given[0], "replace": given[1], "replace_all": given[2]}
                if name == "find_replace"
                else {"content": given[0], "replace_all": given[1]}
                if name == "delete"
                else {"content": given[0]}
            )
            if after is None:
                with pytest.raises(InvalidField):
                    notepad.update(name, **keywords)
            else:
                notepad.update(name, **keywords)
        text = text if after is None else after
        if is_folded:
            project(bus)
        assert notepad.read() == text
    events = notepad.history()
    assert notepad.as_of(events[-1].position) == text if events else text == ""


@pytest.fixture(scope="module")
def many_notepads(new_bus):
    with new_bus() as bus:
        yield count(), bus
