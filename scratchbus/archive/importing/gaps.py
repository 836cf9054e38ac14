"""The numbers of events that a file does not have: tombstones later in it have to explain every one."""

from __future__ import annotations

from array import array
from bisect import bisect_right


class Gaps:
    """The gaps of one log, as ranges, and which of the events in them were erased."""

    def __init__(self) -> None:
        self._firsts, self._lasts, self._lines, self._left = array("q"), array("q"), array("q"), array("q")
        self._erased: set[int] = set()

    def add(self, first: int, last: int, line: int) -> None:
        """Note that the events of these numbers are missing before a line."""
        for numbers, number in zip(
            (self._firsts, self._lasts, self._lines, self._left), (first, last, line, last - first + 1), strict=True
        ):
            numbers.append(number)

    def explain(self, seq: int) -> bool:
        """Note that an event was erased; return False if it is not missing."""
        at = bisect_right(self._firsts, seq) - 1
        if at < 0 or seq > self._lasts[at]:
            return False
        if seq not in self._erased:
            self._erased.add(seq)
            self._left[at] -= 1
        return True

    def unexplained(self) -> tuple[int, int] | None:
        """Return the line before which events are missing that nothing explains, and how many; None if none are."""
        return next(((line, left) for line, left in zip(self._lines, self._left, strict=True) if left), None)

    def erased(self) -> list[int]:
        """Return the numbers of what was erased, in order."""
        return sorted(self._erased)
