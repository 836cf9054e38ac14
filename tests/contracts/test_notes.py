"""The notes of a session."""

from __future__ import annotations

import subprocess
from datetime import timedelta

import pytest

from scratchbus import AsyncBus, Bus, NewObservation
from scratchbus.archive.export import line_of
from scratchbus.errors import EventIdReused, InvalidField, InvalidId, NotFound, TooLarge
from scratchbus.eventlog.keys import PageKeys
from scratchbus.readmodel.memory_cache import MemoryCache
from scratchbus.readmodel.memory_kinds import NOTES
from tests import launcher
from tests.engines import ONE, Engine
from tests.faults.interposing import interposed
from tests.inspection import forget, keys_of, log_length, project, remembered, send


@pytest.fixture
def notes(bus: Bus):
    return bus.notes("s1")


def contents(result):
    return [note.content for note in result.notes]


def test_add_returns_the_note_and_the_session_totals(notes):
    first = notes.add("Q3 is off by 45,000", tags=["analysis", "Q3"])
    assert (first.note.content, first.note.tags) == ("Q3 is off by 45,000", ["analysis", "Q3"])
    assert first.note.source == "tester"
    assert first.note.created_at == first.note.updated_at
    assert first.metadata == {"note_id": first.note.id, "total_notes": 1, "total_tags": 2}
    second = notes.scratch("rows 234 to 267")
    assert second.note.tags == []
    assert second.metadata == {"note_id": second.note.id, "total_notes": 2, "total_tags": 2}
    assert second.message == f"Added {second.note.id}; the session has 2 notes with 2 tags now."


def test_note_id_is_the_engine_time_or_the_next_free_number(notes, clock):
    now = round(clock.now.timestamp() * 1000)
    ids = [notes.add(f"note {number}").note.id for number in range(9)]
    assert ids == [f"note_{now + number}" for number in range(9)]
    notes.delete(ids[-1])
    clock.advance("4ms")
    assert notes.add("later").note.id == f"note_{now + 9}"
    clock.advance("1s")
    assert notes.add("much later").note.id == f"note_{now + 1004}"


def test_notes_are_read_again_after_a_failover_meanwhile(bus, notes, connect):
    notes.add("kept")
    project(bus)
    stored = send(bus, "HGETALL", PageKeys(keys_of(bus, "session:s1"), "session:s1").memory)
    lost = [b"0", [part.replace(b"kept", b"lost") for part in stored]]
    replies = {"INFO": b"run_id:before", "HSCAN": lost}  # each of the first such command

    def around(call, execute):
        first = replies.pop(call.commands[0][0], None)
        return execute() if first is None else [first]

    reader = connect("reader")
    with interposed(reader, around):
        assert contents(reader.notes("s1").list()) == ["kept"]
    assert not replies


WRITER = """
import sys
from scratchbus import Bus

url, name = sys.argv[1:]
with Bus.connect(url, bus=name, source="writer") as bus:
    for number in range(60):
        bus.notes("s1").add(f"note {number}")
"""


@pytest.mark.real
def test_concurrent_processes_get_distinct_ids(embedded_url: str, real_bus: Bus):
    command = launcher.command("-c", WRITER, embedded_url, real_bus.core.log.bus)
    writers = [subprocess.Popen(command) for _ in range(2)]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert len({note.id for note in real_bus.notes("s1").list().notes}) == 120


def test_list_is_newest_first_and_filters_by_tag(notes):
    for number, tags in enumerate(([], ["Bug"], ["bug", "x"], ["debug"])):
        notes.add(f"note {number}", tags)
    assert contents(notes.list()) == ["note 3", "note 2", "note 1", "note 0"]
    assert contents(notes.list("BUG")) == ["note 2", "note 1"]
    assert notes.list("BUG").metadata == {"note_count": 2, "tag_filter": "BUG"}
    assert notes.list().metadata == {"note_count": 4, "tag_filter": None}
    assert contents(notes.list("nobody's")) == []


def test_search_sorts_by_match_position_then_recency(notes):
    for content in ("the end is LEAK", "Leak at once", "no match", "leak again", "a leak"):
        notes.add(content)
    found = notes.search("leAK")
    assert contents(found) == ["leak again", "Leak at once", "a leak", "the end is LEAK"]
    assert found.metadata == {"result_count": 4, "query": "leAK", "tags": []}


def test_search_requires_all_tags(notes):
    notes.add("one", ["A", "b"])
    notes.add("two", ["a"])
    notes.add("one more", ["a", "B", "c"])
    assert contents(notes.search(tags=["a", "b"])) == ["one more", "one"]
    assert contents(notes.search("one", ["A"])) == ["one more", "one"]
    assert contents(notes.search("two", ["b"])) == []
    assert contents(notes.search()) == ["one more", "two", "one"]
    assert notes.search("x", ["a", "b"]).metadata == {"result_count": 0, "query": "x", "tags": ["a", "b"]}
    assert notes.search("%_\\*[").notes == []


def test_empty_filters_are_ignored(notes):
    note = notes.add("x", ["a"]).note
    assert notes.search(None, None).metadata == {"result_count": 1, "query": "", "tags": []}
    assert notes.list("").metadata == {"note_count": 1, "tag_filter": None}
    assert notes.search("", ["a"] * 20).notes == [note]
    assert notes.search("", [f"{n}" for n in range(20)]).notes == []


def test_update_replaces_only_the_given_fields(notes, clock):
    old = notes.add("old", ["a"]).note
    clock.advance("1m")
    after = notes.update(old.id, content="new")
    assert (after.note.content, after.note.tags, after.note.version) == ("new", ["a"], 2)
    assert after.note.updated_at - after.note.created_at == timedelta(minutes=1)
    assert after.metadata == {"note_id": old.id, "total_notes": 1, "total_tags": 1}
    assert notes.update(old.id, tags=[]).note.tags == []
    assert notes.update(old.id, "newest", ["x", "y"]).metadata["total_tags"] == 2
    assert contents(notes.search("newest", ["X"])) == ["newest"]
    assert notes.search("old").notes == notes.list("a").notes == []


def test_deleted_note_keeps_its_history(notes):
    gone, kept = notes.add("gone", ["a"]).note, notes.add("kept", ["b"]).note
    answer = notes.delete(gone.id)
    assert answer.note == gone
    assert answer.metadata == {"note_id": gone.id, "total_notes": 1, "total_tags": 1}
    assert notes.list().notes == [kept]
    assert [event.kind for event in notes.history(gone.id)] == ["note_added", "note_deleted"]
    for again in (lambda: notes.delete(gone.id), lambda: notes.update(gone.id, "x")):
        with pytest.raises(NotFound, match=f"there is no {gone.id} in session 's1'; list or search"):
            again()


def test_tags_are_counted_with_their_case(notes):
    notes.add("x", ["Bug", "todo"])
    notes.add("y", ["todo", "bug", "todo"])
    result = notes.tags()
    assert result.tags == {"Bug": 1, "bug": 1, "todo": 2}
    assert list(result.tags) == ["Bug", "bug", "todo"]
    assert result.metadata == {"tag_count": 3}


REFUSED = {
    "too long a text": (lambda notes: notes.add("x" * 4001), TooLarge,
        "note content exceeds maximum length of 4000 characters (got 4001). "
        "Please shorten the content or split into multiple notes"),
    "too many tags": (lambda notes: notes.add("x", [f"t{n}" for n in range(11)]), TooLarge,
        "note has too many tags (max 10, got 11). "
        "Please reduce the number of tags to focus on the most relevant categories"),
    "an empty text": (lambda notes: notes.add(" \n"), InvalidField, "content: is empty; say what is worth noting"),
    "a number as content": (lambda notes: notes.scratch(7), InvalidField, "content: 7 is not a text"),
    "invalid Unicode": (lambda notes: notes.scratch("\ud800"), InvalidField, "content: is not valid Unicode text"),
    "a bare tag": (lambda notes: notes.add("x", "bug"), InvalidField, "tags: 'bug' is not a list of texts"),
    "an empty tag": (lambda notes: notes.add("x", [""]), InvalidField, "tags: '' must be 1 to 256 printable"),
    "a bad id": (lambda notes: notes.update("7", "x"), InvalidId, "id: '7' is not the id of a note; note ids look"),
    "an unknown id": (lambda notes: notes.update("note_7", "x"), NotFound, "there is no note_7 in session 's1'"),
    "no change": (lambda notes: notes.update("note_7"), InvalidField, "content: nothing to change; give"),
    "a number as query": (lambda notes: notes.search(7), InvalidField, "query: 7 is not a text"),
    "the history of an unknown note": (lambda notes: notes.history("note_7"), NotFound, "there is no note_7 in"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_call_says_why_and_appends_nothing(bus, notes, case):
    do, error, message = REFUSED[case]
    with pytest.raises(error) as refused:
        do(notes)
    assert message in str(refused.value)
    assert log_length(bus) == 0


def test_limits_are_settings_and_count_characters(connect):
    notes = connect(max_note_content=4, max_note_tags=1).notes("s1")
    assert notes.add("éééé", ["a", "a"]).note.tags == ["a"]
    with pytest.raises(TooLarge, match="maximum length of 4 characters"):
        notes.add("12345")
    with pytest.raises(TooLarge, match="max 1, got 2"):
        notes.add("x", ["a", "b"])


def test_retry_returns_the_same_note_and_refuses_other_arguments(bus, notes):
    first = notes.add("x", ["a"], event_id="e1").note
    changed = notes.update(first.id, "y", event_id="e2").note
    notes.update(first.id, "z")
    deleted = notes.delete(first.id, event_id="e3")
    length = log_length(bus)
    assert notes.add("x", ["a"], event_id="e1").note == first
    assert notes.update(first.id, "y", event_id="e2").note == changed
    assert notes.delete(first.id, event_id="e3") == deleted
    with pytest.raises(EventIdReused):
        notes.add("else", event_id="e1")
    with pytest.raises(EventIdReused):
        notes.update(first.id, "else", event_id="e2")
    assert log_length(bus) == length


def test_as_of_and_history_show_each_change(bus, notes):
    first = notes.add("first").note
    second = notes.add("second").note
    bus.notes("s2").add("of another session")
    notes.update(first.id, "changed")
    last = notes.delete(second.id)
    assert last.metadata["total_notes"] == 1
    assert [event.kind for event in notes.history()] == ["note_added", "note_added", "note_updated", "note_deleted"]
    assert notes.as_of(first.position).notes == [first]
    assert contents(notes.as_of(second.position)) == ["second", "first"]
    assert contents(notes.as_of(notes.history()[2].position)) == ["second", "changed"]
    assert notes.as_of(bus.position()).metadata == {"note_count": 1, "tag_filter": None}


def test_notes_are_seen_at_once_on_another_connection(connect, notes):
    other = connect("another").notes("s1")
    assert other.list().notes == []
    for number in range(3):
        note = notes.add(f"note {number}").note
        assert other.search(f"note {number}").notes == [note]
    other.delete(note.id)
    assert contents(notes.list()) == ["note 1", "note 0"]


@pytest.mark.engines(*ONE)
def test_notes_are_found_among_many_other_events(bus, notes, connect):
    reader = connect("reader").notes("s1")
    first = notes.add("first").note
    assert reader.list().notes == [first]
    page = bus.page()
    for number in range(3):
        for _ in range(2):
            page.add_many([NewObservation(type="observation", content="x", dedupe_key="k") for _ in range(300)])
        if number == 1:
            project(bus)
        notes.add(f"after {number}")
        assert contents(reader.list()) == [*reversed([f"after {n}" for n in range(number + 1)]), "first"]


@pytest.mark.damages_the_log
def test_notes_of_a_flushed_log_are_forgotten(bus, notes):
    notes.add("of the old log")
    forget(bus)
    assert notes.list().notes == []
    note = notes.add("of the new log").note
    assert notes.list().notes == [note]
    assert notes.tags().tags == {}


def test_slow_reader_does_not_restore_a_deleted_note(bus, notes, connect):
    assert notes.list().notes == []
    note = connect("another").notes("s1").add("x").note
    held = next(iter(bus.core.notebooks._cached.values()))

    def overtaken():
        conversation = held.catch_up(bus.core.log)
        reply = yield next(conversation)
        notes.delete(note.id)
        while True:
            try:
                reply = yield conversation.send(reply)
            except StopIteration:
                return

    bus.converse(overtaken())
    assert notes.list().notes == []


def test_cache_of_notes_is_bounded(bus, notes):
    bus.core.notebooks = MemoryCache(NOTES, most_bytes=4_000)
    sessions = [bus.notes(f"s{number}") for number in range(5)]
    for session in sessions * 3:
        session.add("x" * 500)
    assert 1 <= len(bus.core.notebooks._cached) < 5
    assert [len(session.list().notes) for session in sessions] == [3] * 5


def test_rebuild_keeps_the_notes(bus, notes, connect):
    for number in range(5):
        notes.add(f"note {number}", ["a"])
    notes.delete(notes.list().notes[0].id)
    project(bus)
    before = remembered(bus)
    bus.rebuild()
    assert remembered(bus) == before
    assert connect("another").notes("s1").list().notes == notes.list().notes
    assert bus.verify().findings == []


def test_erased_note_leaves_no_content(bus, notes):
    secret, kept = notes.add("a secret", ["private"]).note, notes.add("kept").note
    notes.update(secret.id, "still a secret")
    tombstone = bus.page("session:s1").erase(secret.id, reason="asked for")
    assert notes.list().notes == [kept]
    assert notes.tags().tags == {}
    assert notes.history(secret.id) == [tombstone]
    assert not any(b"secret" in entry[1][-1] for entry in send(bus, "XRANGE", keys_of(bus, "session:s1").log, "-", "+"))
    assert bus.verify().findings == []


def test_import_makes_equal_notes(bus, notes, connect):
    first = notes.add("x", ["a"]).note
    notes.update(first.id, tags=["b"])
    notes.delete(notes.add("gone").note.id)
    other = connect(bus=f"{bus.core.log.bus}-2")
    other.import_events([line_of(event) for event in bus.events()])
    assert other.notes("s1").list().notes == notes.list().notes
    assert other.verify().findings == []


def test_subscription_filters_notes_by_tag(bus, notes):
    first = notes.add("x", ["bug"]).note
    notes.add("y", ["else"])
    notes.update(first.id, "z")
    notes.update(first.id, tags=["else"])
    with bus.subscribe("bugs", kinds=["note_added", "note_updated"], tags=["bug"], after="0-0") as deliveries:
        seen = [next(deliveries) for _ in range(2)]
    assert [each.event.content for each in seen] == ["x", "z"]


async def test_async_notes_do_the_same(engine: Engine, bus_name: str):
    async with AsyncBus.connect(engine.url, source="tester", bus=bus_name, shards=engine.shards) as bus:
        notes = bus.notes("s1")
        note = (await notes.add("x", ["a"])).note
        assert (await notes.scratch("y")).metadata["total_notes"] == 2
        assert (await notes.search("X")).notes == (await notes.list("A")).notes == [note]
        assert (await notes.update(note.id, "z")).note.content == "z"
        assert (await notes.delete(note.id)).metadata["total_notes"] == 1
        assert (await notes.tags()).tags == {}
        assert len(await notes.history()) == 4
        assert contents(await notes.as_of(note.position)) == ["x"]
