"""Facts without an engine: the events of a log, folded into an index."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from scratchbus.domain.events import Event, FactAsserted, FactRetracted
from scratchbus.domain.relation_registry import Relation, RelationRegistry
from scratchbus.domain.values import moment
from scratchbus.readmodel.fact_index import FactIndex

BEGIN_MS = 1_795_256_156_929

RELATIONS = RelationRegistry(
    {
        "runs_on": Relation("runs_on", values="one"),
        "uses": Relation("uses", inverse="used_by"),
        "depends_on": Relation("depends_on", transitive=True, inverse="needed_by"),
        "partner_of": Relation("partner_of", values="one", symmetric=True),
        "knows": Relation("knows", symmetric=True),
    }
)


class Log:
    """A log of facts, and its index."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def assert_fact(self, subject: str, relation: str, object: str, by: str = "tester", **fields: Any) -> str:
        """Append an assertion; return the id of the fact."""
        id = f"fact_{BEGIN_MS + len(self.events)}"
        self._append(FactAsserted(by=by, about=subject, relation=relation, object=object, **fields), id)
        return id

    def retract(self, id: str) -> None:
        """Append a retraction."""
        self._append(FactRetracted(by="tester", reason="wrong"), id)

    def _append(self, event: Event, subject: str) -> None:
        seq = len(self.events) + 1
        self.events.append(event.placed(id=f"e{seq}", page="knowledge:p", subject=subject, ms=BEGIN_MS + seq, seq=seq))

    def index(self, until: int | None = None) -> FactIndex:
        """Return the index of the first `until` events, or of all."""
        index = FactIndex(RELATIONS)
        index.loaded()
        for event in self.events[:until]:
            index.evolve(event)
        return index


def day(number: int) -> datetime:
    """Return a day long before the log began."""
    return moment(number * 86_400_000)
