"""The rows of the result: a figure, the one it is compared with, and the floor it has to reach."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from statistics import median
from typing import Literal, Self, TypedDict, Unpack

from tests.benchmarks.measure import Spread, Taken, pairwise

Unit = Literal["per second", "seconds", "bytes", "score"]


@dataclass(frozen=True, slots=True)
class Floor:
    """A bound of a row: its ratio, or our figure alone, must be at least or at most `value`."""

    of: Literal["ratio", "ours"]
    bound: Literal["at least", "at most"]
    value: float

    def holds(self, figure: float) -> bool:
        """Return whether a figure is within the bound."""
        return figure >= self.value if self.bound == "at least" else figure <= self.value


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `ratio` is always ours / theirs, of rates or of times as `unit` says."""

    what: str
    against: str
    unit: Unit
    ours: float
    theirs: float | None = None
    ratio: Spread | None = None
    floor: Floor | None = None
    note: str = ""
    samples: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def of_scores(cls, what: str, against: str, ours: float, theirs: float, floor: Floor, note: str = "") -> Self:
        """Return the row that compares two scores from 0 to 1. More is better."""
        ratio = ours / theirs if theirs else float("inf")
        return cls(what, against, "score", ours, theirs, Spread(ratio, ratio, ratio), floor, note)

    @property
    def reached(self) -> bool | None:
        """Whether the floor is reached; None without a floor."""
        if self.floor is None:
            return None
        if self.floor.of == "ours":
            return self.floor.holds(self.ours)
        return self.ratio is not None and self.floor.holds(self.ratio.median)


class _Words(TypedDict, total=False):
    """What else a row says; without `what` and `against`, it has the names of its sides."""

    what: str
    against: str
    floor: Floor | None
    note: str


def rates(taken: Taken, ours: str, theirs: str, **words: Unpack[_Words]) -> Row:
    """Return the row that compares two sides by operations per second. More is better."""
    row = times(taken, ours, theirs, **words)
    ratio = pairwise(*([1 / sample for sample in taken[side]] for side in (ours, theirs)))
    return replace(row, unit="per second", ours=1 / row.ours, theirs=1 / median(taken[theirs]), ratio=ratio)


def times(taken: Taken, ours: str, theirs: str, **words: Unpack[_Words]) -> Row:
    """Return the row that compares two sides by seconds per operation. Less is better."""
    return Row(
        words.get("what", ours),
        words.get("against", theirs),
        "seconds",
        median(taken[ours]),
        median(taken[theirs]),
        pairwise(taken[ours], taken[theirs]),
        words.get("floor"),
        words.get("note", ""),
        {"ours": taken[ours], "theirs": taken[theirs]},
    )
