"""No number that is accepted or in the log is too large for a reader."""

import json
from contextlib import suppress
from datetime import UTC, timedelta, timezone

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scratchbus import NewObservation, Observation
from scratchbus.archive.export import line_of
from scratchbus.domain.values import MAX_SAFE_INTEGER
from scratchbus.errors import InvalidField, NotFound, ScratchbusError
from scratchbus.eventlog.keys import PageKeys
from tests.engines import ONE
from tests.inspection import keys_of, log_length, project, raw_append, send

pytestmark = pytest.mark.engines(*ONE)

HUGE = 6 * 10**4299
"""Python can print this number, but not its double."""

GHOST = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def read_everything(bus, page):
    """Read a page through every reader; return its observations."""
    found = page.list(limit=None)
    assert {each.id for each in page.active()} <= {each.id for each in found}
    for each in found:
        assert page.get(each.id) == each
        with suppress(NotFound):  # an entry added by hand has no head
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


def test_huge_times_are_refused(bus, page):
    for _ in range(2):
        with pytest.raises(InvalidField, match=r"times: .* is not a whole number from 1 to 1000000000"):
            page.add("observation", "x", dedupe_key="k", times=HUGE)
    assert log_length(bus) == 0
    assert read_everything(bus, page) == []


@pytest.mark.damages_the_log
def test_huge_times_in_the_log_count_as_the_largest_safe_integer(bus, page):
    page.add("observation", "other")
    body = json.dumps({"v": 1, "by": "x", "content": "attack", "times": 1})
    huge = body.replace('"times": 1', '"times": 6' + "0" * 4299).replace('{"v": 1, ', '{"v":1,')
    raw_append(bus, subject=GHOST, kind="added", type="observation", event=huge)
    raw_append(
        bus, subject=GHOST, kind="repeated", type="observation", event='{"v":1,"by":"x","times":6' + "0" * 4299 + "}"
    )
    for _ in range(2):
        assert [each.occurrences for each in read_everything(bus, page)] == [MAX_SAFE_INTEGER, 1]
        project(bus)
    bus.rebuild()
    assert [each.occurrences for each in read_everything(bus, page)] == [MAX_SAFE_INTEGER, 1]


def test_largest_times_add_up(bus, page):
    page.add("observation", "x", dedupe_key="k", times=1_000_000_000)
    with pytest.raises(InvalidField, match="times: 1000000001 is not a whole number from 1 to 1000000000"):
        page.add("observation", "x", dedupe_key="k", times=1_000_000_001)
    assert page.add("observation", "x", dedupe_key="k", times=1_000_000_000).occurrences == 2_000_000_000
    assert [each.occurrences for each in read_everything(bus, page)] == [2_000_000_000]


def replace_document(bus, page, id, row):
    """Replace a stored document."""
    project(bus)
    send(bus, "HSET", PageKeys(keys_of(bus), page.name).docs, id, row)


def document(bus, page, id):
    """Return a stored document."""
    project(bus)
    return send(bus, "HGET", PageKeys(keys_of(bus), page.name).docs, id)


@pytest.mark.damages_the_log
def test_document_with_a_huge_number_reads_as_damaged(bus, page):
    observation, other = page.add("observation", "story", tags=["t"]), page.add("observation", "other")
    row = document(bus, page, observation.id).removesuffix(b"]")
    start = row.removesuffix(b"}") + b"," if row.endswith(b"}") else row + b",{"  # the start of its details
    row = start + b'"occurrences":1' + b"0" * 4300 + b"}]"
    replace_document(bus, page, observation.id, row)
    for _ in range(2):
        newest, damaged = read_everything(bus, page)
        assert newest == other
        assert (damaged.id, damaged.content, damaged.occurrences, damaged.damaged) == (
            observation.id,
            "story",
            MAX_SAFE_INTEGER,
            True,
        )
        (finding,) = [each for each in bus.verify().findings if each.kind == "document"]
        assert "cannot be read" in finding.what
    after = page.update(observation.id, content="changed")
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
def test_unreadable_document_is_left_out_until_a_rebuild(bus, page, row):
    observation, other = page.add("observation", "story"), page.add("observation", "other", dedupe_key="k")
    replace_document(bus, page, observation.id, row)
    assert read_everything(bus, page) == [other]
    assert page.get(observation.id) is None
    assert any(each.kind == "document" for each in bus.verify().findings)
    page.add("observation", "new")
    bus.rebuild()
    assert [each.content for each in read_everything(bus, page)] == ["new", "other", "story"]
    assert bus.verify().is_sound


@pytest.mark.damages_the_log
@pytest.mark.parametrize("row", [*UNREADABLE, b'{"version":1' + b"0" * 5000 + b"}"], ids=lambda row: repr(row[:20]))
def test_unreadable_memory_leaves_the_others_readable(bus, row):
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


texts = st.text(max_size=60)
numbers = st.one_of(
    st.integers(), st.sampled_from([0, 1, -1, 2**31, 2**53 - 1, 2**53, 2**63, 2**64, 10**308, 10**400, HUGE]),
    st.floats(), st.booleans(),
)  # fmt: skip
# A duration below a minute could end between two reads that the test compares.
durations = st.one_of(numbers.filter(lambda seconds: not 0 < seconds < 60), texts)
values = st.recursive(
    st.one_of(st.none(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
objects = st.dictionaries(texts, values, max_size=3)
moments = st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=14)), None]))
fields = st.fixed_dictionaries(
    {"content": texts},
    optional={
        "owner": texts, "confidence": numbers, "context": objects, "metadata": objects, "expires_at": moments,
        "tags": st.lists(texts, max_size=3),
    },
)  # fmt: skip
additions = st.tuples(
    fields,
    st.fixed_dictionaries(
        {},
        optional={
            "dedupe_key": st.sampled_from(["k", "|", "\0"]), "times": numbers, "ttl": durations,
            "remind_at": moments, "fence": numbers, "event_id": texts,
        },
    ),
).map(lambda both: ("add", both[0] | both[1]))  # fmt: skip
steps = st.one_of(
    additions,
    st.lists(additions, max_size=3).map(lambda many: ("add_many", [given for _, given in many])),
    st.tuples(st.just("update"), st.tuples(fields, st.fixed_dictionaries({}, optional={"expected_version": numbers}))),
    st.tuples(st.sampled_from(["resolve", "reopen", "archive", "note", "notepad", "todo", "link", "refute"]), texts),
    st.tuples(st.just("claim"), durations),
)


def take(bus, page, what, given):
    """Run one step; it may raise a ScratchbusError."""
    some = page.list(limit=1)
    id = some[0].id if some else GHOST
    match what:
        case "add":
            page.add("observation", **given)
        case "add_many":
            page.add_many([NewObservation(type="observation", **each) for each in given])
        case "update":
            page.update(id, **given[0], **given[1])
        case "claim":
            page.claim(id, ttl=given)
        case "note":
            bus.notes("s").add(given)
        case "notepad":
            bus.notepad("s").append(given)
        case "todo":
            bus.todo("s").write([{"id": given, "content": given}], merge=True)
        case "link":
            page.link(id, given)
        case _:
            getattr(page, what)(id, reason=given)


@pytest.mark.slow
@given(st.lists(steps, min_size=1, max_size=6))
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_every_accepted_value_reads_back_through_every_reader(new_bus, plan):
    with new_bus() as bus:
        page = bus.page()
        for what, given in plan:
            with suppress(ScratchbusError):
                take(bus, page, what, given)
        found = read_everything(bus, page)
        memories = bus.notes("s").list(), bus.notepad("s").read(), bus.todo("s").read()
        project(bus)
        assert read_everything(bus, page) == found
        bus.rebuild()
        assert read_everything(bus, page) == found
        assert (bus.notes("s").list(), bus.notepad("s").read(), bus.todo("s").read()) == memories
        assert bus.verify().is_sound
        for each in found:
            assert Observation.model_validate_json(each.model_dump_json()).model_dump() == each.model_dump()
        lines = [line_of(event) for event in bus.events()]
        with new_bus() as copy:
            assert copy.import_events(lines) == len(lines)
            assert copy.page().list(limit=None) == found
