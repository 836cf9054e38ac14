"""A log of a round, and the state of each observation after each event.

Events are parsed and folded from their raw text, without any code of the library that is judged.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

Subject = tuple[str, str]
"""The page and the id of an observation."""

FINAL = "archived"
NEXT = {
    "active": {"pending_review", "resolved", "archived"},
    "pending_review": {"active", "resolved", "archived"},
    "resolved": {"active", "pending_review", "archived"},
}
"""The allowed transitions; the types of these rounds have the default lifecycle."""


class Entry(NamedTuple):
    """One event of a log; `text` is its body."""

    ms: int
    seq: int
    id: str
    page: str
    subject: str
    kind: str
    type: str
    batch: str
    text: str

    @property
    def about(self) -> Subject:
        return self.page, self.subject

    @property
    def body(self) -> dict[str, Any]:
        """The parsed body."""
        body: dict[str, Any] = json.loads(self.text)
        return body

    @property
    def is_batch_end(self) -> bool:
        index, _, total = self.batch.partition("/")
        return index == total

    def __str__(self) -> str:
        return f"{self.ms}-{self.seq} {self.kind} of {self.subject} ({self.id})"


def read_log(raw: Iterable[Any]) -> list[Entry]:
    """Return the entries of a stream from the reply of XRANGE."""
    return [_entry(id.decode(), flat) for id, flat in raw]


def _entry(id: str, flat: list[bytes]) -> Entry:
    fields = {flat[at].decode(): flat[at + 1].decode() for at in range(0, len(flat), 2)}
    ms, _, seq = id.partition("-")
    given = (fields[name] for name in ("id", "page", "subject", "kind", "type", "batch", "event"))
    return Entry(int(ms), int(seq), *given)


@dataclass(frozen=True)
class State:
    """The state of an observation after one of its events."""

    version: int = 0
    status: str = "active"
    content: str = ""
    occurrences: int = 1
    links: tuple[str, ...] = ()
    fence: int = 0
    holder: str = ""
    until: int = 0

    def is_held(self, ms: int) -> bool:
        """Return whether a claim is live at this time of the engine."""
        return bool(self.holder) and self.until > ms


def after(before: State | None, entry: Entry) -> State:
    """Return the state of an observation after an event."""
    body = entry.body
    if before is None:
        return State(1, body.get("status", "active"), body.get("content", ""), body.get("times", 1))
    state = replace(before, version=before.version + 1)
    match entry.kind:
        case "updated":
            return replace(state, content=body["changes"].get("content", state.content))
        case "repeated":
            return replace(state, occurrences=state.occurrences + body.get("times", 1))
        case "status_changed":
            held: dict[str, Any] = {} if body["status_class"] == "open" else {"holder": "", "until": 0}
            return replace(state, status=body["status"], **held)
        case "claimed":
            fence = state.fence + ("fence" not in body)
            return replace(state, fence=fence, holder=body["holder"], until=entry.ms + body["ttl"])
        case "released" | "lapsed":
            return replace(state, holder="", until=0)
        case "linked" if body["action"] not in state.links:
            return replace(state, links=(*state.links, body["action"]))
    return state


class Turn(NamedTuple):
    """An event, and the state of its observation before and after."""

    entry: Entry
    before: State | None
    after: State


class Logbook:
    """A log with its indexes."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries = list(entries)

    @cached_property
    def turns(self) -> dict[int, Turn]:
        """Every event about an observation, by its seq."""
        turns, now = {}, dict[Subject, State]()
        for entry in self.entries:
            if entry.subject != "types":
                before = now.get(entry.about)
                now[entry.about] = after(before, entry)
                turns[entry.seq] = Turn(entry, before, now[entry.about])
        return turns

    @cached_property
    def seqs(self) -> dict[Subject, list[int]]:
        """The seqs of all versions of each observation, from version 1 on."""
        seqs = defaultdict(list)
        for entry in self.entries:
            seqs[entry.about].append(entry.seq)
        return dict(seqs)

    @cached_property
    def added(self) -> dict[str, list[int]]:
        """The seqs of additions to each page."""
        added = defaultdict(list)
        for entry in self.entries:
            if entry.kind == "added":
                added[entry.page].append(entry.seq)
        return dict(added)

    @cached_property
    def claims(self) -> dict[str, list[Entry]]:
        """The events that granted or renewed claims, by observation id."""
        claims = defaultdict(list)
        for entry in self.entries:
            if entry.kind == "claimed":
                claims[entry.subject].append(entry)
        return dict(claims)

    @cached_property
    def by_seq(self) -> dict[int, Entry]:
        return {entry.seq: entry for entry in self.entries}

    @cached_property
    def by_id(self) -> dict[str, Entry]:
        return {entry.id: entry for entry in self.entries}

    def has(self, at: list[int], id: str | None = None) -> bool:
        """Return whether the log has an event at this position (ms and seq), with this id if one is given.

        After a failover, another event may have the seq of a lost one, and with a slow clock the same ms too.
        """
        ms, seq = at
        entry = self.by_seq.get(seq)
        return entry is not None and entry.ms == ms and id in (None, entry.id)
