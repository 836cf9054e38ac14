"""The commits of successive chunks of a log, each of which may be sent before its outcome is needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from scratchbus.engine.steps import Send, Sent, Step
from scratchbus.errors import EngineForbidden, EngineFull, EngineReadOnly
from scratchbus.eventlog.checkpoint import Checkpoint, Commit, Outcome, commit
from scratchbus.telemetry.counters import counts
from scratchbus.telemetry.tracing import TraceSpan

NO_COMMIT = (EngineReadOnly, EngineForbidden, EngineFull)
"""The errors with which an engine that serves reads refuses a commit."""


class FoldStep(NamedTuple):
    """The outcome of one step: how many events were folded, whether that was all, and whether it was committed.

    `pages` says how many of them belong to each page.
    """

    events: int
    is_all: bool
    outcome: Outcome
    pages: Mapping[str, int] = {}


class Folded(NamedTuple):
    """A folded chunk: the commit to make, and how many events of each page are in it."""

    commit: Commit
    pages: Mapping[str, int]
    span: TraceSpan | None = None


class Commits:
    """The commits of successive chunks: `checkpoint` is the last committed one, `step` their outcome so far."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.step = FoldStep(0, False, Outcome.DONE)
        self._sent: tuple[Folded, Sent] | None = None

    def send(self, folded: Folded) -> Step[None]:
        """Send a commit without waiting for its outcome; `settle` does."""
        self._sent = folded, (yield Send(folded.commit.call))

    def settle(self) -> Step[bool]:
        """Wait for the commit that was sent, if any; return whether all commits so far were made."""
        if self._sent is not None:
            sent, self._sent = self._sent, None
            yield from self.make(*sent)
        return self.step.outcome is Outcome.DONE

    def make(self, folded: Folded, sent: Sent | None = None) -> Step[None]:
        """Make a commit, unless it is `sent` already, and count its events."""
        outcome, self.checkpoint = yield from commit(folded.commit, sent)
        events = sum(folded.pages.values()) if outcome is Outcome.DONE else 0
        pages = Counter(self.step.pages) + Counter(folded.pages if events else {})
        self.step = FoldStep(self.step.events + events, False, outcome, pages)
        counts.commits[outcome.name.lower()] += 1
        counts.folded += events
        if folded.span is not None:
            folded.span.end(None if outcome is Outcome.DONE else outcome.name.lower())
