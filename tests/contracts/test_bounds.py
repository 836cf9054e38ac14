"""No number that is accepted, or that the log holds, is too large for a reader."""

import json
from contextlib import suppress

import pytest

from scratchbus.domain.values import LARGEST
from scratchbus.errors import InvalidField, NotFound
from scratchbus.log.keys import PageKeys
from tests.inspection import keys_of, log_length, project, raw_append, send

HUGE = 6 * 10**4299
"""Python writes it, and refuses to read or write what two of it come to."""

GHOST = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def read_everything(bus, page):
    """Read a page in every way there is; return what it lists."""
    found = page.list(limit=None)
    assert {each.id for each in page.active()} <= {each.id for each in found}
    for each in found:
        assert page.get(each.id) == each
        with suppress(NotFound):  # an entry that was written by hand has no head
            assert page.history(each.id)
    past = page.as_of(bus.position())
    assert past.list(limit=None) == found
    with bus.view(page.name) as view:
        assert view.list(limit=None) == found
    bus.status()
    bus.verify()
    bus.context.assemble(page=page.name, budget=100_000)
    bus.context.surface("what happened", page=page.name)
    list(bus.events())
    return found


def test_two_sightings_beyond_all_measure_are_refused(bus, page):
    for _ in range(2):
        with pytest.raises(InvalidField, match=r"times: .* is not a whole number from 1 to 1000000000"):
            page.add("observation", "x", dedupe_key="k", times=HUGE)
    assert log_length(bus) == 0
    assert read_everything(bus, page) == []


@pytest.mark.damages_the_log
def test_sightings_beyond_all_measure_that_the_log_holds_are_counted_up_to_the_largest_number(bus, page):
    page.add("observation", "other")
    body = json.dumps({"v": 1, "by": "x", "content": "attack", "times": 1})
    huge = body.replace('"times": 1', '"times": 6' + "0" * 4299).replace('{"v": 1, ', '{"v":1,')
    raw_append(bus, subject=GHOST, kind="added", type="observation", event=huge)
    raw_append(
        bus, subject=GHOST, kind="repeated", type="observation", event='{"v":1,"by":"x","times":6' + "0" * 4299 + "}"
    )
    for _ in range(2):
        assert [each.occurrences for each in read_everything(bus, page)] == [LARGEST, 1]
        project(bus)
    bus.rebuild()
    assert [each.occurrences for each in read_everything(bus, page)] == [LARGEST, 1]


def test_sightings_add_up_to_the_largest_number_and_no_further(bus, page):
    page.add("observation", "x", dedupe_key="k", times=1_000_000_000)
    assert page.add("observation", "x", dedupe_key="k", times=1_000_000_000).occurrences == 2_000_000_000


def stored(bus, page, id, row):
    """Put a document in the place of the one that is stored."""
    project(bus)
    send(bus, "HSET", PageKeys(keys_of(bus), page.name).docs, id, row)


def document(bus, page, id):
    """Return a document as it is stored."""
    project(bus)
    return send(bus, "HGET", PageKeys(keys_of(bus), page.name).docs, id)


@pytest.mark.damages_the_log
def test_a_document_with_a_number_beyond_all_measure_is_read_as_damaged_and_the_page_goes_on(bus, page):
    story, other = page.add("observation", "story", tags=["t"]), page.add("observation", "other")
    row = document(bus, page, story.id).replace(b'"id"', b'"occurrences":1' + b"0" * 4300 + b',"id"', 1)
    stored(bus, page, story.id, row)
    for _ in range(2):
        newest, damaged = read_everything(bus, page)
        assert newest == other
        assert (damaged.id, damaged.content, damaged.occurrences, damaged.damaged) == (story.id, "story", LARGEST, True)
        (finding,) = [each for each in bus.verify().findings if each.kind == "document"]
        assert "cannot be read" in finding.what
    after = page.update(story.id, content="changed")
    project(bus)
    assert page.list() == [other, after]
    assert (after.content, after.damaged) == ("changed", True)
    assert sum(shard.rejected for shard in bus.status().shards) == 1
    bus.rebuild()
    assert [(each.content, each.occurrences, each.damaged) for each in read_everything(bus, page)] == [
        ("other", 1, False), ("changed", 1, False),
    ]  # fmt: skip


UNREADABLE = [b"", b"{", b"[]", b"\xff\xfe", b"null", b"{}", b'{"id":5}', b"[" * 100_000]


@pytest.mark.damages_the_log
@pytest.mark.parametrize("row", UNREADABLE, ids=repr)
def test_a_document_of_which_nothing_can_be_read_is_left_out_until_a_rebuild(bus, page, row):
    story, other = page.add("observation", "story"), page.add("observation", "other", dedupe_key="k")
    stored(bus, page, story.id, row)
    assert read_everything(bus, page) == [other]
    assert page.get(story.id) is None
    assert any(each.kind == "document" for each in bus.verify().findings)
    page.add("observation", "new")
    bus.rebuild()
    assert [each.content for each in read_everything(bus, page)] == ["new", "other", "story"]
    assert bus.verify().is_sound


@pytest.mark.damages_the_log
@pytest.mark.parametrize("row", [*UNREADABLE, b'{"version":1' + b"0" * 5000 + b"}"], ids=lambda row: repr(row[:20]))
def test_a_memory_that_cannot_be_read_keeps_nobody_from_the_others(bus, row):
    notes, notepad, todo = bus.notes("s"), bus.notepad("s"), bus.todo("s")
    first, last = notes.add("first").note, notes.add("last").note
    notepad.write("text")
    todo.write([{"id": "1", "content": "do it"}])
    project(bus)
    keys = keys_of(bus, "session:s")
    for subject in (first.id, "notepad"):
        send(bus, "HSET", PageKeys(keys, "session:s").memory, subject, row)
    bus.notes("s")
    assert [each.content for each in bus.notes("s").as_of(bus.position()).notes] == ["last", "first"]
    assert todo.read().todos[0].content == "do it"
    assert notepad.read() == ""
    notepad.write("text again")
    bus.context.assemble(session="s")
    bus.rebuild()
    assert notepad.read() == "text again"
    assert [each.id for each in notes.list().notes] == [last.id, first.id]
