"""Conclusions from facts: when each is true, which entities they connect, and why each is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from pydantic import Field

from scratchbus.domain.documents import document_of
from scratchbus.domain.event import Event
from scratchbus.domain.facts import Fact
from scratchbus.domain.models import Immutable
from scratchbus.domain.observation import Observation
from scratchbus.domain.quoting import on_one_line

SpanState = Literal["valid", "contested", "superseded", "retracted"]


class Span(Immutable):
    """A fact, and when it is true according to all known facts.

    It is valid from `begins` up to, but not including, `ends` (None: no known end); `ended_by` is the id of the fact
    that replaced it, if any. In any other state it is never valid: `contested` if sources disagree about the same time,
    `superseded` if the same time was asserted again, and `retracted`. `contested_by` has the ids of the facts that
    disagree.
    """

    fact: Fact
    begins: datetime
    ends: datetime | None = None
    state: SpanState = "valid"
    ended_by: str | None = None
    contested_by: list[str] = Field(default_factory=list)

    def holds(self, at: datetime) -> bool:
        """Return whether the fact is true at a time."""
        return self.state == "valid" and self.begins <= at and (self.ends is None or at < self.ends)


class Neighbour(Immutable):
    """An entity connected with another, its distance in facts, and the last fact on the path to it."""

    entity: str
    distance: int
    fact: Fact


@dataclass(frozen=True, slots=True)
class Why:
    """Why a fact is known: who asserted it and when, what it rests on, and when it is true.

    `events` are the events about the fact, oldest first, and `evidence` the observations that it rests on, as far as a
    page still has them; `unread` counts those that were not read.
    """

    span: Span
    events: Sequence[Event]
    evidence: Sequence[Observation]
    unread: int = 0

    @property
    def fact(self) -> Fact:
        """The fact."""
        return self.span.fact

    def text(self, *, count: int | None = None, length: int | None = None) -> str:
        """Return the answer in a few lines, of which no text that someone wrote can imitate one.

        Shows at most `count` observations, and as many contesting facts, and the first `length` characters of each
        text; says what it leaves out.
        """
        fact, span = self.fact, self.span
        lines = [f"{fact.triplet} ({span.state})", f"asserted by {fact.source} at {_time(fact.created_at)}, {fact.id}"]
        if fact.source_text is not None:
            lines.append(f"from the text: {_quoted(fact.source_text, length)}")
        lines += [
            f"rests on {each.id} from {each.source} ({each.status}): {_quoted(each.content, length)}"
            for each in self.evidence[:count]
        ]
        if left_out := self.unread + len(self.evidence[count:] if count is not None else ()):
            lines.append(f"rests on {left_out:,} more, left out here")
        lines.append(f"valid from {_time(span.begins)}" + (f" until {_time(span.ends)}" if span.ends else ""))
        if span.ended_by is not None:
            lines.append(f"ended by {span.ended_by}")
        if span.contested_by:
            lines.append(f"contested by {_listed(span.contested_by, count)}; retract what is wrong")
        if fact.retraction is not None:
            lines.append(f"retracted by {fact.retraction.by}: {_quoted(fact.retraction.reason, length)}")
        return "\n".join(lines)


@document_of.register
def _(span: Span) -> dict[str, Any]:
    return {"fact": document_of(span.fact), **span.model_dump(mode="json", exclude={"fact"})}


@document_of.register
def _(neighbour: Neighbour) -> dict[str, Any]:
    return {"entity": neighbour.entity, "distance": neighbour.distance, "fact": document_of(neighbour.fact)}


@document_of.register
def _(why: Why) -> dict[str, Any]:
    return {
        **document_of(why.span),
        "events": [document_of(each) for each in why.events],
        "evidence": [document_of(each) for each in why.evidence],
    }


def _quoted(text: str, length: int | None) -> str:
    """Return a text on one line, cut to this many characters."""
    left_out = len(text) - length if length is not None else 0
    return on_one_line(text) if left_out <= 0 else f"{on_one_line(text[:length])} (… {left_out:,} characters left out)"


def _listed(ids: Sequence[str], count: int | None) -> str:
    """Return the first ids of a list, and how many more there are."""
    left_out = len(ids) - count if count is not None else 0
    return ", ".join(ids) if left_out <= 0 else f"{', '.join(ids[:count])} and {left_out:,} more"


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


class Triplet(NamedTuple):
    """A fact that an extractor found in a text; `source_text` is the part of the text that states it."""

    subject: str
    relation: str
    object: str
    source_text: str | None = None


Extractor = Callable[[str], Iterable[Triplet | tuple[str, str, str] | Mapping[str, Any]]]
"""A function that finds triplets in a text, for example by calling a language model."""
