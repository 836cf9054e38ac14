"""LangGraph's store: ours, which is durable and shared, against its own in-memory store."""

from __future__ import annotations

from itertools import count

from langgraph.store.base import BaseStore, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from scratchbus.adapters.langgraph import ScratchbusStore
from tests.benchmarks.measure import Side, interleave
from tests.benchmarks.rows import Floor, Row, times
from tests.benchmarks.stage import Sizes, Stage

_USERS = 100
_BATCH = 1_000
_SEARCHES = 20


def measure_langgraph(stage: Stage, sizes: Sizes) -> list[Row]:
    """Put many items in batches, and search among them by namespace and by a filter."""
    bus, numbers, items = stage.bus("langgraph"), count(), sizes.notes
    ours: list[BaseStore] = []
    theirs: list[BaseStore] = []

    def put(store: BaseStore) -> None:
        for first in range(0, items, _BATCH):
            store.batch([_put(number) for number in range(first, min(first + _BATCH, items))])

    def search(store: BaseStore) -> None:
        for number in range(_SEARCHES):
            (found,) = store.batch([SearchOp(("users",), {"number": {"$eq": items - 1 - number}})])
            assert len(found) == 1  # type: ignore[arg-type]  # a search returns a list
            assert store.search(("users", str(number % _USERS)), limit=5)

    def both(store: BaseStore) -> None:
        put(store)
        search(store)

    def new_ours() -> None:
        ours[:] = [ScratchbusStore(bus, name=f"s{next(numbers)}")]

    def new_theirs() -> None:
        theirs[:] = [InMemoryStore()]

    mine, its = "ScratchbusStore", "InMemoryStore"
    rows = []
    for what, work, per, floor in (
        (f"put {items:,} items, then search {2 * _SEARCHES} times", both, 1, Floor("ratio", "at most", 5.0)),
        (f"put {items:,} items in batches of {_BATCH:,}, each", put, items, None),
    ):
        taken = interleave(
            sizes.rounds,
            Side(mine, per, lambda work=work: work(ours[0]), new_ours),  # type: ignore[misc]
            Side(its, per, lambda work=work: work(theirs[0]), new_theirs),  # type: ignore[misc]
        )
        rows.append(times(taken, mine, its, what=f"LangGraph: {what}", floor=floor))
    for stores, renew in ((ours, new_ours), (theirs, new_theirs)):
        renew()
        put(stores[0])
        assert stores[0].search(("users",))
    taken = interleave(
        sizes.rounds,
        Side(mine, 2 * _SEARCHES, lambda: search(ours[0])),
        Side(its, 2 * _SEARCHES, lambda: search(theirs[0])),
    )
    floor = Floor("ratio", "at most", 5.0)
    return [*rows, times(taken, mine, its, what=f"LangGraph: search among {items:,} items", floor=floor)]


def _put(number: int) -> PutOp:
    value = {"text": f"the user said in {number} that they like it hot", "number": number}
    return PutOp(("users", str(number % _USERS)), f"memory-{number}", value)
