"""A claimed observation: its worker's operations, and the renewal of the claim."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple, Self, TypeVar

from scratchbus.commands import change
from scratchbus.commands import claim as claims
from scratchbus.commands.claim import TRIED, UNTRIED, Picked, PickFilter, ReleaseTerms
from scratchbus.commands.execution import Command, execute
from scratchbus.domain.observation import Claim, Observation
from scratchbus.domain.values import Duration, delay_ms, duration_ms, duration_seconds
from scratchbus.engine.renewal import pause_for
from scratchbus.engine.retry_limits import JITTER
from scratchbus.engine.steps import Step
from scratchbus.errors import (
    BusClosed,
    Claimed,
    Conflict,
    EventIdReused,
    InvalidField,
    InvalidTransition,
    NotClaimed,
    NotFound,
    NotReplicated,
    ScratchbusError,
    StaleFence,
)
from scratchbus.readmodel.history import history
from scratchbus.readmodel.scope import Core
from scratchbus.subscriptions import consumer
from scratchbus.subscriptions.consumer import NAP
from scratchbus.subscriptions.delivery_state import reason_of, reason_text
from scratchbus.subscriptions.options import MAX_DELAY, check_attempts, retry_seconds
from scratchbus.telemetry.counters import counts
from scratchbus.telemetry.logs import stderr_logger

NO_OUTCOME = "its handler ended without an outcome: resolve, review, archive, release or fail each job"
"""The reason for the failure of a job left without an outcome."""

TRANSIENT_ERRORS = (*consumer.TRANSIENT_ERRORS, NotReplicated)
"""Errors that may pass: a worker waits, then continues."""

RELEASE_ERRORS = (Conflict, NotFound, BusClosed, *TRANSIENT_ERRORS)
"""Errors that may keep a worker from releasing a job; its claim then lapses by itself, or has lapsed."""

_COUNTED = {"resolve": "resolved", "archive": "archived", "review": "reviewed"}

logger = stderr_logger()

H = TypeVar("H")


class WorkTerms(NamedTuple):
    """How a job is retried: attempts, seconds before the second attempt, and the longest a handler may take."""

    max_attempts: int = 5
    retry_delay: float = 1.0
    handler_timeout: float = float("inf")

    @classmethod
    def of(cls, max_attempts: object, retry_delay: Duration, handler_timeout: Duration) -> Self:
        """Return the terms for the arguments of a caller. Raises InvalidField or InvalidTTL."""
        attempts = check_attempts(max_attempts)
        return cls(
            attempts, delay_ms(retry_delay, "retry_delay") / 1000, duration_seconds(handler_timeout, "handler_timeout")
        )


DEFAULT_TERMS = WorkTerms()


class JobState:
    """The operations shared by `Job` and `AsyncJob`, as conversations.

    Every write carries the fence. `attempt` counts the claims since the status last changed.
    """

    def __init__(self, core: Core, page: str, picked: Picked, ttl: Duration, terms: WorkTerms) -> None:
        self.observation: Observation = picked.observation
        self.claim: Claim = picked.claim
        self.attempt = picked.observation.attempts
        self.page = page
        self.shard = core.log.shard(page)
        self._core = core
        self._ttl_ms = duration_ms(ttl) or 0
        self.max_pause = self.check_seconds = pause_for(self._ttl_ms / 1000)
        self._terms = terms
        self._started_at = self._renewed_at = picked.asked_at
        self._not_before = 0.0
        self._is_over = self._is_lost = self._is_writing = False
        self._acting = ExitStack()
        counts.jobs["claimed"] += 1

    def __repr__(self) -> str:
        job = f"{self.id} {self.observation.type} {self.observation.content[:80]!r} of page {self.page!r}"
        end = f"{self.claim.until:%Y-%m-%dT%H:%M:%SZ}"
        return f"<{type(self).__name__} {job}, attempt {self.attempt}, fence {self.fence}, claimed until {end}>"

    @property
    def id(self) -> str:
        """The id of the observation."""
        return self.observation.id

    @property
    def fence(self) -> int:
        """The proof of the claim."""
        return self.claim.fence

    @property
    def is_done(self) -> bool:
        """Whether it was closed, sent to review or released through this job."""
        return self._is_over

    @property
    def is_lost(self) -> bool:
        """Whether the claim has ended, as far as the worker knows; further writes are refused."""
        return not self._is_over and (self._is_lost or time.monotonic() > self._renewed_at + self._ttl_ms / 1000)

    @property
    def is_out(self) -> bool:
        """Whether it is still claimed and has no outcome."""
        return not self._is_over and not self._is_lost

    def origin(self) -> Step[str | None]:
        """Return the trace context of the observation's addition; None if it has none or is unavailable."""
        with suppress(ScratchbusError):
            first, *_ = yield from history(self._core.log, self.page, self.id)
            return first.traceparent
        return None

    # -- operations ----------------------------------------------------------------------------------------------------

    def transition_steps(
        self, kind: type[Command], reason: str | None, event_id: str | None, **more: Any
    ) -> Step[Observation]:
        """Resolve or archive it, which ends the claim; or send it to review, and release it."""
        back = {"id": self.id, "by": self.claim.by, "back": TRIED, "fence": self.fence}
        release = claims.Release.parse(back) if kind is change.Review else None
        after = yield from self.command_steps(kind, event_id, release, reason=reason, **more)
        counts.jobs[_COUNTED[kind.verb]] += 1
        return after

    def release_steps(self, back: ReleaseTerms, event_id: str | None = None) -> Step[Observation]:
        """Release it."""
        return self.command_steps(claims.Release, event_id, by=self.claim.by, back=back)

    def fail_steps(self, reason: str, delay: Duration | None = None, event_id: str | None = None) -> Step[Observation]:
        """Release it for another attempt after a while, or send it to review after the last one."""
        ms = round(self._delay() * 1000) if delay is None else delay_ms(delay, "delay")
        reason = reason_text(reason)
        if self.attempt >= self._terms.max_attempts:
            after = yield from self.give_up_steps(self.attempt, reason, event_id)
        else:
            after = yield from self.release_steps(ReleaseTerms(ms, reason=reason), event_id)
        counts.jobs["failed"] += 1
        return after

    def give_up_steps(self, attempts: int, reason: str, event_id: str | None = None) -> Step[Observation]:
        """Send it to review with the reason; if its lifecycle has no review, release it with the longest delay."""
        reason = f"gave up after {attempts} attempt{'s' if attempts > 1 else ''}: {reason}"
        try:
            return (yield from self.transition_steps(change.Review, reason, event_id))
        except (InvalidField, InvalidTransition, EventIdReused):
            # EventIdReused: an earlier attempt released it under this id, or the release below refuses the id
            return (yield from self.release_steps(ReleaseTerms(round(MAX_DELAY * 1000), reason=reason), event_id))

    def settle_steps(self, problem: BaseException | None) -> Step[Observation]:
        """Fail it for an exception or a missing outcome of its handler; release it untried on an interrupt."""
        if problem is None or isinstance(problem, Exception):
            return self.fail_steps(NO_OUTCOME if problem is None else reason_of(problem))
        return self.release_steps(UNTRIED)

    def _delay(self) -> float:
        return retry_seconds(self._terms.retry_delay, self.attempt) * JITTER.uniform(0.8, 1.2)

    def command_steps(
        self, kind: type[Command], event_id: str | None, follow_up: Command | None = None, **arguments: Any
    ) -> Step[Observation]:
        """Run a command on it, with that command's own fields."""
        self._is_writing = True
        arguments |= {"id": self.id, "event_id": event_id, "fence": self.fence}
        try:
            after = yield from execute(self._core, self.page, kind, arguments, follow_up)
            if after.version >= self.observation.version:  # a retry returns an older version
                self.observation = after
            claim = self.observation.claim
            self._is_over = claim is None or claim.fence != self.fence
        except (StaleFence, NotClaimed):
            self._is_lost = True
            raise
        finally:
            self._is_writing = False
        return self.observation

    # -- for the keeper ------------------------------------------------------------------------------------------------

    def is_due(self, now: float) -> bool:
        """Return whether to renew the claim; renewal ends once the handler has taken too long.

        During a write, which may end the claim, it waits until half of the claim is over, and not for the end of the
        write: that may take seconds, and a handler may do nothing but write.
        """
        return (
            self.is_out
            and now - self._renewed_at > self._ttl_ms / (2000 if self._is_writing else 3000)
            and now - self._started_at < self._terms.handler_timeout
            and now >= self._not_before
        )

    def keep(self) -> Step[None]:
        """Renew the claim without waiting for replicas, which would delay the renewals of other jobs."""
        started_at = time.monotonic()
        try:
            arguments = {"id": self.id, "by": self.claim.by, "ttl": self._ttl_ms / 1000, "fence": self.fence}
            self.claim = yield from claims.claim(self._core, self.page, arguments, replica_ms=0)
            self._renewed_at = started_at
        except (Claimed, StaleFence, InvalidTransition, NotFound) as problem:
            if self.is_out and not self._is_writing:  # else it ended regularly
                self._is_lost = True
                logger.warning("lost a claim", observation=self.id, reason=str(problem))
        except TRANSIENT_ERRORS:
            self._not_before = started_at + NAP


def claim_next(
    make_job: Callable[[Picked], H],
    core: Core,
    page: str,
    types: str | Collection[str] | None,
    tags: str | Collection[str] | None,
    by: str | None,
    ttl: Duration,
    event_id: str | None,
) -> Step[H | None]:
    """Claim the next observation of a page, and return the result of `make_job` for it; None without one."""
    found = yield from claims.pick(core, page, PickFilter.of(types, tags), by, ttl, event_id=event_id)
    return make_job(found) if isinstance(found, Picked) else None
