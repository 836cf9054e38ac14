"""`erase` removes every trace of an observation, leaves a tombstone and changes nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest

from scratchbus import AsyncBus, Bus, NewObservation, Page, because
from scratchbus.archive.archive_check import verify
from scratchbus.archive.stores import DirectoryStore, open_store
from scratchbus.commands import erase
from scratchbus.domain.events import Added, Updated
from scratchbus.domain.position import Position
from scratchbus.engine.steps import Fetch, Pause, Step, ask
from scratchbus.errors import (
    ArchiveBusy,
    ArchiveDamaged,
    EventIdReused,
    InvalidField,
    InvalidId,
    LogGap,
    NotFound,
    PositionLost,
    RebuildHeld,
)
from scratchbus.eventlog.append import append
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import read_checkpoint
from scratchbus.eventlog.compression import zstd
from scratchbus.eventlog.gaps import count_all_erased
from scratchbus.eventlog.keys import PageKeys, ShardKeys
from scratchbus.eventlog.raw_entries import entry_fields
from scratchbus.eventlog.stored_documents import encode_document
from scratchbus.eventlog.trim import Archiving
from scratchbus.eventlog.writes import Op, Write
from scratchbus.readmodel import rebuild_lease as leases
from scratchbus.readmodel import snapshots
from scratchbus.readmodel.catch_up import catch_up, fold_once
from scratchbus.readmodel.queries import read_head
from scratchbus.readmodel.rebuild import rebuild
from scratchbus.readmodel.scope import Core
from scratchbus.subscriptions import settlement
from tests.clock import Clock
from tests.contracts.test_export import export
from tests.contracts.test_verify import live
from tests.engines import ONE, Engine
from tests.halted import Halted
from tests.inspection import archive, await_tick, documents, entries, heads, keys_of, outdate, project, send
from tests.past_pages import only, stored_snapshots
from tests.waiting import PATIENCE, eventually

SECRET = "s3cr3t-content"


def add_secret(page: Page) -> str:
    """Add an observation with the secret in every field and event, among others; return its id."""
    before = page.add("observation", "before")
    id = page.add_many(
        [
            NewObservation(type="observation", content="first of a batch"),
            NewObservation(
                type="risk_alert", content=SECRET, tags=[SECRET], owner=SECRET, dedupe_key=SECRET,
                context={"a": SECRET}, metadata={"b": SECRET}, evidence=[before.id], ttl="1h",
            ),
            NewObservation(type="observation", content="last of a batch"),
        ]
    )[1].id  # fmt: skip
    page.update(id, content=f"{SECRET} again", tags=[SECRET, "t"])
    page.add("risk_alert", SECRET, dedupe_key=SECRET, times=2)
    with because(page.history(id)[0]):
        page.link(id, SECRET)
    page.claim(id, by=SECRET)
    page.add("observation", "rests on it", evidence=[id])
    return id


def keys_with(bus: Bus, word: str) -> list[str]:
    """Return the engine's keys with this word in their name or value."""
    found = []
    for key in (key.decode() for key in send(bus, "KEYS", f"{{{bus.core.log.bus}:*")):
        kind = send(bus, "TYPE", key).decode()
        command = {
            "hash": ("HGETALL", key),
            "zset": ("ZRANGE", key, 0, -1),
            "set": ("SMEMBERS", key),
            "stream": ("XRANGE", key, "-", "+"),
            "string": ("GET", key),
        }[kind]
        if word in key or word in repr(send(bus, *command)):
            found.append(key)
    return found


@pytest.mark.parametrize("prepare", [project, Bus.rebuild])
def test_erase_leaves_only_a_tombstone(bus: Bus, page: Page, prepare: Callable[[Bus], object]) -> None:
    id = add_secret(page)
    prepare(bus)
    events = page.history(id)
    assert keys_with(bus, SECRET)
    tombstone = page.erase(id, reason="asked for by the customer")
    assert keys_with(bus, SECRET) == []
    assert page.history(id) == [tombstone]
    assert (tombstone.kind, tombstone.by, tombstone.subject) == ("erased", "tester", id)
    assert tombstone.reason == "asked for by the customer"
    assert tombstone.positions == [event.position.stream_id for event in events]
    assert page.get(id) is None
    assert id not in [one.id for one in page.list(limit=None)]
    assert id not in [one.id for one in page.active()]


@pytest.mark.parametrize("is_folded", [True, False])
def test_erase_clears_the_caches_of_its_process(bus: Bus, page: Page, is_folded: bool) -> None:
    id = add_secret(page)
    if is_folded:
        project(bus)
    keys = keys_of(bus)
    for _ in range(3):
        page.active()
    assert SECRET in str(kept := keys.cached_reads if is_folded else keys.cached_folds)
    page.erase(id, reason="asked for")
    assert SECRET not in str(kept)


def test_verify_and_rebuild_count_no_erased_events(bus: Bus, page: Page) -> None:
    page.erase(add_secret(page), reason="asked for")
    left = len(list(bus.events()))
    assert left < sum(end.seq for end in bus.position().shards)
    assert (bus.verify().events, bus.rebuild().events) == (left, left)


@pytest.mark.parametrize("is_folded", [True, False])
def test_erase_changes_nothing_else(bus: Bus, page: Page, is_folded: bool) -> None:
    live(bus)
    id = add_secret(page)
    if is_folded:
        project(bus)
    before = {key: one for key, one in _all(bus).items() if key[1] != id}
    logged = {entry[0] for shard in range(bus.core.log.shards) for entry in entries(bus, shard)}
    tombstone = page.erase(id, reason="asked for")
    assert _all(bus) == before
    left = {entry[0] for shard in range(bus.core.log.shards) for entry in entries(bus, shard)}
    assert logged - left == {position.encode() for position in tombstone.positions}
    assert left - logged == {tombstone.position.stream_id.encode()}
    assert bus.verify().findings == []
    bus.rebuild()
    assert _all(bus) == before
    assert bus.verify().findings == []
    assert bus.status().shards[bus.core.log.shard("main")].gaps == []


def _all(bus: Bus) -> dict[tuple[str, str], object]:
    project(bus)
    return dict(documents(bus))


@pytest.mark.damages_the_log
def test_gap_without_an_erasure_is_still_reported(bus: Bus, page: Page) -> None:
    id = add_secret(page)
    page.erase(id, reason="asked for")
    lost = page.history(page.list(text="last of a batch")[0].id)[0]
    send(bus, "XDEL", keys_of(bus).log, lost.position.stream_id)
    page.add("observation", "later")
    with pytest.raises(LogGap, match="the log has lost events 3 to 8"):
        list(bus.events())
    gaps = [finding.what for finding in bus.verify().findings if finding.kind == "gap"]
    assert any(said.startswith("1 event is missing before it, behind ") for said in gaps), gaps


def test_readers_skip_erased_events(bus: Bus, page: Page, connect: Callable[..., Bus]) -> None:
    id = add_secret(page)
    project(bus)
    everything = [event for event in bus.events() if event.subject != id]
    erased_position = list(bus.events())[-3].position
    gone = page.history(id)[1].position
    with bus.view() as view, bus.subscribe("old") as deliveries:
        next(deliveries).ack()
        tombstone = page.erase(id, reason="asked for")
        view.wait_for(tombstone.position)
        assert view.get(id) is None
        assert view.list(limit=None) == page.list(limit=None)
        kinds = []
        for delivery in deliveries:
            kinds.append(delivery.event.subject)
            delivery.ack()
            if delivery.event.kind == "erased":
                break
        assert kinds[-1] == id
    rest = [event.id for event in bus.events()]
    assert rest == [event.id for event in everything] + [tombstone.id]
    assert [event.id for event in bus.events(pages=["main"])] == rest
    for position in (gone, erased_position):
        after = [event.id for event in bus.events(position)]
        assert after == [event.id for event in [*everything, tombstone] if event.position > position]
    with connect().view() as fresh:
        assert fresh.list(limit=None) == page.list(limit=None)
    with bus.subscribe("new") as deliveries:
        assert next(deliveries).event.id == everything[0].id


def test_paused_reader_continues_after_an_erasure(bus: Bus, page: Page) -> None:
    id = add_secret(page)
    events, indexed = bus.events(), bus.events(pages=["main"])
    first = [next(events), next(indexed)]
    tombstone = page.erase(id, reason="asked for")
    assert [event.id for event in events][-1] == tombstone.id
    assert [event.id for event in indexed][-1] == tombstone.id
    assert first[0] == first[1]


def test_fold_from_the_start_sees_no_gap(bus: Bus, page: Page) -> None:
    id = add_secret(page)
    page.erase(id, reason="asked for")
    send(bus, "DEL", keys_of(bus).live)
    for key in send(bus, "KEYS", f"{keys_of(bus).tag}p1:*"):
        send(bus, "DEL", key)
    page.add("observation", "later")
    assert [one.content for one in page.list(limit=2)] == ["later", "rests on it"]
    assert bus.verify().findings == []


def test_erased_observation_accepts_no_writes(bus: Bus, page: Page) -> None:
    id = add_secret(page)
    page.erase(id, reason="asked for")
    for write in (page.resolve, page.archive, page.claim, page.reopen):
        with pytest.raises(NotFound):
            write(id)
    with pytest.raises(NotFound):
        page.update(id, content="back")
    assert page.add("risk_alert", "another", dedupe_key=SECRET[::-1]).occurrences == 1


def test_erase_frees_the_dedupe_key_and_room(connect: Callable[..., Bus]) -> None:
    with connect(max_observations=1) as bus:
        page = bus.page()
        first = page.add("risk_alert", "one", dedupe_key="k")
        page.erase(first.id, reason="asked for")
        second = page.add("risk_alert", "two", dedupe_key="k")
        assert second.id != first.id
        assert [one.id for one in page.active()] == [second.id]


def test_erasing_a_closed_observation_leaves_its_key_to_the_next_one(bus: Bus, page: Page) -> None:
    old = page.add("observation", "old", dedupe_key="key")
    page.resolve(old.id)
    new = page.add("observation", "new", dedupe_key="key")
    page.erase(old.id, reason="asked for")
    assert page.add("observation", "again", dedupe_key="key").id == new.id


def test_closed_and_cleared_observations_can_be_erased(bus: Bus, page: Page) -> None:
    ids = [page.add("observation", SECRET).id for _ in range(3)]
    for id in ids:
        page.resolve(id, reason=SECRET)
    page.archive(ids[1])
    page.clear_resolved([ids[2]])
    for id in ids:
        page.erase(id, reason="asked for")
    assert keys_with(bus, SECRET) == []
    assert bus.verify().findings == []


def test_second_erase_returns_the_same_tombstone(bus: Bus, page: Page) -> None:
    id = add_secret(page)
    first = page.erase(id, reason="asked for", event_id="mine")
    assert page.erase(id, reason="asked for", event_id="mine") == first
    assert page.erase(id, reason="once more") == first
    other = page.add("observation", "other")
    with pytest.raises(EventIdReused):
        page.erase(other.id, reason="asked for", event_id="mine")


def test_retry_of_an_erased_add_is_refused(bus: Bus, page: Page) -> None:
    added = page.add("observation", SECRET, event_id="mine")
    page.erase(added.id, reason="asked for")
    with pytest.raises(NotFound, match="was erased"):
        page.add("observation", SECRET, event_id="mine")


def test_retry_of_a_clear_with_an_erased_observation_is_refused(bus: Bus, page: Page) -> None:
    one, two = (page.add("observation", content) for content in (SECRET, "kept"))
    for each in (one, two):
        page.resolve(each.id)
    page.clear_resolved([two.id, one.id], event_id="mine")
    page.erase(one.id, reason="asked for")
    with pytest.raises(NotFound, match="was erased"):
        page.clear_resolved([two.id, one.id], event_id="mine")


@pytest.mark.parametrize("erased", [(0,), (1,), (0, 1)], ids=["the first", "the second", "both"])
def test_retry_with_a_generated_event_id_restores_nothing_erased(bus: Bus, page: Page, erased: tuple[int, ...]) -> None:
    items = [NewObservation(type="observation", content=content) for content in (SECRET, f"{SECRET}, too")]
    added = page.add_many(items)
    id = page.history(added[0].id)[0].id  # the event id that an error names when the reply is lost
    for index in erased:
        page.erase(added[index].id, reason="asked for")
    end = list(bus.events())
    with pytest.raises(NotFound, match="was erased"):
        page.add_many(items, event_id=id)
    assert list(bus.events()) == end


def test_retry_with_a_generated_event_id_restores_nothing_archived(archived: Bus) -> None:
    page = archived.page("p")
    added = page.add("observation", SECRET)
    id = page.history(added.id)[0].id
    page.resolve(added.id, reason="done")
    archive(archived)
    page.erase(added.id, reason="asked for")
    with pytest.raises(NotFound, match="was erased"):
        page.add("observation", SECRET, event_id=id)


def test_erase_deletes_its_dead_letters(bus: Bus, page: Page) -> None:
    id = page.add("observation", "private").id
    page.add("observation", "other")
    with bus.subscribe("router", max_attempts=1) as deliveries:
        for _ in range(2):
            next(deliveries).fail(SECRET)
    page.erase(id, reason="asked for")
    assert [letter.subject == id for letter in bus.dead_letters()] == [False]


def test_erase_deletes_dead_letters_that_are_to_be_delivered_again(bus: Bus, page: Page) -> None:
    id = page.add("observation", "private").id
    with bus.subscribe("router", max_attempts=1) as deliveries:
        next(deliveries).fail(SECRET)
    bus.retry_dead_letters("router")
    assert keys_with(bus, SECRET)
    page.erase(id, reason="asked for")
    assert keys_with(bus, SECRET) == []


def test_an_event_erased_while_it_is_handled_leaves_no_dead_letter(bus: Bus, page: Page) -> None:
    id = page.add("observation", SECRET).id
    with bus.subscribe("router", max_attempts=1) as deliveries:
        delivery = next(deliveries)
        page.erase(id, reason="asked for")
        delivery.fail(f"cannot handle {SECRET}")
    assert bus.dead_letters() == []
    assert keys_with(bus, SECRET) == []


def test_an_event_erased_while_its_dead_letter_is_written_leaves_none(
    bus: Bus, page: Page, connect: Callable[..., Bus], monkeypatch: pytest.MonkeyPatch
) -> None:
    id, other = page.add("observation", SECRET).id, connect()
    bus.declare_subscription("router", max_attempts=1)
    batch = bus.pull("router")
    look_up = settlement.event_at

    def erased_after_it(core: Core, position: str) -> Step[Any]:
        event = yield from look_up(core, position)
        other.page().erase(id, reason="asked for")
        return event

    monkeypatch.setattr(settlement, "event_at", erased_after_it)
    bus.nack("router", batch.token, batch.deliveries[0].event.position, f"cannot handle {SECRET}")
    assert bus.dead_letters() == []
    assert keys_with(bus, SECRET) == []


def test_an_update_during_an_erasure_is_erased_too(
    bus: Bus, page: Page, connect: Callable[..., Bus], monkeypatch: pytest.MonkeyPatch
) -> None:
    id, other = page.add("observation", "harmless").id, connect()

    def update_first(log: Log, name: str, writes: list[Write]) -> Step[Any]:
        if len(page.history(id)) == 1:
            other.page().update(id, content=SECRET)
            project(other)
        return (yield from append(log, name, writes))

    monkeypatch.setattr(erase, "append", update_first)
    tombstone = page.erase(id, reason="asked for")
    assert len(tombstone.positions) == 2
    assert page.history(id) == [tombstone]
    assert keys_with(bus, SECRET) == []


def test_a_fold_begun_before_an_erasure_restores_nothing(
    bus: Bus, page: Page, connect: Callable[..., Bus], monkeypatch: pytest.MonkeyPatch
) -> None:
    id, other, evidence = (
        page.add("observation", "harmless", dedupe_key="key").id,
        connect(),
        page.add("observation", "e"),
    )
    late: list[Halted[Any]] = []

    def repeat_first(core_log: Log, name: str, subject: str) -> Step[Any]:
        if not late:
            other.page().add("observation", SECRET, dedupe_key="key", evidence=[evidence.id])
            other.page().add("observation", "later")
            late.append(Halted(other, fold_once(other.core.log, keys_of(other).shard)))
        return (yield from read_head(core_log, name, subject))

    def fold_afterwards(log: Log, name: str, writes: list[Write]) -> Step[Any]:
        appended = yield from append(log, name, writes)
        late[0].go_on()
        return appended

    monkeypatch.setattr(erase, "read_head", repeat_first)
    monkeypatch.setattr(erase, "append", fold_afterwards)
    page.erase(id, reason="asked for")
    assert keys_with(bus, SECRET) == []
    assert bus.verify().findings == []


def test_a_rebuild_paused_during_an_erasure_restores_nothing(
    bus: Bus, page: Page, connect: Callable[..., Bus], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scratchbus.readmodel.rebuild_lease.LEASE_MS", 100)
    id = add_secret(page)
    project(bus)
    paused = Halted(bus, rebuild(bus.core))
    connect().page().erase(id, reason="asked for")  # waits until the lease of the paused rebuild ends
    with pytest.raises(RebuildHeld):
        paused.go_on()
    assert keys_with(bus, SECRET) == []


def test_an_erasure_paused_until_a_rebuild_begins_erases_nothing(
    bus: Bus, page: Page, connect: Callable[..., Bus], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scratchbus.readmodel.rebuild_lease.LEASE_MS", 100)
    monkeypatch.setattr("scratchbus.readmodel.rebuild_lease._CHECK_INTERVAL", 0.05)
    id, other = add_secret(page), connect()
    project(bus)
    before = page.history(id)
    paused = Halted(bus, erase.erase(bus.core, "main", id, "asked for", None))
    rebuilding = Halted(other, rebuild(other.core))  # waits until the lease of the erasure ends
    with pytest.raises(RebuildHeld):
        paused.go_on()
    rebuilding.go_on()
    assert page.history(id) == before


def test_an_erasure_paused_until_an_archiver_begins_erases_nothing(
    bus: Bus, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erase, "_LEASE_MS", 1)
    id = add_secret(page)
    project(bus)
    before = page.history(id)
    paused = Halted(bus, erase.erase(bus.core, "main", id, "asked for", None))
    await_tick(bus)
    archiving = Archiving(keys_of(bus), "token", "an archiver", 60_000)
    bus.converse(archiving.take())
    with pytest.raises(ArchiveBusy, match="an archiver"):
        paused.go_on()
    bus.converse(archiving.leave())
    assert page.history(id) == before


def test_erase_clears_the_leftovers_of_a_killed_rebuild(bus: Bus, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scratchbus.readmodel.rebuild.CHUNK", 3)
    monkeypatch.setattr("scratchbus.readmodel.rebuild_lease.LEASE_MS", 300)
    id = add_secret(page)

    def die(done: int, total: int) -> None:
        if done > 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bus.rebuild(die)
    page.erase(id, reason="asked for")
    assert keys_with(bus, SECRET) == []


def test_erase_clears_the_leftovers_of_a_killed_import(
    bus: Bus, bus_name: str, page: Page, connect: Callable[..., Bus], monkeypatch: pytest.MonkeyPatch
) -> None:
    id = add_secret(page)
    begun = export(bus)
    page.add("observation", "later")
    other = connect(bus=f"{bus_name}-copy")
    other.import_events(begun)
    with monkeypatch.context() as patch:
        for step in ("switch", "drop"):
            patch.setattr(f"scratchbus.eventlog.staging.Staging.{step}", _die)
        with pytest.raises(KeyboardInterrupt):
            other.import_events(export(bus))
    assert any(":import:" in key for key in keys_with(other, SECRET))
    other.page().erase(id, reason="asked for")
    assert keys_with(other, SECRET) == []
    assert other.verify().findings == []


def _interrupt(*_: object) -> Step[None]:
    yield Fetch(_die)


def test_an_interrupted_erasure_releases_its_leases(bus: Bus, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    id, other = add_secret(page), page.add("observation", "another").id
    monkeypatch.setattr("time.sleep", lambda _: None)
    for step in ("_append_tombstone", "_erase_archived"):
        with monkeypatch.context() as patch:
            patch.setattr(f"scratchbus.commands.erase.{step}", _interrupt)
            with pytest.raises(KeyboardInterrupt):
                page.erase(id, reason="asked for")
        page.erase(other, reason="asked for")
    page.erase(id, reason="asked for")
    assert keys_with(bus, SECRET) == []


async def test_a_cancelled_erasure_releases_its_leases(
    engine: Engine, bus_name: str, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    id, other = add_secret(page), page.add("observation", "another").id
    reached = asyncio.Event()

    def wait(*_: object) -> Step[None]:
        reached.set()
        yield Pause(3600)

    async with AsyncBus.connect(engine.url, source="tester", bus=bus_name, shards=engine.shards) as bus:
        with monkeypatch.context() as patch:
            patch.setattr("scratchbus.commands.erase._append_tombstone", wait)
            erasing = asyncio.create_task(bus.page().erase(id, reason="asked for"))
            await asyncio.wait_for(reached.wait(), PATIENCE)
            erasing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await erasing
        monkeypatch.setattr("scratchbus.commands.erase._CHECKS", 0)
        await bus.page().erase(other, reason="asked for")


def test_erase_is_refused_during_a_rebuild(bus: Bus, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    id = add_secret(page)
    lease = bus.converse(leases.take(keys_of(bus), "another"))
    pauses = iter(range(100))
    monkeypatch.setattr("time.sleep", lambda _: bus.converse(lease.keep()) if next(pauses) < 50 else None)
    with pytest.raises(RebuildHeld):
        page.erase(id, reason="asked for")
    assert page.get(id) is not None
    bus.converse(lease.leave())


def test_erase_needs_a_reason_and_a_known_id(bus: Bus, page: Page) -> None:
    added = page.add("observation", "one")
    with pytest.raises(InvalidField, match="reason"):
        page.erase(added.id, reason="")
    with pytest.raises(InvalidId):
        page.erase("nonsense", reason="asked for")
    with pytest.raises(NotFound):
        page.erase("01ARZ3NDEKTSV4RRFFQ69G5FAV", reason="asked for")
    assert heads(bus)["main", added.id].status == "active"


def test_erase_removes_hundreds_of_events(bus: Bus, page: Page) -> None:
    id = page.add("observation", SECRET).id
    updates = [
        Write(Updated(id=f"u{number}", page=page.name, subject=id, by="x", changes={"content": SECRET}), Op.UPDATE)
        for number in range(700)
    ]
    bus.converse(append(bus.core.log, page.name, updates))
    other = page.add("observation", "other")
    tombstone = page.erase(id, reason="asked for")
    assert len(tombstone.positions) == 701
    assert [event.subject for event in bus.events()] == [other.id, id]
    assert bus.verify().findings == []
    assert json.loads(entry_fields(entries(bus, bus.core.log.shard("main"))[-1])[b"event"])["reason"] == "asked for"
    eventually(lambda: page.list() == [other])


def test_second_call_finishes_an_interrupted_erase(bus: Bus, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    id = add_secret(page)
    with bus.subscribe("router", max_attempts=1) as deliveries:
        for _ in range(4):
            next(deliveries).fail("no")
    with monkeypatch.context() as patch:
        patch.setattr("scratchbus.commands.erase.catch_up", _die_after(2))
        with pytest.raises(KeyboardInterrupt):
            page.erase(id, reason="asked for")
    (tombstone,) = page.history(id)
    assert page.erase(id, reason="asked for") == tombstone
    assert keys_with(bus, SECRET) == []
    assert id not in {letter.subject for letter in bus.dead_letters()}
    assert bus.verify().findings == []


def _die_after(times: int) -> Callable[..., object]:
    """Return a fold that raises KeyboardInterrupt on its n-th call."""
    calls = iter(range(times - 1))

    def fold(log: Log, shard: int) -> Step[None]:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        yield from catch_up(log, shard)

    return fold


def test_as_of_omits_erased_observations(bus: Bus, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scratchbus.readmodel.snapshots.MIN_EVENTS", 2)
    monkeypatch.setattr("scratchbus.readmodel.snapshots.EVENTS_PER_DOCUMENT", 0)
    first = page.add("observation", "at the beginning")
    id = add_secret(page)
    positions = [event.position for event in bus.events()]
    before = {position: {one.id: one for one in page.as_of(position).list(limit=None)} for position in positions}
    page.erase(id, reason="asked for")
    page.erase(first.id, reason="asked for")
    for position in positions:
        now = {one.id: one for one in page.as_of(position).list(limit=None)}
        assert now == {key: one for key, one in before[position].items() if key not in (id, first.id)}
    assert keys_with(bus, SECRET) == []
    assert bus.verify().findings == []


def test_as_of_works_before_and_after_erased_first_events(bus: Bus, page: Page, clock: Clock) -> None:
    first, also = page.add("observation", "first"), page.add("observation", "also")
    clock.advance("1h")
    second = page.add("observation", "second")
    for gone in (first, also):
        page.erase(gone.id, reason="asked for")
    then = first.created_at + timedelta(minutes=1)
    assert page.as_of(then).list() == [] == page.as_of(first.created_at - timedelta(days=1)).list()
    assert page.as_of(clock.now).list() == [second]


def test_snapshot_begun_before_an_erasure_is_not_stored(
    bus: Bus, page: Page, connect: Callable[..., Bus], monkeypatch: pytest.MonkeyPatch
) -> None:
    id = add_secret(page)
    project(bus)
    keys, other = keys_of(bus), connect()
    names = PageKeys(keys, page.name, bus.converse(read_checkpoint(keys)).build)
    packed = [snapshots.pack([encode_document(one) for one in page.list(limit=None)])]
    end, erased = page.history(id)[-1], bus.converse(count_all_erased(keys))
    other.page().erase(id, reason="asked for")
    made = snapshots.Snapshot(end.position, 5, 1)
    bus.converse(snapshots.store(keys, names, made, end.id, packed, erased))
    assert send(bus, "EXISTS", names.snapshots) == 0


def test_a_snapshot_begun_before_an_erasure_is_not_stored(bus: Bus, page: Page, connect: Callable[..., Bus]) -> None:
    """Whoever is killed while it is written could not delete it."""
    id = add_secret(page)
    project(bus)
    keys = keys_of(bus)
    names = PageKeys(keys, page.name, bus.converse(read_checkpoint(keys)).build)
    documents = [encode_document(one) for one in page.list(limit=None)]
    end, erased = page.history(id)[-1], bus.converse(count_all_erased(keys))
    connect().page().erase(id, reason="asked for")

    def watched(writing: Step[None]) -> Step[None]:
        reply: Any = None
        with suppress(StopIteration):
            while True:
                reply = yield writing.send(reply)
                assert (yield from ask(keys.shard, "EXISTS", names.snapshots)) == 0

    made = snapshots.Snapshot(end.position, len(documents), 1)
    bus.converse(watched(snapshots.store(keys, names, made, end.id, [snapshots.pack(documents)], erased)))
    opened = snapshots.OpenSnapshot(end.position, end.id, documents)
    bus.converse(watched(snapshots.store_open(keys, names, [opened], erased)))


def test_a_document_with_an_unfolded_tombstone_is_not_stored_in_a_snapshot(
    bus: Bus, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "MIN_EVENTS", 1)
    monkeypatch.setattr(snapshots, "EVENTS_PER_DOCUMENT", 0)
    id = add_secret(page)
    project(bus)
    keys = keys_of(bus)
    monkeypatch.setattr("scratchbus.commands.erase.catch_up", _die_after(2))
    with pytest.raises(KeyboardInterrupt):
        page.erase(id, reason="asked for")
    assert not bus.converse(snapshots.take(keys, page.name, lambda: True))
    project(bus)
    page.add("observation", "is not folded either, and no tombstone")
    assert bus.converse(snapshots.take(keys, page.name, lambda: True))
    names = PageKeys(keys, page.name, bus.converse(read_checkpoint(keys)).build)
    stored = bus.converse(snapshots.nearest(keys, names, bus.position().shards[keys.shard]))
    assert stored is not None
    assert id not in [one.id for one in bus.converse(snapshots.load(names, stored))]


def test_a_snapshot_based_on_one_with_erased_content_is_not_stored(
    bus: Bus, page: Page, connect: Callable[..., Bus], monkeypatch: pytest.MonkeyPatch
) -> None:
    id = add_secret(page)
    page.add("observation", "after it")
    with only("from what was open"):
        assert id in [one.id for one in page.as_of(bus.position()).active()]
        page.add("observation", "later")
        end = bus.position()
        assert stored_snapshots(page, snapshots.OPEN_ENDING) > 0
        nearest_open = snapshots.nearest_open

        def erased_meanwhile(keys: ShardKeys, names: PageKeys, until: Position) -> Step[Any]:
            found = yield from nearest_open(keys, names, until)
            connect().page().erase(id, reason="asked for")
            return found

        monkeypatch.setattr(snapshots, "nearest_open", erased_meanwhile)
        page.as_of(end)
    assert stored_snapshots(page, snapshots.OPEN_ENDING) == 0


# -- the archive ------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Divide every segment into several blocks."""
    monkeypatch.setattr("scratchbus.archive.blocks.BLOCK_BYTES", 1_000)


@pytest.fixture
def archived(connect: Callable[..., Bus], tmp_path: Path) -> Bus:
    """A bus that keeps only two events in its log when it is archived."""
    return connect(archive_url=str(tmp_path / "archive"), retain="1ms", retain_events=2, archive_segment=7)


def files_with(folder: Path, word: str) -> list[str]:
    """Return the files of an archive that contain this word."""
    found = []
    for file in folder.rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        if word.encode() in (zstd.decompress(content) if file.name.endswith(".zst") else content):
            found.append(file.name)
    return found


def test_erase_rewrites_the_archive(archived: Bus, tmp_path: Path) -> None:
    page, folder = archived.page(), tmp_path / "archive"
    live(archived)
    id = add_secret(page)
    page.release(id, by=SECRET)
    page.archive(id)
    for number in range(20):
        page.add("observation", f"{number}")
    page.erase(page.list(text="19")[0].id, reason="before it is archived")
    for number in range(5):
        page.add("observation", f"late {number}")
    project(archived)
    archive(archived)
    assert files_with(folder, SECRET)
    others = [event for event in archived.events() if event.subject != id]
    before = {key: one for key, one in _all(archived).items() if key[1] != id}
    tombstone = page.erase(id, reason="asked for")
    assert keys_with(archived, SECRET) == files_with(folder, SECRET) == []
    assert list(archived.events()) == [*others, tombstone]
    assert page.history(id) == [tombstone]
    assert archived.verify().findings == []
    assert [problem for report in verify(open_store(str(folder))) for problem in report.problems] == []
    archived.rebuild()
    assert _all(archived) == before
    archive(archived)
    assert list(archived.events()) == [*others, tombstone]
    assert archived.verify().findings == []
    assert page.erase(id, reason="once more") == tombstone


def test_cleared_and_archived_observation_can_be_erased(archived: Bus, tmp_path: Path) -> None:
    page = archived.page()
    id = page.resolve(page.add("observation", SECRET).id).id
    page.clear_resolved([id])
    for number in range(20):
        page.add("observation", f"{number}")
    project(archived)
    archive(archived)
    tombstone = page.erase(id, reason="asked for")
    assert len(tombstone.positions) == 3
    assert page.history(id) == [tombstone]
    assert keys_with(archived, SECRET) == files_with(tmp_path / "archive", SECRET) == []
    assert archived.verify().findings == []


def test_second_call_finishes_an_erase_interrupted_before_the_archive(
    archived: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = archived.page()
    id = add_secret(page)
    for number in range(20):
        page.add("observation", f"{number}")
    project(archived)
    archive(archived)
    with monkeypatch.context() as patch:
        patch.setattr("scratchbus.archive.archive_reader.erase_events", _die)
        patch.setattr("scratchbus.commands.erase._LEASE_MS", 200)
        with pytest.raises(KeyboardInterrupt):
            page.erase(id, reason="asked for")
    assert files_with(tmp_path / "archive", SECRET)
    page.erase(id, reason="asked for")
    assert files_with(tmp_path / "archive", SECRET) == []
    assert archived.verify().findings == []


@pytest.mark.slow
@pytest.mark.engines(*ONE)
def test_events_that_an_erase_at_work_has_left_in_the_archive_are_no_finding(
    archived: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = archived.page()
    id = add_secret(page)
    add_more(archived)
    archive(archived)
    with monkeypatch.context() as patch:
        patch.setattr("scratchbus.archive.archive_reader.erase_events", _kill)
        patch.setattr("scratchbus.commands.erase._LEASE_MS", 3_000)
        with pytest.raises(SystemExit):
            page.erase(id, reason="asked for")
        assert archived.verify().findings == []
    eventually(lambda: {finding.kind for finding in archived.verify().findings} == {"archive"})
    assert files_with(tmp_path / "archive", SECRET)
    page.erase(id, reason="asked for")
    assert archived.verify().findings == []


def _die(*arguments: object) -> None:
    raise KeyboardInterrupt


def _kill(*arguments: object) -> None:
    raise SystemExit  # which releases nothing, like a kill


def test_erase_without_archive_url_is_refused(archived: Bus, connect: Callable[..., Bus]) -> None:
    page = archived.page()
    id = add_secret(page)
    for number in range(20):
        page.add("observation", f"{number}")
    project(archived)
    archive(archived)
    with pytest.raises(PositionLost, match="archive_url"):
        connect().page().erase(id, reason="asked for")
    assert page.history(id)[-1].kind != "erased"


def problems(folder: Path) -> list[str]:
    return [problem.problem for report in verify(open_store(str(folder))) for problem in report.problems]


def add_more(bus: Bus) -> None:
    """Add enough events that the earlier ones are archived next time."""
    for number in range(20):
        bus.page().add("observation", f"{number}")
    project(bus)


def once(monkeypatch: pytest.MonkeyPatch, suffix: str, act: Callable[[], object]) -> None:
    """Call `act` just before the next file with this suffix is stored."""
    put = DirectoryStore.put_new

    def interrupted(store: DirectoryStore, name: str, content: bytes) -> bool:
        if name.endswith(suffix):
            monkeypatch.setattr(DirectoryStore, "put_new", put)
            act()
        return put(store, name, content)

    monkeypatch.setattr(DirectoryStore, "put_new", interrupted)


@pytest.mark.parametrize("suffix", [".jsonl.zst", ".manifest.json"])
def test_erased_event_does_not_stay_in_a_late_archivers_segment(
    archived: Bus, connect: Callable[..., Bus], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    page, folder = archived.page(), tmp_path / "archive"
    id = add_secret(page)
    add_more(archived)
    eraser = connect(archive_url=str(folder))

    def erase() -> None:  # the archiver has read the event, and its lease has expired
        outdate(archived)
        eraser.page().erase(id, reason="asked for")

    once(monkeypatch, suffix, erase)
    with pytest.raises(ArchiveBusy):
        archive(archived)
    if suffix == ".manifest.json":
        assert {finding.kind for finding in archived.verify().findings} == {"archive"}
    archive(archived)
    assert files_with(folder, SECRET) == []
    assert problems(folder) == []
    assert archived.verify().findings == []


def test_concurrent_erasures_from_one_segment_both_last(
    archived: Bus, connect: Callable[..., Bus], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, folder = archived.page(), tmp_path / "archive"
    one, other = page.add("observation", "one of them").id, page.add("observation", "the other").id
    add_more(archived)
    archive(archived)
    second = connect(archive_url=str(folder))

    def erase() -> None:  # the first one has rewritten the segment and is about to write its manifest
        outdate(archived)
        second.page().erase(other, reason="asked for")

    once(monkeypatch, ".index.json.zst", erase)
    with pytest.raises(ArchiveBusy):
        page.erase(one, reason="asked for")
    page.erase(one, reason="asked for")
    assert files_with(folder, "one of them") == files_with(folder, "the other") == []
    assert problems(folder) == []
    assert archived.verify().findings == []


def test_next_archiver_removes_events_erased_without_archive_url(
    archived: Bus, connect: Callable[..., Bus], tmp_path: Path
) -> None:
    page, folder = archived.page(), tmp_path / "archive"
    id = add_secret(page)
    add_more(archived)
    with archived.subscribe("slow") as deliveries:  # keeps archived events in the log
        next(deliveries)
    archive(archived)
    connect().page().erase(id, reason="asked for")
    assert files_with(folder, SECRET)
    (finding, *_) = archived.verify().findings
    assert finding.kind == "archive"
    assert "which were erased; `scratchbus log-archive run` removes them" in finding.what
    archive(archived)
    assert files_with(folder, SECRET) == []
    assert archived.verify().findings == []


def test_an_earlier_erasure_of_archived_numbers_needs_no_archive(archived: Bus, connect: Callable[..., Bus]) -> None:
    notepad = archived.notepad("twice")
    page, notes = archived.page("session:twice"), archived.notes("twice")
    notepad.write("first")
    notes.add("between")
    first = page.erase("notepad", reason="asked for")
    notepad.write("second")
    for number in range(20):
        notes.add(f"{number}")
    project(archived)
    with archived.subscribe("slow") as deliveries:  # keeps the events from the first tombstone on in the log
        next(deliveries).ack()
        next(deliveries)
        archive(archived)
    other = connect().page("session:twice")
    second = other.erase("notepad", reason="asked for")
    assert set(first.positions) < set(second.positions)
    assert other.erase("notepad", reason="asked for") == second
    archive(archived)
    assert archived.verify().findings == []


@pytest.mark.parametrize("suffix", [".jsonl.zst", ".manifest.json"])
def test_a_damaged_segment_keeps_no_erased_content_in_others(
    archived: Bus, connect: Callable[..., Bus], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    page, folder = archived.page(), tmp_path / "archive"
    first = page.add("observation", "in the damaged segment").id
    add_more(archived)
    second = page.add("observation", SECRET).id
    add_more(archived)
    with archived.subscribe("slow") as deliveries:  # keeps archived events in the log
        next(deliveries)
    archive(archived)
    for id in (first, second):
        connect().page().erase(id, reason="asked for")
    (damaged,) = (folder / archived.core.log.bus / f"{keys_of(archived).shard:04d}").glob(f"{1:016d}*{suffix}")
    whole = damaged.read_bytes()
    damaged.write_bytes(zstd.compress(b"damaged"))
    other = connect(archive_url=str(folder), retain="1ms", retain_events=2)  # with no segment in memory
    logger = Mock()
    monkeypatch.setattr("scratchbus.archive.archiver.logger", logger)
    archive(other)
    assert files_with(folder, SECRET) == []
    (warning,) = logger.warning.mock_calls
    assert warning.args == ("erased events are still in the archive",)
    assert f"{damaged.name}: " in warning.kwargs["reason"]
    damaged.write_bytes(whole)
    archive(other)
    assert logger.warning.call_count == 1
    assert files_with(folder, "in the damaged segment") == []
    assert archived.verify().findings == []


def test_segment_is_kept_until_its_replacement_is_readable(
    archived: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, folder = archived.page(), tmp_path / "archive"
    id = add_secret(page)
    add_more(archived)
    archive(archived)
    events, put = list(archived.events()), DirectoryStore.put_new
    with monkeypatch.context() as patch:
        patch.setattr(DirectoryStore, "put_new", lambda store, name, content: put(store, name, content[:-1]))
        with pytest.raises(ArchiveDamaged):
            page.erase(id, reason="asked for")
    assert [event for event in archived.events() if event.kind != "erased"] == [
        event for event in events if event.subject != id
    ]
    page.erase(id, reason="asked for")
    assert files_with(folder, SECRET) == []
    assert problems(folder) == []


def test_a_damaged_segment_keeps_no_erased_content_in_the_engine(
    archived: Bus, connect: Callable[..., Bus], tmp_path: Path
) -> None:
    folder, shard = tmp_path / "archive", archived.core.log.shard("session:s1")
    turn = archived.turns("s1").append("user", SECRET)
    archived.fork_session("s1", session="f1")
    with archived.subscribe("router", max_attempts=1, pages=["session:s1"]) as deliveries:
        next(deliveries).fail(SECRET)
    with archived.subscribe("slow") as deliveries:  # keeps archived events in the log
        next(deliveries)
    archived.end_session("s1")
    add_more(archived)
    archive(archived)
    (damaged,) = (folder / archived.core.log.bus / f"{shard:04d}").glob(f"{1:016d}*.manifest.json")
    whole = damaged.read_bytes()
    damaged.write_bytes(b"damaged")
    other = connect(archive_url=str(folder))  # with no manifest in memory
    with pytest.raises(ArchiveDamaged):
        other.page("session:s1").erase(turn.id, reason="asked for")
    assert keys_with(archived, SECRET) == []
    assert (archived.dead_letters(), archived.turns("f1").list()) == ([], [])
    damaged.write_bytes(whole)
    other.page("session:s1").erase(turn.id, reason="asked for")
    assert files_with(folder, SECRET) == []
    assert archived.verify().findings == []


def test_as_of_an_erased_batch_item_includes_the_batch(archived: Bus) -> None:
    page = archived.page()
    batch = page.add_many([NewObservation(type="observation", content=f"{number}") for number in range(4)])
    page.erase(batch[1].id, reason="asked for")
    before = page.as_of(batch[1].position).list()
    assert [one.content for one in before] == ["3", "2", "0"]
    add_more(archived)
    archive(archived)
    assert page.as_of(batch[1].position).list() == before


def test_readers_continue_when_the_event_at_the_floor_is_erased(archived: Bus) -> None:
    page = archived.page()
    add_more(archived)
    archive(archived)
    keys = keys_of(archived)
    (first,) = send(archived, "XRANGE", keys.log, "-", "+", "COUNT", 1)
    (id,) = [event.subject for event in archived.events() if event.position.stream_id == first[0].decode()]
    page.add("observation", "later")
    page.erase(id, reason="asked for")
    expected = [f"{number}" for number in range(20)] + ["later"]
    expected.remove(f"{20 - 2}")
    contents = [event.content for event in archived.events(kinds="added") if isinstance(event, Added)]
    assert contents == expected
    assert [one.content for one in page.as_of(archived.position()).list(limit=None)] == expected[::-1]
    archived.rebuild()
    assert archived.verify().findings == []


def test_erase_of_a_turn_removes_its_forked_copies_from_the_archive(archived: Bus, tmp_path: Path) -> None:
    turn = archived.turns("s1").append("user", SECRET)
    archived.fork_session("s1", session="f1")
    archived.end_session("s1")
    archived.end_session("f1")
    archive(archived)
    assert files_with(tmp_path / "archive", SECRET)
    archived.page("session:s1").erase(turn.id, reason="asked for")
    assert keys_with(archived, SECRET) == []
    assert files_with(tmp_path / "archive", SECRET) == []
    assert archived.verify().findings == []


def test_erase_of_a_notepad_writes_nothing_into_forks(bus: Bus) -> None:
    bus.notepad("s1").write(SECRET)
    bus.fork_session("s1", session="f1")
    before = [*bus.events(pages=["session:f1"])]
    bus.page("session:s1").erase("notepad", reason="asked for")
    assert [*bus.events(pages=["session:f1"])] == before
    assert bus.notepad("s1").read() == ""


def test_a_reader_finds_the_file_of_a_segment_that_was_rewritten_meanwhile(
    archived: Bus, connect: Callable[..., Bus], tmp_path: Path
) -> None:
    secret = archived.page().add("observation", SECRET)
    kept = archived.page().add("observation", "kept")
    add_more(archived)
    archive(archived)
    reader = connect(archive_url=str(tmp_path / "archive"))
    cache = reader.core.log.archive
    cache._blocks._max_bytes = 0  # of all blocks the reader keeps the last one
    assert len([*reader.events(kinds="added")]) == 22
    archived.page().erase(secret.id, reason="asked for")
    assert next(event.subject for event in reader.events(kinds="added")) == kept.id


@pytest.mark.parametrize("seed", range(3))
def test_the_history_index_keeps_the_events_between_erased_ones(bus: Bus, page: Page, seed: int) -> None:
    random, page = Random(seed), bus.page("main")
    ids = [page.add("observation", f"{n}").id for n in range(3)]
    for _ in range(60):
        page.update(random.choices(ids, (1, 4, 20))[0], content=f"{random.random()}")
    project(bus)
    for id in random.sample(ids, 2):
        page.erase(id, reason="private")
        assert bus.verify().findings == []
    (kept,) = page.list(limit=None)
    assert len(list(bus.events(pages=["main"]))) == len(page.history(kept.id)) + 2
