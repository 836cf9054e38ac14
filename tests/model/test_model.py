"""Random operations of several clients, compared step by step with an independent model.

Meanwhile old events move to the archive, and the state is rebuilt, neither of which may make a difference.

At the end of every run the stored documents, the fold of the log from its first event, the heads and the model must
agree, and the log must be complete. A page of the past must equal the fold of the log up to then, both when it is
opened and at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from secrets import token_hex
from typing import Any, ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from scratchbus import Bus, NewObservation, Observation, ObservationPatch, Page, PastPage
from scratchbus.archive.archiver import archive_bus
from scratchbus.domain.values import millis, moment
from scratchbus.errors import Conflict, NotFound
from scratchbus.eventlog.raw_entries import entry_position
from scratchbus.scheduling.expiry import sweep
from tests.clock import Clock
from tests.inspection import assert_sound, entries, log_length, project
from tests.model.page_model import PRIORITY, ROOM, Item, New, PageModel, Refused
from tests.past_pages import WAYS, assert_past, assert_reads_as, batch_ends, only, told_again

VERBS = {"pending_review": "review", "resolved": "resolve", "archived": "archive", "active": "reopen"}
SECOND = 1000
REMEMBERED = 6 * 86_400 * SECOND
"""How long, in milliseconds, a retry is certainly recognized: the idempotency window is seven days."""

clients = st.integers(0, 2)
tags = st.lists(st.sampled_from("xyz"), unique=True, max_size=2).map(tuple)
news = st.builds(
    New,
    type=st.sampled_from(sorted(PRIORITY)),
    content=st.sampled_from(["a story", "another"]),
    key=st.sampled_from([None, "k", "k", "l"]),
    tags=tags,
    life=st.none() | st.sampled_from([20 * SECOND, 300 * SECOND]),
    lives_for_ever=st.booleans(),
)
proofs = st.sampled_from([None, None, None, None, "right", "wrong"])
"""Whether a write has an expected version or a fence, and the right one."""


class PageMachine(RuleBasedStateMachine):
    """One page of one bus, used by three clients."""

    url: ClassVar[str]
    shards: ClassVar[int]
    clock: ClassVar[Clock]
    directory: ClassVar[Path]

    ids = Bundle("ids")
    done = Bundle("done")

    def __init__(self) -> None:
        super().__init__()
        self.model = PageModel()
        self.buses = self._open()
        self.pasts: list[tuple[PastPage, list[Observation]]] = []

    def _open(self) -> list[Bus]:
        name = f"model-{token_hex(6)}"
        return [
            Bus.connect(
                self.url,
                source=source,
                bus=name,
                shards=self.shards,
                max_observations=ROOM,
                archive_url=self.directory,
                retain="1ms",
                retain_events=3,
                archive_segment=5,
            )
            for source in ("ann", "bob", "cid")
        ]

    def page(self, client: int) -> Page:
        return self.buses[client].page()

    def source(self, client: int) -> str:
        return str(self.buses[client].settings.source)

    @property
    def now(self) -> int:
        return self.clock.ms

    def _proven(self, id: str, version: str | None, fence: str | None) -> tuple[int | None, int | None]:
        """Return the expected version and the fence of a write."""
        item = self.model.items.get(id)
        right_version, right_fence = (item.version, item.fence) if item else (1, 1)
        return (
            None if version is None else right_version + (version == "wrong"),
            None if fence is None else max(1, right_fence) + (fence == "wrong"),
        )

    def both(self, expected: Callable[[], Any], real: Callable[[], Any]) -> tuple[Any, Any]:
        """Do something in the model and on the bus; return both results, or (None, None) if both refuse it alike."""
        try:
            wanted, refusal = expected(), ""
        except Refused as refused:
            wanted, refusal = None, str(refused)
        if not refusal:
            return wanted, real()
        length = log_length(self.buses[0])
        with pytest.raises((Conflict, NotFound)) as error:
            real()
        assert type(error.value).__name__ == refusal
        assert log_length(self.buses[0]) == length, "a refused write is in the log"
        return None, None

    def both_once(self, ids: Iterable[str], expected: Callable[[], Any], real: Callable[[str], Any]) -> Any:
        """Do something to these with an event id; return the answer that a retry must get."""
        event_id = token_hex(6)
        _, result = self.both(lambda: expected() or True, lambda: real(event_id) or True)
        return multiple() if result is None else (set(ids), lambda: real(event_id) or True, result, self.now)

    # -- operations of clients

    @rule(target=ids, client=clients, new=news, due_in=st.none() | st.just(60 * SECOND))
    def add(self, client: int, new: New, due_in: int | None) -> Any:
        new.due_at = None if due_in is None else self.now + due_in
        return self._added(client, [new], lambda given: [self.page(client).add(**given[0])])

    @rule(target=ids, client=clients, batch=st.lists(news, min_size=2, max_size=ROOM + 1))
    def add_many(self, client: int, batch: list[New]) -> Any:
        return self._added(
            client, batch, lambda given: self.page(client).add_many([NewObservation(**one) for one in given])
        )

    def _added(self, client: int, batch: list[New], real: Callable[[list[dict[str, Any]]], list[Observation]]) -> Any:
        given = [_given(new) for new in batch]
        wanted, added = self.both(lambda: self.model.add(batch, self.now), lambda: real(given))
        if wanted is None:
            return multiple()
        names: dict[str, str] = {}
        for placeholder, one in zip(wanted, added, strict=True):
            assert names.setdefault(placeholder, one.id) == one.id
            if placeholder in self.model.items and placeholder != one.id:
                assert placeholder.startswith("new"), "the bus and the model repeated different observations"
                self.model.name(placeholder, one.id)
        return multiple(*names.values())

    @rule(
        target=done,
        client=clients,
        id=ids,
        tags=tags,
        life=st.none() | st.just(30 * SECOND),
        version=proofs,
        fence=proofs,
    )
    def update(
        self, client: int, id: str, tags: tuple[str, ...], life: int | None, version: str | None, fence: str | None
    ) -> Any:
        ends = None if life is None else self.now + life
        known, proof = self._proven(id, version, fence)
        changes: ObservationPatch = {"tags": list(tags), "expires_at": None if ends is None else moment(ends)}
        return self.both_once(
            [id],
            lambda: self.model.update(id, self.now, self.source(client), tags, ends, known, proof),
            lambda event_id: self.page(client).update(
                id, expected_version=known, fence=proof, event_id=event_id, **changes
            ),
        )

    @rule(target=done, client=clients, id=ids, status=st.sampled_from(sorted(VERBS)), version=proofs, fence=proofs)
    def move(self, client: int, id: str, status: str, version: str | None, fence: str | None) -> Any:
        known, proof = self._proven(id, version, fence)
        return self.both_once(
            [id],
            lambda: self.model.move(id, status, self.now, self.source(client), known, proof),
            lambda event_id: getattr(self.page(client), VERBS[status])(
                id, expected_version=known, fence=proof, event_id=event_id
            ),
        )

    @rule(target=done, client=clients, id=ids, ttl=st.sampled_from([20, 200]), fence=proofs)
    def claim(self, client: int, id: str, ttl: int, fence: str | None) -> Any:
        _, proof = self._proven(id, None, fence)
        return self.both_once(
            [id],
            lambda: self.model.claim(id, self.now, self.source(client), ttl * SECOND, proof),
            lambda event_id: self.page(client).claim(id, ttl=ttl, fence=proof, event_id=event_id),
        )

    @rule(
        client=clients,
        ttl=st.sampled_from([20, 200]),
        types=st.none() | st.sets(st.sampled_from(sorted(PRIORITY)), min_size=1, max_size=2),
        tags=tags,
    )
    def claim_next(self, client: int, ttl: int, types: set[str] | None, tags: tuple[str, ...]) -> None:
        wanted = self.model.claim_next(self.now, self.source(client), ttl * SECOND, types, tags)
        job = self.page(client).claim_next(types=types, tags=tags, ttl=ttl)
        assert (job and job.id) == wanted

    @rule(target=done, client=clients, id=ids, fence=proofs)
    def release(self, client: int, id: str, fence: str | None) -> Any:
        _, proof = self._proven(id, None, fence)
        return self.both_once(
            [id],
            lambda: self.model.release(id, self.now, self.source(client), proof),
            lambda event_id: self.page(client).release(id, fence=proof, event_id=event_id),
        )

    @rule(target=done, client=clients, id=ids, action=st.sampled_from(["goal-1", "goal-2"]), fence=proofs)
    def link(self, client: int, id: str, action: str, fence: str | None) -> Any:
        _, proof = self._proven(id, None, fence)
        return self.both_once(
            [id],
            lambda: self.model.link(id, action, self.now, self.source(client), proof),
            lambda event_id: self.page(client).link(id, action, fence=proof, event_id=event_id),
        )

    @rule(target=done, client=clients, some=st.lists(ids, min_size=1, max_size=3, unique=True))
    def clear(self, client: int, some: list[str]) -> Any:
        return self.both_once(
            some,
            lambda: self.model.clear(some, self.now),
            lambda event_id: self.page(client).clear_resolved(some, event_id=event_id),
        )

    @rule(client=clients, id=ids)
    def erase(self, client: int, id: str) -> None:
        is_new = id not in self.model.erased
        self.model.erase(id)
        tombstone = self.page(client).erase(id, reason=f"by {client}")
        assert tombstone == self.page(0).erase(id, reason="again")
        assert not is_new or tombstone.reason == f"by {client}"

    @rule(retried=done)
    def retry(self, retried: tuple[set[str], Callable[[], Any], Any, int]) -> None:
        ids, again, first, since = retried
        if self.now - since > REMEMBERED:
            return
        length = log_length(self.buses[0])
        with pytest.raises(NotFound, match="was erased") if self.model.erased & ids else nullcontext():
            assert again() == first
        assert log_length(self.buses[0]) == length, "a retry appended an event"

    # -- time and daemons

    @rule(seconds=st.sampled_from([1, 25, 250, 3600, 7 * 86_400]))
    def wait(self, seconds: int) -> None:
        self.clock.set(self.now + seconds * SECOND)

    @rule(client=clients)
    def sweep(self, client: int) -> None:
        bus = self.buses[client]
        assert bus.converse(sweep(bus.core)) == self.model.sweep(self.now)

    @rule(client=clients)
    def fold(self, client: int) -> None:
        project(self.buses[client])

    @rule(client=clients)
    def archive(self, client: int) -> None:
        archive_bus(self.buses[client])

    @rule(client=clients)
    def rebuild(self, client: int) -> None:
        self.buses[client].rebuild()

    # -- reads of the past

    @rule(client=clients, back=st.integers(0, 9), way=st.sampled_from(WAYS))
    def look_back(self, client: int, back: int, way: str) -> None:
        ends = batch_ends(self.buses[client], self.page(client))
        if len(self.pasts) < 4:
            self.pasts += assert_past(self.page(client), ends[-1 - back :][:1], way)

    @rule(client=clients, seconds=st.sampled_from([0, 1, 30, 300, 4000]), way=st.sampled_from(WAYS))
    def look_back_to_a_time(self, client: int, seconds: int, way: str) -> None:
        ms = self.now - seconds * SECOND
        page = self.page(client)
        shard = self.buses[client].core.log.shard(page.name)
        before = [
            place for entry in entries(self.buses[client], shard) if (place := entry_position(entry, shard)).ms <= ms
        ]
        with only(way):
            past = page.as_of(moment(ms))
            assert_reads_as(past, told_again(page, before[-1], ms) if before else [])

    # -- invariants

    @invariant()
    def the_page_matches_the_model(self) -> None:
        page = self.page(len(self.model.items) % 3)
        found = page.list(limit=None)
        assert [one.id for one in found] == self.model.newest_first()
        for one in found:
            assert _seen(one) == _wanted(self.model.items[one.id], self.now)
        assert [one.id for one in page.active()] == self.model.active(self.now)
        for id in self.model.cleared | self.model.erased:
            assert page.get(id) is None

    def teardown(self) -> None:
        try:
            assert_sound(self.buses[0])
            self.the_page_matches_the_model()
            for past, wanted in self.pasts:
                is_whole = self.model.erased.isdisjoint(one.id for one in wanted)
                left = [one for one in wanted if one.id not in self.model.erased]
                assert_reads_as(past if is_whole else self.page(0).as_of(past.position), left)
        finally:
            for bus in self.buses:
                bus.close()


def _given(new: New) -> dict[str, Any]:
    given: dict[str, Any] = {"type": new.type, "content": new.content, "dedupe_key": new.key, "tags": list(new.tags)}
    if new.lives_for_ever:
        given["ttl"] = "never"
    elif new.life is not None:
        given["ttl"] = new.life / SECOND
    if new.due_at is not None:
        given["remind_at"] = moment(new.due_at)
    return given


def _seen(one: Observation) -> tuple[Any, ...]:
    claim = one.claim and (one.claim.by, one.claim.fence, millis(one.claim.until))
    return (
        one.type, one.content, one.status, one.version, one.occurrences, tuple(one.tags), tuple(one.links),
        one.expires_at and millis(one.expires_at), one.fence, claim, one.due_at is not None,
        one.archive_at and millis(one.archive_at), one.attempts,
    )  # fmt: skip


def _wanted(item: Item, now: int) -> tuple[Any, ...]:
    is_held = item.is_held(now) and not item.is_over(now)
    claim = (item.holder, item.fence, item.held_until) if is_held else None
    return (
        item.type, item.content, item.seen_status(now), item.version, item.occurrences, item.tags, item.links,
        item.ends, item.fence, claim, item.has_been_due, item.archived_at,
        0 if item.is_over(now) else item.attempts,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("examples", [12, pytest.param(200, marks=[pytest.mark.faults, pytest.mark.timeout(1800)])])
def test_the_bus_matches_the_model(engine, clock, tmp_path, examples):
    class Machine(PageMachine):
        url, shards = engine.url, engine.shards

    Machine.clock, Machine.directory = clock, tmp_path
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples if engine.is_real else examples // 2,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
