"""The eventsourcing library on a SQLite file: appending the same observations as we do, and replaying them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate

from tests.benchmarks.audit import replay
from tests.benchmarks.measure import Side, interleave
from tests.benchmarks.peers.ours import ours
from tests.benchmarks.rows import Floor, Row, rates
from tests.benchmarks.stage import BATCH, Stage, given

CHUNK = 1_000
"""How many events a replay reads at once: as many as ours."""


class Observed(Aggregate):  # type: ignore[misc]  # mypy does not see the library
    """An observation, as an aggregate of the library."""

    def __init__(self, type: str, content: str, tags: list[str]) -> None:
        self.type = type
        self.content = content
        self.tags = tags


def measure_eventsourcing(stage: Stage, rounds: int, events: int) -> list[Row]:
    """Compare appending, one at a time and in batches, and replaying: reading, decoding and folding all events."""
    with asyncio.Runner() as runner, TemporaryDirectory(prefix="scratchbus-peer-") as name:
        directory = Path(name)
        appended, replayed = _open(directory / "appended.db"), _open(directory / "replayed.db")
        items = [given(number) for number in range(events)]
        _save_many(replayed, items)

        def side(name: str, work: Any) -> Side:
            return Side(f"eventsourcing {name}", events, work)

        with ours(stage, runner, events, lambda: None) as mine:
            followed = stage.bus("consumed")
            published = interleave(
                rounds,
                mine.publish,
                mine.publish_many,
                side("app.save", lambda: _save_each(appended, items)),
                side(f"app.save of {BATCH}", lambda: _save_many(appended, items)),
            )
            folded = interleave(
                rounds,
                Side("replay: read, decode, fold", events, lambda: replay(followed)),
                side("select_notifications, mutate", lambda: _replay(replayed, events)),
            )
        appended.close()
        replayed.close()
    add, add_many, save, save_many = published
    floor = Floor("ratio", "at least", 3)
    return [
        rates(published, add, save, floor=floor, note="SQLite syncs each commit to the disk, the engine once a second"),
        rates(published, add_many, save_many, floor=floor),
        rates(folded, *folded, floor=floor),
    ]


def _open(file: Path) -> Application[UUID]:
    return Application(env={"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(file)})


def _save_each(app: Application[UUID], items: list[dict[str, Any]]) -> None:
    for item in items:
        app.save(Observed(**item))


def _save_many(app: Application[UUID], items: list[dict[str, Any]]) -> None:
    for first in range(0, len(items), BATCH):
        app.save(*[Observed(**item) for item in items[first : first + BATCH]])


def _replay(app: Application[UUID], events: int) -> None:
    """Fold all events."""
    aggregates: dict[Any, Any] = {}
    start: int | None = 1
    while start is not None:
        found = app.recorder.select_notifications(start, CHUNK)
        for notification in found:
            event: Any = app.mapper.to_domain_event(notification)
            aggregates[event.originator_id] = event.mutate(aggregates.get(event.originator_id))
        start = found[-1].id + 1 if found else None
    assert len(aggregates) == events
