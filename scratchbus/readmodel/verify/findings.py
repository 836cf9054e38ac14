"""The findings of a verification."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

MAX_FINDINGS = 1_000
"""How many findings are listed; the others are only counted."""

_ADVICE = {
    kind: advice
    for kinds, advice in (
        ("document paged index due relation position snapshot rejected checkpoint", "run `scratchbus rebuild`"),
        ("event", "find out who wrote it, upgrade, then run `scratchbus rebuild`"),
        ("head room key page id gap order batch chain tail floor erased", "restore a backup of the engine"),
        (
            "archive",
            "restore the file from a copy, or make it readable if it is not; if it is beyond its log,"
            " `scratchbus log-archive run` says what to do",
        ),
        (
            "archived",
            "run `scratchbus log-archive run`, which records the end again; if the archive lacks events, restore them"
            " from a copy first",
        ),
        ("cursor", "delete this key: expirers then read the log again from its start, and repeat no reminder"),
        (
            "subscription",
            "unsubscribe it if it still has a cursor, then declare it again from before the events that it missed",
        ),
        ("kept", "publish the types or relations again, with a change, which writes a new event"),
        ("import", "import the same file again"),
        ("foreign", "find out who added it, then run `scratchbus repair`"),
        ("unknown", "find out who wrote it; restore a backup if the number of shards was lost or changed"),
    )
    for kind in kinds.split()
}


class Finding(NamedTuple):
    """A difference between the engine and the log.

    `kind` is one of: gap, order, batch, chain, event, tail, floor, erased, checkpoint, head, room, key, page, id,
    document, paged, index, due, relation, position, snapshot, rejected, kept, foreign, archive, archived, cursor,
    subscription, import, unknown.
    `where` is the key with the member, the position in the log, or the file; `what` describes the fault.
    """

    kind: str
    where: str
    what: str

    @property
    def advice(self) -> str:
        """What to do about all findings of this kind."""
        return _ADVICE[self.kind]


@dataclass(slots=True)
class Verified:
    """How much was compared, and the first findings; `count` is the number of all findings."""

    events: int = 0
    documents: int = 0
    pages: int = 0
    count: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether nothing was found."""
        return self.count == 0

    def take(self, other: Verified) -> None:
        """Add the result of another shard."""
        self.events += other.events
        self.documents += other.documents
        self.pages += other.pages
        self.count += other.count
        self.findings += other.findings[: MAX_FINDINGS - len(self.findings)]

    def add(self, kind: str, where: str, what: str) -> None:
        """Add a finding."""
        self.count += 1
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(Finding(kind, where, what))
