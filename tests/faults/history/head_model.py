"""A model of the head of one observation: version, status, claim and fence, and the effect of each operation.

It ignores how a holder is stored: the claimant is the holder, and only the holder's fence is accepted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from tests.faults.history.logbook import FINAL, NEXT

OPEN = ("active", "pending_review")
TARGETS = {"resolve": "resolved", "review": "pending_review", "reopen": "active"}

Kind = Literal["add", "read", "claim", "release", "update", "link", "resolve", "review", "reopen", "event"]


_TOLD = ("fence", "expected", "refused", "version", "at_most", "fence_given", "status", "holder")


@dataclass(frozen=True)
class Act:
    """An operation on one observation: the process, its guards, the times of call and answer, and the answer.

    `refused` is the name of the error. `version` and `fence_given` are from the answer, or None. An answer may include
    changes made right after the operation: then its own version is `at_most` that of the answer. A claim that the
    operation grants or renews ends at the earliest at `may_end` and at the latest at `must_end`.
    """

    kind: Kind
    who: str = ""
    fence: int | None = None
    expected: int | None = None
    refused: str = ""
    version: int | None = None
    at_most: int | None = None
    fence_given: int | None = None
    status: str = ""
    holder: str | None = None
    keyed: bool = False
    call: float = 0.0
    ret: float = inf
    may_end: float = 0.0
    must_end: float = inf

    def __str__(self) -> str:
        told = [
            f"{name} {value}" for name in _TOLD
            if (value := getattr(self, name)) not in (None, "")
        ]  # fmt: skip
        return f"{self.kind} by {self.who or 'time'} ({', '.join(told)})"


@dataclass(frozen=True)
class Head:
    """The state of an observation between operations; version 0 means that it does not exist."""

    version: int = 0
    status: str = ""
    holder: str = ""
    fence: int = 0
    may_end: float = 0.0
    must_end: float = inf


def step(head: Head, act: Act) -> Head | None:
    """Return the head after an operation, or None if its answer is impossible in this state."""
    if act.refused:
        return head if _may_be_refused(head, act) else None
    if act.kind == "read":
        return head if head.version == act.version else None
    after = _added(head, act) if act.kind == "add" else _changed(head, act)
    if after is None or (act.version is not None and after.version != act.version):
        return None
    if act.at_most is not None and after.version > act.at_most:
        return None
    return after


def _added(head: Head, act: Act) -> Head | None:
    if head.version == 0:
        return Head(1, "active")
    return replace(head, version=head.version + 1) if act.keyed and head.status in OPEN else None


def _changed(head: Head, act: Act) -> Head | None:
    if head.version == 0 or (act.expected is not None and act.expected != head.version):
        return None
    if head.status == FINAL and act.kind not in ("link", "event"):
        return None  # an archived observation can still be linked
    after = replace(head, version=head.version + 1)
    if act.kind == "event":
        return _happened(after, act)
    if act.kind == "link":
        return after
    if act.fence is not None:
        if not _may_hold(head, act):
            return None
    elif act.kind == "claim":
        if head.holder:
            return None  # the previous claim must end first
    elif _surely_held_by_another(head, act):
        return None
    if act.kind == "claim":
        fence = head.fence + (act.fence is None)
        if act.fence_given not in (None, fence):
            return None
        return replace(after, holder=act.who, fence=fence, may_end=act.may_end, must_end=act.must_end)
    if act.kind == "release":
        return _unheld(after)
    if act.kind in TARGETS:
        return _turned(after, TARGETS[act.kind]) if TARGETS[act.kind] in NEXT.get(head.status, ()) else None
    return after


def _happened(after: Head, act: Act) -> Head:
    """Return the head after an event of no recorded operation, such as an expiry or a write of a killed process."""
    if act.holder:  # a claim or a renewal
        if not act.fence:
            after = replace(after, holder=act.holder, fence=after.fence + 1)
        return replace(after, may_end=act.may_end, must_end=act.must_end)
    if act.holder == "":
        return _unheld(after)
    return _turned(after, act.status) if act.status else after


def _turned(after: Head, status: str) -> Head:
    after = replace(after, status=status)
    return after if status in OPEN else _unheld(after)


def _unheld(after: Head) -> Head:
    return replace(after, holder="", may_end=0.0, must_end=inf)


def _may_hold(head: Head, act: Act) -> bool:
    """Return whether the process may hold the claim with this fence."""
    return head.holder == act.who and head.fence == act.fence and act.call <= head.must_end


def _surely_held_by_another(head: Head, act: Act) -> bool:
    return head.holder not in ("", act.who) and act.ret < head.may_end


def _may_be_refused(head: Head, act: Act) -> bool:
    """Return whether an operation may be refused with this error; True for errors that the model does not know."""
    match act.refused:
        case "VersionConflict":
            return head.version != act.expected
        case "InvalidTransition" if act.kind in TARGETS:
            return TARGETS[act.kind] not in NEXT.get(head.status, ())
        case "Claimed":
            return head.holder not in ("", act.who) and act.call <= head.must_end
        case "StaleFence" if act.fence is not None:
            return not (head.holder == act.who and head.fence == act.fence and act.ret < head.may_end)
    return True
