"""A priority queue of pages, in which a worker looks for the next one to pick from."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import NamedTuple

_SPARE = 64  # outdated entries of a heap that are always allowed, so that a few pages do not rebuild it all the time


class Ranked(NamedTuple):
    """A page and its rank. Of equal ranks, the one that was set first comes first."""

    rank: float
    number: int
    page: str


class RankedPages:
    """A priority queue of pages whose ranks change: each operation takes O(log n) for n pages.

    An entry whose page has got another rank stays in the heap until it comes first, or until such entries are the
    majority.
    """

    def __init__(self) -> None:
        self._heap: list[Ranked] = []
        self._current: dict[str, Ranked] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._current)

    def __setitem__(self, page: str, rank: float) -> None:
        """Rank a page; one that has this rank already keeps its turn."""
        current = self._current.get(page)
        if current is None or current.rank != rank:
            self._current[page] = entry = Ranked(rank, next(self._numbers), page)
            heappush(self._heap, entry)
            if len(self._heap) > 2 * len(self._current) + _SPARE:
                self._heap = list(self._current.values())
                heapify(self._heap)

    def clear(self) -> None:
        """Remove all pages."""
        self._heap.clear()
        self._current.clear()

    def discard(self, page: str) -> None:
        """Remove a page, if it is there."""
        self._current.pop(page, None)

    def first(self) -> Ranked | None:
        """Return the page with the lowest rank; None if there is no page."""
        heap, current = self._heap, self._current
        while heap and current.get(heap[0].page) is not heap[0]:
            heappop(heap)
        return heap[0] if heap else None

    def second_rank(self) -> float | None:
        """Return the rank of the page after the first; None if there is none."""
        first = self.first()
        if first is None:
            return None
        heappop(self._heap)
        second = self.first()
        heappush(self._heap, first)
        return None if second is None else second.rank
