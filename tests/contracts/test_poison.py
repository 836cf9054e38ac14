"""Entries that are not valid events are rejected; everything else goes on."""

import pytest

from scratchbus import NewObservation
from scratchbus.errors import PositionLost
from scratchbus.eventlog.ids import new_id
from scratchbus.eventlog.keys import PageKeys
from tests.contracts.test_huge_numbers import read_everything
from tests.engines import ONE
from tests.inspection import all_events, keys_of, project, raw_append, send

pytestmark = [pytest.mark.damages_the_log, pytest.mark.engines(*ONE)]

GARBAGE = {
    "no body": {"kind": "updated", "event": ""},
    "not JSON": {"kind": "updated", "event": "{{{"},
    "no schema": {"kind": "updated", "event": '{"by":"x"}'},
    "an unknown kind": {"kind": "teleported", "event": '{"v":1,"by":"x"}'},
    "a missing field": {"kind": "linked", "event": '{"v":1,"by":"x"}'},
    "an unknown field": {"kind": "linked", "event": '{"v":1,"by":"x","action":"a","colour":"red"}'},
    "a change of the wrong kind": {"kind": "updated", "event": '{"v":1,"by":"x","changes":{"confidence":"high"}}'},
    "a change of an unknown field": {"kind": "updated", "event": '{"v":1,"by":"x","changes":{"colour":"red"}}'},
    "a claim beyond the calendar": {
        "kind": "claimed",
        "event": '{"v":1,"by":"x","holder":"y","ttl":99999999999999999}',
    },
    "not UTF-8": {"kind": b"\xff", "event": b"\xff\xfe", "id": b"\xff"},
}


def rejected_ids(bus):
    """Return the stream ids of the events that could not be folded."""
    return [entry[0].decode() for entry in send(bus, "XRANGE", PageKeys(keys_of(bus), "").rejected, "-", "+")]


def test_an_entry_without_event_fields_is_skipped(bus, page):
    story = page.add("observation", "story")
    keys = keys_of(bus)
    send(bus, "XADD", keys.log, f"{story.ms}-2", "colour", "red")
    send(bus, "SET", keys.tail, f"{story.ms}-2|")
    project(bus)
    assert page.list() == [story]
    assert bus.status().shards[keys.shard].lag == 0


@pytest.mark.parametrize("is_folded", [True, False])
@pytest.mark.parametrize("fields", GARBAGE.values(), ids=GARBAGE)
def test_poison_damages_only_its_document(bus, page, fields, is_folded):
    story, other = page.add("observation", "story"), page.add("observation", "other")
    raw_append(bus, subject=story.id, **fields)
    later = page.add("observation", "later")
    if is_folded:
        project(bus)
    damaged = page.get(story.id)
    assert (damaged.damaged, damaged.version, damaged.content) == (True, 2, "story")
    assert page.list() == page.active() == [later, other, damaged]
    changed = page.update(story.id, content="changed")
    assert (changed.content, changed.damaged) == ("changed", True)
    project(bus)
    assert page.list() == [later, other, changed]


def test_poison_is_stored_with_its_reason_and_counted(bus, page):
    story = page.add("observation", "story")
    id = raw_append(bus, subject=story.id, kind="linked", event='{"v":1,"by":"x"}')
    project(bus)
    (entry,) = send(bus, "XRANGE", PageKeys(keys_of(bus), "").rejected, "-", "+")
    assert entry[0].decode() == id
    fields = dict(zip(entry[1][::2], entry[1][1::2], strict=True))
    assert fields[b"reason"] == b"action: Field required"
    assert (fields[b"subject"].decode(), fields[b"event"]) == (story.id, b'{"v":1,"by":"x"}')
    shard = bus.status().shards[bus.core.log.shard("main")]
    assert (shard.rejected, shard.lag) == (1, 0)


def test_erasing_removes_the_rejected_events_of_an_observation(bus, page):
    story, other = page.add("observation", "story"), page.add("observation", "other")
    project(bus)
    linked = [page.link(each.id, action="5 Main Street").position.stream_id for each in (story, other)]
    for each in (story, other):
        send(bus, "HSET", PageKeys(keys_of(bus), page.name).docs, each.id, "{{{")
    project(bus)
    assert rejected_ids(bus) == linked
    erased = page.erase(story.id, reason="asked for").position.stream_id
    project(bus)
    assert rejected_ids(bus) == [linked[1], erased]


def test_later_events_of_a_rejected_addition_are_rejected(bus, page):
    ghost, first = "01ARZ3NDEKTSV4RRFFQ69G5FAV", page.add("observation", "first")
    raw_append(bus, subject=ghost, kind="added", event='{"v":1,"by":"x"}')
    raw_append(bus, subject=ghost, kind="linked", event='{"v":1,"by":"x","action":"a"}')
    raw_append(bus, kind="")
    story = page.add("observation", "story")
    project(bus)
    assert page.list() == [story, first]
    assert bus.status().shards[bus.core.log.shard("main")].rejected == 3


def test_status_shows_gaps_that_were_folded_over(bus, page):
    shard = bus.core.log.shard("main")
    page.add("observation", "first")
    gone = [page.add("observation", f"gone {number}").position.stream_id for number in range(3)]
    after = page.add("observation", "after the gap")
    send(bus, "XDEL", keys_of(bus).log, *gone)
    project(bus)
    other = page.add("observation", "other").position.stream_id
    last = page.add("observation", "last")
    send(bus, "XDEL", keys_of(bus).log, other)
    project(bus)
    found = bus.status().shards[shard]
    assert found.missing == 4
    assert [(gap.before, gap.missing) for gap in found.gaps] == [(str(after.position), 3), (str(last.position), 1)]


def test_status_shows_no_gaps_in_a_complete_log(bus, page):
    page.add_many([NewObservation(type="observation", content=f"{number}") for number in range(3)])
    raw_append(bus, subject=page.list()[0].id, kind="linked", event="garbage")
    project(bus)
    assert [(shard.missing, shard.gaps) for shard in bus.status().shards] == [(0, [])] * bus.core.log.shards


def test_log_readers_skip_poison(bus, page):
    story = page.add("observation", "story")
    raw_append(bus, subject=story.id, kind="linked", event="garbage")
    page.resolve(story.id)
    assert [event.kind for event in bus.events()] == ["added", "status_changed"]
    assert [event.kind for event in page.history(story.id)] == ["added", "status_changed"]


def test_reads_and_projectors_fold_over_a_gap_and_log_it(bus, page, capfd):
    stories = [page.add("observation", f"{n}") for n in range(4)]
    keys = keys_of(bus)
    send(bus, "XDEL", keys.log, stories[1].position.stream_id)
    assert [one.content for one in page.list()] == ["3", "2", "0"]
    project(bus)
    assert [one.content for one in page.list()] == ["3", "2", "0"]
    assert len(all_events(bus)) == 3
    assert "gap in the log" in capfd.readouterr().err


def test_a_history_with_a_gap_says_trimmed_or_deleted(bus, page):
    story = page.add("observation", "story")
    gone = page.update(story.id, content="told again").position.stream_id
    page.resolve(story.id)
    send(bus, "XDEL", keys_of(bus).log, gone)
    with pytest.raises(
        PositionLost, match=f"its event {gone} is no longer in the log: it was trimmed or deleted .*backup"
    ):
        page.history(story.id)


BY_HAND = {
    "an invalid previous position": {"prev": "x-y", "kind": "linked", "event": '{"v":1,"by":"x","action":"a"}'},
    "an event id that is not UTF-8": {"id": b"\xff", "kind": "linked", "event": '{"v":1,"by":"x","action":"a"}'},
    "a subject that is not UTF-8": {"subject": b"\xff", "kind": "linked", "event": '{"v":1,"by":"x","action":"a"}'},
    "a type that is not UTF-8": {"type": b"\xff", "kind": "linked", "event": '{"v":1,"by":"x","action":"a"}'},
    "a batch of 5,000 digits": {"batch": f"1/{'9' * 5000}", "kind": "linked", "event": '{"v":1,"by":"x","action":"a"}'},
    "a batch that is not UTF-8": {"batch": b"\xff/\xff", "kind": "linked", "event": '{"v":1,"by":"x","action":"a"}'},
    "a confidence of NaN": {"kind": "updated", "event": '{"v":1,"by":"x","changes":{"confidence":NaN}}'},
    "a priority of 400 digits": {
        "kind": "added", "event": '{"v":1,"by":"x","content":"y","priority":' + "9" * 400 + "}",
    },
    "a number of 5,000 digits": {"kind": "repeated", "event": '{"v":1,"by":"x","times":' + "9" * 5000 + "}"},
    "a body of 5,000 levels": {
        "kind": "updated", "event": '{"v":1,"by":"x","changes":{"context":' + '{"a":' * 5000 + "1" + "}" * 5002,
    },
}  # fmt: skip


@pytest.mark.parametrize("fields", BY_HAND.values(), ids=BY_HAND)
def test_entries_appended_by_hand_stop_no_reader(bus, page, fields):
    story, other = page.add("observation", "story"), page.add("observation", "other")
    raw_append(bus, **{"subject": story.id} | fields)
    tail = bus.position()
    assert other.id in [each.id for each in page.as_of(other.position).list()]
    later = page.add("observation", "later")
    for _ in range(3):
        assert [later.id, other.id] == [each.id for each in read_everything(bus, page)][:2]
        assert next(bus.events(after=tail)).subject == later.id
        project(bus)
        page.link(other.id, "goal")
    bus.rebuild()
    assert [later.id, other.id] == [each.id for each in read_everything(bus, page)][:2]


@pytest.mark.parametrize("id", ["a b", "a|b", "", "x" * 5000, b"\xff", "a\nb"])
def test_a_subscription_resumes_after_an_entry_with_any_event_id(bus, page, id):
    page.add("observation", "story")
    raw_append(bus, subject="x", id=id, kind="linked", event='{"v":1,"by":"x","action":"a"}')
    with bus.subscribe("router") as deliveries:
        for _ in range(2):
            next(deliveries).ack()
    later = page.add("observation", "later")
    with bus.subscribe("router") as deliveries:
        assert next(deliveries).event.subject == later.id


@pytest.mark.parametrize("missing", ["id", "subject", "page", "kind", "type", "batch", "event"])
def test_an_entry_with_a_missing_field_stops_no_reader(bus, page, missing):
    story = page.add("observation", "story")
    keys = keys_of(bus)
    whole = {
        "id": "by-hand", "subject": story.id, "page": "main", "kind": "linked", "type": "observation", "batch": "1/1",
        "event": '{"v":1,"by":"x","action":"a"}',
    }  # fmt: skip
    del whole[missing]
    id = f"{story.ms}-{story.seq + 1}"
    send(bus, "XADD", keys.log, id, *[part for field in whole.items() for part in field])
    send(bus, "SET", keys.tail, f"{id}|{whole.get('id', '')}")
    later = page.add("observation", "later")
    assert [each.page for each in bus.pages(at=bus.position())] == ["main"]
    for _ in range(2):
        assert [each.content for each in read_everything(bus, page)] == ["later", "story"]
        project(bus)
    bus.rebuild()
    assert [each.id for each in read_everything(bus, page)] == [later.id, story.id]


@pytest.mark.parametrize("name", ["a#b", "#", "", "main#risk_alert", "x\ty"])
def test_events_with_an_invalid_page_name_stop_no_reader(bus, page, name):
    page.add("observation", "story", tags=["t"])
    for number in range(16):  # so that every shard has a log
        bus.page(f"p{number}").add("observation", "x")
    body = '{"v":2,"by":"x","content":"y","tags":["t"],"status":"active","status_class":"open","priority":5}'
    raw_append(bus, page=name, subject=new_id(), kind="added", type="observation", event=body)
    project(bus)
    assert bus.verify().findings
    bus.rebuild()
    bus.verify()
    assert len(page.list()) == 1
