"""The search for the next observation of a worker: which pages may have one, and of which priority at most.

It never waits and has no connection; `Work` and `AsyncWork` drive it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from math import inf

from scratchbus.commands.claim import Picked, PickFilter, pick, put_back, work_replica_ms
from scratchbus.domain.checks import check_label, check_some
from scratchbus.domain.registry import HIGHEST_PRIORITY
from scratchbus.domain.values import Duration, check_page
from scratchbus.engine.retry_limits import JITTER, backoff
from scratchbus.engine.steps import Abandoned, Step, ask_all, batches
from scratchbus.errors import Conflict, NotFound, ScratchbusError
from scratchbus.eventlog.confirm import confirm
from scratchbus.eventlog.keys import SYSTEM_PAGE
from scratchbus.eventlog.layouts import SPAN
from scratchbus.eventlog.log_entry import LogEntry
from scratchbus.eventlog.tail import Feed
from scratchbus.readmodel.queries import page_names
from scratchbus.readmodel.scope import Core
from scratchbus.subscriptions.consumer import NAP
from scratchbus.telemetry.logs import stderr_logger
from scratchbus.work.job_state import TRANSIENT_ERRORS, JobState, WorkTerms
from scratchbus.work.ranked_pages import RankedPages

FREEING = frozenset((b"added", b"updated", b"status_changed", b"released", b"lapsed"))
"""The kinds of events after which the observation that they are about may become free to pick."""

UNBLOCKING = frozenset((b"status_changed", b"erased"))
"""The kinds of events that may unblock other observations, of any type."""

_BATCH = 1_000  # pages per round trip
_JITTER = 0.05  # seconds, so that workers that wait for the same moment do not ask at the same time

_PAUSE = 2  # times the wait for replicas, between two checks: a worker has most of its time for other shards

_FIRST = -HIGHEST_PRIORITY - 1  # the rank of a page that comes before all others

logger = stderr_logger()


class Agenda:
    """The pages on which one worker looks for work. It follows the feeds of their shards, and wakes the worker.

    For each page that may have work, `_bounds` has an upper bound of its highest priority (negated, so that the highest
    comes first). The append script picks from the first page only if the priority there is at least the bound of the
    second. So the highest priority of all pages comes first, in one call if the bounds are right. For a page on which
    everything is claimed or in backoff, `_asleep` has the moment (monotonic seconds) when something may be free.

    A job whose claim too few replicas confirm is released at once, since nobody renews the claim while a worker waits.
    Its shard is then in `_unconfirmed`: nothing is picked from it until replicas confirm its log, and the other shards
    go on. The first of these shards is checked at `_check_at`.
    """

    def __init__(
        self,
        core: Core,
        name: str,
        wanted: PickFilter,
        pages: str | Collection[str] | None,
        ttl: Duration,
        terms: WorkTerms,
        wake: Callable[[], object],
        feed: Callable[[int], Feed],
    ) -> None:
        self.name = check_label("work", name)
        names = check_some("pages", pages)
        self._pages = None if names is None else sorted(map(check_page, names))
        self._core = core
        self.shards = self._current_shards()
        self._wanted = wanted
        self._types = None if wanted.types is None else frozenset(map(str.encode, wanted.types))
        self._ttl = ttl
        self._terms = terms
        self._wake = wake
        self._feed = feed
        self._feeds: list[Feed] = []
        self._has_left = False
        self._is_lost = True  # the pages have to be read
        self._offered: dict[str, None] = {}  # pages, in order; the feeds' threads add, the worker's removes
        self._bounds = RankedPages()
        self._asleep = RankedPages()
        self._unconfirmed = deque[int]()
        self._check_at = inf
        self._failures = 0
        self._picking = ""  # the page of the pick at work, or of the one that failed
        self._retried = ("", "")  # the page of a pick that failed, and its event id: it may have claimed something

    @property
    def has_many(self) -> bool:
        """Whether it covers more than one page."""
        return self._pages is None or len(self._pages) > 1

    def seek(self) -> Step[Picked | float]:
        """Claim the next observation; else return the seconds until there may be one, unless it is woken."""
        if not self._feeds:
            self._follow()
        yield from self._check_replicas()
        yield from self._catch_up()
        bounds = self._bounds
        if self._retried[0]:
            bounds[self._retried[0]] = _FIRST
        while first := bounds.first():
            page, min_priority = first.page, -int(bounds.second_rank() or 0)
            if self._unconfirmed and self._core.log.shard(page) in self._unconfirmed:
                bounds.discard(page)  # all pages are read again once replicas are there
                continue
            event_id = self._retried[1] if self._retried[0] == page else None
            self._picking = page
            try:
                found = yield from pick(
                    self._core, page, self._wanted, None, self._ttl, event_id=event_id, work=self.name,
                    min_priority=min_priority,
                )  # fmt: skip
            except ScratchbusError as problem:
                if event_id is None or isinstance(problem, TRANSIENT_ERRORS):
                    raise
                self._retried = ("", "")  # what it claimed cannot be read, as when it was erased
                continue
            self._picking, self._retried = "", ("", "")
            bounds.discard(page)  # so that it comes after others with the same bound
            if isinstance(found, Picked):
                bounds[page] = -found.observation.priority
                if found.lacks_replicas:
                    yield from self._put_back(page, found)
                    return 0.0  # a worker that is to stop should not wait for the replicas of other shards too
                if found.observation.attempts <= self._terms.max_attempts:
                    self._failures = 0
                    return found
                yield from self._give_up(page, found)
                yield Abandoned()  # an error after this is about the next pick
            elif found.priority >= 0:
                bounds[page] = -found.priority
            elif found.soonest:
                seconds = (found.soonest - found.now) / 1000
                self._asleep[page] = time.monotonic() + seconds + JITTER.uniform(0, _JITTER)
        next_page = self._asleep.first()
        return max(0.0, min(self._check_at, next_page.rank if next_page else inf) - time.monotonic())

    def pause_after(self, problem: ScratchbusError) -> float:
        """Record an error of the engine; return the seconds to wait before the next attempt."""
        if self._failures == 0:
            logger.warning("waiting for the engine", work=self.name, reason=str(problem))
        self._failures += 1
        if self._picking and problem.event_id:
            self._retried = self._picking, problem.event_id
        self._picking = ""
        return min(NAP, backoff(self._failures))

    def reset_backoff(self) -> None:
        """Record that a wait ended without an error of the engine."""
        if self._failures:
            logger.info("going on", work=self.name)
        self._failures = 0

    def _follow(self) -> None:
        """Follow the log from now on, unless `leave` was called meanwhile."""
        self.shards = self._current_shards()  # an AsyncBus has just learned how many there are
        self._feeds = [self._feed(shard) for shard in self.shards]
        for feed in self._feeds:
            feed.join(self)
        if self._has_left:
            self.leave()

    def _current_shards(self) -> list[int]:
        log = self._core.log
        return sorted(set(range(log.shards) if self._pages is None else map(log.shard, self._pages)))

    def leave(self) -> None:
        """Stop following the log."""
        self._has_left = True
        for feed in self._feeds:
            feed.leave(self)

    def _give_up(self, page: str, picked: Picked) -> Step[None]:
        job = JobState(self._core, page, picked, self._ttl, self._terms)
        logger.warning("giving up", work=self.name, observation=job.id, attempts=job.attempt - 1)
        with suppress(Conflict, NotFound):  # someone else was faster
            yield from job.give_up_steps(job.attempt - 1, "its workers vanished")

    # -- replicas ------------------------------------------------------------------------------------------------------

    def _put_back(self, page: str, picked: Picked) -> Step[None]:
        if not self._unconfirmed:
            wait_ms = work_replica_ms(self._core, self._ttl)
            reason = f"too few replicas confirm a claim within {wait_ms / 1000:g} s; check that they are up"
            if wait_ms < self._core.log.replica_ms:
                reason += ", or use a longer ttl: a claim waits for three quarters of it"
            logger.warning("waiting for replicas", work=self.name, reason=reason)
        self._unconfirmed.append(self._core.log.shard(page))
        self._postpone_check()
        with suppress(Conflict, NotFound):  # it has ended
            yield from put_back(self._core, page, picked)

    def _check_replicas(self) -> Step[None]:
        while time.monotonic() >= self._check_at:
            try:
                yield from confirm(self._core.log, self._unconfirmed[0])
            except TRANSIENT_ERRORS:
                self._unconfirmed.rotate(-1)
                self._postpone_check()
                continue
            self._unconfirmed.popleft()
            self._is_lost = True
            if not self._unconfirmed:
                self._check_at = inf
                logger.info("going on", work=self.name)

    def _postpone_check(self) -> None:
        self._check_at = time.monotonic() + _PAUSE * self._core.log.replica_ms / 1000

    # -- for the feeds, with their locks -------------------------------------------------------------------------------

    def offer(self, items: Sequence[LogEntry]) -> None:
        """Note the pages on which these events may have freed something."""
        has_freed = False
        for item in items:
            fields = item.fields
            kind, is_ours = fields.get(b"kind"), self._types is None or fields.get(b"type") in self._types
            if (is_ours and kind in FREEING) or kind in UNBLOCKING:
                page = fields.get(b"page", b"").decode("utf-8", "replace")
                if self._pages is None or page in self._pages:
                    self._offered[page], has_freed = None, True
        if has_freed:
            self._wake()

    def resync(self) -> None:
        """Read all pages again."""
        self._is_lost = True
        self._wake()

    # -- the pages -----------------------------------------------------------------------------------------------------

    def _catch_up(self) -> Step[None]:
        if self._is_lost:
            self._is_lost = False
            try:
                tops = yield from self._read_priorities()
            except BaseException:
                self._is_lost = True
                raise
            self._asleep.clear()
            self._bounds.clear()
            for page, priority in tops.items():
                self._bounds[page] = -priority
        for page in list(self._offered):
            self._offered.pop(page, None)  # first: what is offered from now on stays
            self._wake_page(page)
        now = time.monotonic()
        while (next_page := self._asleep.first()) and next_page.rank <= now:
            self._wake_page(next_page.page)

    def _wake_page(self, page: str) -> None:
        self._asleep.discard(page)
        if page != SYSTEM_PAGE:
            self._bounds[page] = -HIGHEST_PRIORITY

    def _read_priorities(self) -> Step[dict[str, int]]:
        """Return the pages with open observations, each with their highest priority."""
        log, tops = self._core.log, dict[str, int]()
        for shard in self.shards:
            keys = log.keys(shard)
            if self._pages is None:
                names = yield from page_names(keys)
            else:
                names = [name for name in self._pages if log.shard(name) == shard]
            for batch in batches(names, _BATCH):
                commands = [("ZREVRANGE", keys.open(name), 0, 0, "WITHSCORES") for name in batch]
                rows = yield from ask_all(shard, list(commands))
                tops |= {name: int(float(row[1])) // SPAN for name, row in zip(batch, rows, strict=True) if row}
        return tops
