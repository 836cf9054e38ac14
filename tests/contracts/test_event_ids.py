"""Event ids: each belongs to its writer, and the id in an error finds the write again."""

import inspect
from datetime import UTC, datetime

import pytest

from scratchbus import AsyncJob, AsyncPage, ItemChange, Job, NewObservation, Page
from scratchbus.commands import add, change
from scratchbus.domain import time_checks
from scratchbus.domain.digest import digest_of
from scratchbus.domain.observation_models import GUARDS
from scratchbus.engine.steps import Call, ask
from scratchbus.errors import (
    EngineError,
    EngineUnreachable,
    EventIdReused,
    InvalidField,
    InvalidId,
    InvalidTTL,
    NotReplicated,
)
from tests.engines import ALL
from tests.faults.interposing import interposed, losing_replies
from tests.inspection import log_length

pytestmark = pytest.mark.engines(*ALL, slow=("memory",))

READS = {
    "get", "list", "count", "counts", "active", "displaced", "trace", "consequences", "evidence", "exposure", "history",
    "as_of", "whole_id", "log_read", "ready",
}  # fmt: skip
READ_OF_A_JOB = {"moving", "updating", "linking", "releasing", "failing", "giving_up", "settling", "is_due", "keep"}


def test_two_sources_can_use_the_same_event_id(connect):
    first = connect("one").page().add("observation", "mine", event_id="EV-1")
    second = connect("two").page().add("observation", "mine too", event_id="EV-1")
    assert first.id != second.id
    assert connect("one").page().add("observation", "mine", event_id="EV-1") == first
    assert connect("two").page().add("observation", "mine too", event_id="EV-1") == second


def test_lost_reply_is_not_answered_with_another_sources_event(connect):
    mine, other = connect("one"), connect("two")
    mine.page().add("observation", "before")
    sent: list[Call] = []

    def around(call, send):
        if not call.is_write or sent:
            return send()
        sent.append(call)
        other.page().add("observation", "theirs", event_id="EV-1")
        return losing_replies()(call, send)

    with interposed(mine, around):
        assert mine.page().add("observation", "mine", event_id="EV-1").content == "mine"
    assert log_length(mine) == 3


def test_retry_may_name_the_source_in_either_place(connect):
    first = connect(None).page().add("observation", "x", source="one", event_id="EV-1")
    assert connect("one").page().add("observation", "x", event_id="EV-1") == first
    assert connect("one").page().add("observation", "x", source="one", event_id="EV-1") == first
    with pytest.raises(EventIdReused):
        connect("one").page().add("observation", "x", source="two", event_id="EV-1")


@pytest.mark.parametrize("defaults", [{}, {"evidence": [], "blocked_by": []}], ids=["a program", "the command line"])
@pytest.mark.parametrize("source", [None, "one"])
def test_event_id_stored_with_an_older_digest_is_still_known(connect, monkeypatch, defaults, source):
    def old(page, arguments, by, batch_size):
        given = {name: value for name, value in arguments.items() if name not in GUARDS}
        return digest_of("add", page, defaults | given, by, batch_size)

    page = connect(source).page()
    given = {"type": "observation", "source": None if source else "one"}
    items = [NewObservation(**given, content=each) for each in "ab"]
    with monkeypatch.context() as patch:
        patch.setattr(add, "digest_of_addition", old)
        first = page.add(**given, content="x", event_id="EV-1")
        batch = page.add_many(items, event_id="EV-2")
    assert page.add(**given, content="x", event_id="EV-1") == first
    assert page.add_many(items, event_id="EV-2") == batch
    with pytest.raises(EventIdReused):
        page.add(**given, content="y", event_id="EV-1")


def forget_writer(bus, event_id, by):
    """Store an event id as older versions did: without its writer."""
    keys = bus.core.log.keys(bus.core.log.shard("main"))
    for key in bus.converse(ask(keys.shard, "KEYS", f"{keys.ids}2*")):
        row = bus.converse(ask(keys.shard, "HGET", key, f'{event_id} "{by}"'))
        bus.converse(ask(keys.shard, "HDEL", key, f'{event_id} "{by}"'))
        bus.converse(ask(keys.shard, "HSET", key, event_id, row))


def test_event_id_stored_without_its_writer_is_still_known(connect):
    bus = connect("one")
    first = bus.page().add("observation", "mine", event_id="EV-1")
    forget_writer(bus, "EV-1", "one")
    assert bus.page().add("observation", "mine", event_id="EV-1") == first
    with pytest.raises(EventIdReused):
        bus.page().add("observation", "something else", event_id="EV-1")
    assert bus.verify().is_sound


def test_event_id_stored_without_its_writer_blocks_no_other_source(connect):
    bus = connect("one")
    bus.page().add("observation", "mine", event_id="EV-1")
    forget_writer(bus, "EV-1", "one")
    assert connect("two").page().add("observation", "mine too", event_id="EV-1").content == "mine too"


def failed(bus, act):
    """Return the error of a write whose reply stays lost for longer than its patience."""
    bus.core.log.patience = -1
    with interposed(bus, losing_replies()), pytest.raises(EngineUnreachable) as lost:
        act(bus.page())
    return lost.value


def test_event_id_in_the_error_works_on_another_connection(connect):
    lost = failed(connect("one"), lambda page: page.add("observation", "once"))
    (event,) = connect("one").events()
    assert lost.event_id == event.id
    assert lost.position is None
    assert f"retry it with event_id={event.id!r}" in str(lost)
    assert connect("one").page().add("observation", "once", event_id=lost.event_id).position == event.position
    assert log_length(connect("one")) == 1


def test_batch_is_retried_with_the_event_id_in_the_error(connect):
    batch = [NewObservation(type="observation", content=text) for text in "abc"]
    lost = failed(connect("one"), lambda page: page.add_many(batch))
    again = connect("one").page().add_many(batch, event_id=lost.event_id)
    assert [each.content for each in again] == ["a", "b", "c"]
    assert log_length(connect("one")) == 3


def test_duplicate_event_ids_in_a_batch_are_refused(bus, page):
    batch = [NewObservation(type="observation", content=text, event_id="same") for text in "ab"]
    with pytest.raises(InvalidField, match="event_id"):
        page.add_many(batch)
    assert log_length(bus) == 0


@pytest.mark.parametrize("size", [2, 4])
def test_retry_with_another_batch_size_is_refused(connect, size):
    batch = [NewObservation(type="observation", content=text) for text in "abcd"]
    lost = failed(connect("one"), lambda page: page.add_many(batch[:3]))
    with pytest.raises(EventIdReused):
        connect("one").page().add_many(batch[:size], event_id=lost.event_id)


def test_event_id_in_the_error_is_refused_for_another_write(connect):
    lost = failed(connect("one"), lambda page: page.add("observation", "once"))
    page = connect("one").page()
    with pytest.raises(EventIdReused):
        page.add("observation", "something else", event_id=lost.event_id)
    with pytest.raises(EventIdReused):
        page.resolve(page.list()[0].id, event_id=lost.event_id)
    assert log_length(connect("one")) == 1


def test_late_request_after_a_retry_is_not_written_again(connect):
    bus = connect("one")
    bus.core.log.patience = -1
    kept: list[Call] = []

    def around(call, send):
        if call.is_write and not kept:
            kept.append(call)
            raise EngineUnreachable("the network is down")
        return send()

    with interposed(bus, around), pytest.raises(EngineUnreachable) as lost:
        bus.page().add("observation", "once")
    first = connect("one").page().add("observation", "once", event_id=lost.value.event_id)
    bus.converse(sent_late(kept[0]))
    assert connect("one").page().add("observation", "once", event_id=lost.value.event_id) == first
    assert log_length(bus) == 1


def sent_late(call: Call):
    return (yield call)


def fail_after_one_write():
    """Return an interposer that lets one write through and fails every later call."""
    is_written: list[bool] = []

    def around(call, send):
        if is_written:
            raise EngineUnreachable("the network is down")
        replies = send()
        if call.is_write:
            is_written.append(True)
        return replies

    return around


@pytest.mark.parametrize(
    "write",
    [
        lambda bus, **more: bus.notes("s").add("a", **more),
        lambda bus, **more: bus.spawn_session("parent", **more),
        lambda bus, **more: bus.fork_session("parent", **more),
    ],
    ids=["a note", "a session", "a fork"],
)
def test_error_after_a_write_names_its_position(connect, write):
    bus = connect("one")
    with (
        interposed(bus, fail_after_one_write()),
        pytest.raises(EngineUnreachable, match="the write is in the log") as lost,
    ):
        write(bus)
    (event,) = connect("one").events()
    assert (lost.value.event_id, lost.value.position) == (event.id, event.position)
    first = write(connect("one"), event_id=event.id)
    length = log_length(bus)
    assert write(connect("one"), event_id=event.id) == first
    assert log_length(bus) == length


def test_error_after_a_claim_names_its_position_and_fence(connect):
    bus = connect("one")
    bus.page().add("observation", "to be done")
    with (
        interposed(bus, fail_after_one_write()),
        pytest.raises(EngineUnreachable, match="the write is in the log") as lost,
    ):
        bus.page().claim_next()
    *_, event = connect("one").events()
    assert (lost.value.event_id, lost.value.position, lost.value.fence) == (event.id, event.position, 1)
    job = connect("one").page().claim_next(event_id=lost.value.event_id)
    assert job.fence == 1


def test_unknown_reply_is_reported(connect):
    bus = connect("one")

    def around(call, send):
        return [[b"surprise", 1]] if call.is_write else send()

    with interposed(bus, around), pytest.raises(EngineError, match=r"answered .*surprise"):
        bus.page().add("observation", "x")


def test_not_replicated_names_the_event_id():
    assert "event_id='e1'" in str(NotReplicated(0, 1, "e1"))


@pytest.mark.parametrize("facade", [Page, AsyncPage])
def test_every_write_of_a_page_takes_an_event_id(facade):
    writes = {name for name in vars(facade) if not name.startswith("_")} - READS
    assert not [name for name in writes if "event_id" not in inspect.signature(getattr(facade, name)).parameters]


@pytest.mark.parametrize("facade", [Job, AsyncJob])
def test_every_write_of_a_job_takes_an_event_id(facade):
    writes = {name for name in vars(facade) if not name.startswith("_")} - READ_OF_A_JOB
    assert not [name for name in writes if "event_id" not in inspect.signature(getattr(facade, name)).parameters]


@pytest.mark.parametrize("count", [3, 1_001])
def test_retried_write_of_items_changes_nothing(bus, count):
    items, namespace = bus.items("shop"), ("prices",)
    changes = [ItemChange(namespace, f"{n}", {"cents": n}) for n in range(count)]
    assert items.write(changes, event_id="EV-1") == count
    items.put(namespace, "0", {"cents": 99}, ttl=3_600_000, event_id="EV-2")
    items.delete(namespace, "1", event_id="EV-3")
    end = bus.position()
    assert items.write(changes, event_id="EV-1") == count
    items.put(namespace, "0", {"cents": 99}, ttl=3_600_000, event_id="EV-2")
    items.delete(namespace, "1", event_id="EV-3")
    assert bus.position() == end
    with pytest.raises(EventIdReused):
        items.put(namespace, "0", {"cents": 98}, ttl=3_600_000, event_id="EV-2")
    items.put(namespace, "0", {"cents": 99}, ttl="1h", event_id="EV-2")
    with pytest.raises(EventIdReused):
        items.write(changes[:2], event_id="EV-1")
    with pytest.raises(InvalidId):
        items.delete(namespace, "2", event_id="")
    stored = items.read()
    assert bus.position() == end
    assert [stored.get(namespace, key) and stored.get(namespace, key).value for key in "012"] == [
        {"cents": 99}, None, {"cents": 2},
    ]  # fmt: skip


@pytest.mark.parametrize("field", ["expires_at", "remind_at", "not_before"])
def test_retry_can_repeat_a_relative_time(page, monkeypatch, field):
    given = {"type": "observation", "content": "x", field: "2h"}
    first = page.add(**given, event_id="EV-1")
    many = page.add_many([NewObservation(**given)], event_id="EV-2")
    monkeypatch.setattr(time_checks, "read_moment", lambda *_, **__: datetime(2030, 1, 1, tzinfo=UTC))  # a later time
    assert page.add(**given, event_id="EV-1") == first
    assert page.add_many([NewObservation(**given)], event_id="EV-2") == many
    assert type(getattr(page.add("observation", "y", **{field: "2h"}), field)) is datetime
    for other in ("3h", getattr(first, field)):
        with pytest.raises(EventIdReused):
            page.add(**(given | {field: other}), event_id="EV-1")


@pytest.mark.parametrize("field", ["expires_at", "remind_at", "not_before"])
def test_an_updated_time_is_a_plain_one_to_use_again(page, field):
    updated = getattr(page.update(page.add("observation", "x").id, **{field: "2h"}), field)
    assert type(updated) is datetime
    assert getattr(page.add("observation", "y", **{field: updated}, event_id="EV-1"), field) == updated


def test_retry_of_an_update_or_a_fact_can_repeat_a_relative_time(bus, page, monkeypatch):
    kept, facts = page.add("observation", "x"), bus.facts("world")
    changed = page.update(kept.id, expires_at="2h", event_id="EV-1")
    fact = facts.assert_fact("Ada", "knows", "Bob", valid_at="10m ago", event_id="EV-2")
    monkeypatch.setattr(time_checks, "read_moment", lambda *_, **__: datetime(2030, 1, 1, tzinfo=UTC))
    assert page.update(kept.id, expires_at="2h", event_id="EV-1") == changed
    assert facts.assert_fact("Ada", "knows", "Bob", valid_at="10m ago", event_id="EV-2") == fact
    assert log_length(bus) == 3


def _refuse_time(end, now):
    raise InvalidTTL(f"expires_at: {end.isoformat()} is in the past")


def test_retry_is_recognised_after_its_observation_has_expired(page, monkeypatch):
    end = datetime(2090, 1, 1, tzinfo=UTC)
    items = [NewObservation(type="observation", content=each, expires_at=end) for each in "ab"]
    first = page.add("observation", "x", expires_at=end, event_id="EV-1")
    batch = page.add_many(items, event_id="EV-2")
    changed = page.update(first.id, expires_at=end, content="y", status="pending_review", event_id="EV-3")
    for module in add, change:
        monkeypatch.setattr(module, "check_end", _refuse_time)
    assert page.add("observation", "x", expires_at=end, event_id="EV-1") == first
    assert page.add_many(items, event_id="EV-2") == batch
    retried = page.update(first.id, expires_at=end, content="y", status="pending_review", event_id="EV-3")
    assert retried == changed
    for event_id in ("EV-1", "EV-4"):
        with pytest.raises(InvalidTTL):
            page.add("observation", "z", expires_at=end, event_id=event_id)
        with pytest.raises(InvalidTTL):
            page.update(first.id, expires_at=end, content="z", event_id=event_id)
    with pytest.raises(InvalidTTL, match=r"item 1 of 2: .*; nothing was written"):
        page.add_many(items, event_id="EV-5")


def test_retry_with_a_generated_id_is_recognised_after_its_observation_has_expired(page, monkeypatch):
    end = datetime(2090, 1, 1, tzinfo=UTC)
    items = [NewObservation(type="observation", content=each, expires_at=end) for each in "ab"]
    page.add("observation", "w")
    first, batch = page.add("observation", "x", expires_at=end), page.add_many(items)
    one, many = page.history(first.id)[0].id, page.history(batch[0].id)[0].id
    has_passed = datetime.now(UTC)
    monkeypatch.setattr(add, "check_end", lambda end, now: _refuse_time(end, now) if now > has_passed else end)
    assert page.add("observation", "x", expires_at=end, event_id=one) == first
    assert page.add_many(items, event_id=many) == batch
    for other in ({"content": "y"}, {"content": "x", "dedupe_key": "k"}, {"content": "x", "tags": ["t"]}):
        with pytest.raises(EventIdReused):
            page.add("observation", expires_at=end, event_id=one, **other)
    with pytest.raises(EventIdReused):
        page.add_many(items[:1], event_id=many)
    with pytest.raises(InvalidTTL):
        page.add("observation", "x", expires_at=end, event_id=f"0{one}")
    with pytest.raises(InvalidTTL):
        page.add("observation", "x", expires_at=end)


def test_retry_of_an_update_with_a_generated_id_is_recognised_after_the_end(page, monkeypatch):
    end = datetime(2090, 1, 1, tzinfo=UTC)
    kept, blocker = page.add("observation", "x"), page.add("observation", "blocks")
    given = {"expires_at": end, "content": "y", "remind_at": datetime(2089, 1, 1, tzinfo=UTC)}
    first = page.update(kept.id, **given)
    reviewed = page.update(kept.id, expires_at=end, status="pending_review", blocked_by=[blocker.id])
    one, two = (event.id for event in page.history(kept.id)[1:3])
    page.update(kept.id, content="z")
    has_passed = datetime.now(UTC)
    monkeypatch.setattr(change, "check_end", lambda end, now: _refuse_time(end, now) if now > has_passed else end)
    assert page.update(kept.id, event_id=one, **given) == first
    again = {"expires_at": end, "status": "pending_review", "blocked_by": [blocker.id]}
    assert page.update(kept.id, event_id=two, **again) == reviewed
    for event_id, other in ((one, given | {"content": "z"}), (two, given), (one, again)):
        with pytest.raises(EventIdReused):
            page.update(kept.id, event_id=event_id, **other)
    with pytest.raises(EventIdReused):
        page.update(blocker.id, event_id=one, **given)
    for event_id in (f"0{one}", None):
        with pytest.raises(InvalidTTL):
            page.update(kept.id, event_id=event_id, **given)


def test_retry_of_a_reminder_is_recognised_after_a_change_of_its_schedule(page):
    kept = page.add("observation", "x")
    reminded = page.update(kept.id, remind_at="2090-01-01", event_id="EV-1")
    page.update(kept.id, not_before="2090-02-01")
    assert page.update(kept.id, remind_at="2090-01-01", event_id="EV-1") == reminded
    with pytest.raises(InvalidField, match="is scheduled"):
        page.update(kept.id, remind_at="2090-01-01", event_id="EV-2")
