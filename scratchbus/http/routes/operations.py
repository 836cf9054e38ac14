"""Operations: the status of the bus, its archive, verification and rebuilding, and the metrics of this process."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any, Final

import anyio
from fastapi import APIRouter, Query, Request
from starlette.responses import PlainTextResponse, Response

from scratchbus import ArchiveStore, SegmentInfo, Status, archived_segments, open_archive, verify_archive
from scratchbus.daemon import render_metrics
from scratchbus.errors import ArchiveDamaged, ScratchbusError
from scratchbus.http import problems
from scratchbus.http.bodies import schema_of
from scratchbus.http.documents import answer
from scratchbus.http.progress import STREAM, answer_with_progress
from scratchbus.http.schemas import COUNT, FLAG, STRING, document, exact, listed, or_null
from scratchbus.http.server import AdminBus, CallerOf, ReadBus, ServerOf

OverGaps = Annotated[bool, Query(description="Whether to give up events that the log has lost.")]

router = APIRouter(tags=["operations"])
metrics = APIRouter(tags=["operations"])

PATIENCE: Final = 1.0
"""Seconds that the metrics and `/readyz` wait for the engine; after that the metrics lack the state of the bus."""

_STATUS: Final = document(
    "The status",
    schema_of(Status, "serialization"),
    {
        "bus": "scratchbus",
        "url": "redis://localhost:6379",
        "directory": None,
        "engine": "Redis",
        "version": "8.4.0",
        "memory_bytes": 1_927_472,
        "memory_limit_bytes": None,
        "persistence": "append-only file, last write ok",
        "risks": [],
        "registry_version": 3,
        "types": ["observation", "risk_alert"],
        "shards": [
            {
                "shard": 0,
                "events": 17,
                "end": "1795388845494-17",
                "checkpoint": "1795388845494-17",
                "lag": 0,
                "lag_seconds": 0.0,
                "rejected": 0,
                "missing": 0,
                "gaps": [],
                "floor": None,
                "foreign": 0,
            }
        ],
        "subscriptions": [],
        "page_count": 1,
        "open": 17,
        "pages": [{"page": "main", "open": 17, "claimed": 2}],
        "archive": None,
    },
)
_SEGMENT: Final = schema_of(SegmentInfo, "serialization")
_LOG: Final = exact(
    shard=COUNT,
    segments=COUNT,
    events=COUNT,
    erased=COUNT,
    bytes=COUNT,
    first=or_null(STRING),
    last=or_null(STRING),
    problems=listed(exact(file=STRING, problem=STRING)),
)
_NO_ARCHIVE: Final[dict[str, Any]] = {"where": None, "is_sound": True, "segments": [], "logs": []}
_ARCHIVE: Final = document(
    "The archive of this bus, null without one: its segments, and for each log whether its chain is complete",
    exact(
        where=or_null(STRING),
        is_sound=FLAG,
        segments=listed(_SEGMENT),
        logs=listed(_LOG),
    ),
    _NO_ARCHIVE,
)

_METRICS: Final = {
    "description": "The metrics, as Prometheus reads them",
    "content": {"text/plain": {"schema": STRING, "example": "scratchbus_up 1.0\n"}},
}


def _with_stream(described: dict[str, Any]) -> dict[str, Any]:
    """Return a response that may also be a stream of progress, for clients that accept it."""
    stream = 'event: progress\r\ndata: {"done":250,"total":1000}\r\n\r\nevent: result\r\ndata: {…}\r\n\r\n'
    content = {**described["content"], STREAM: {"schema": STRING, "example": stream}}
    return {**described, "content": content}


_VERIFIED: Final = _with_stream(
    document(
        "How much was compared, and the differences; the first 1,000 of them are listed",
        exact(
            is_sound=FLAG,
            **dict.fromkeys(("events", "documents", "pages", "count"), COUNT),
            findings=listed(exact(kind=STRING, where=STRING, what=STRING)),
        ),
        {"is_sound": True, "events": 1000, "documents": 61, "pages": 4, "count": 0, "findings": []},
    )
)
_REBUILT: Final = _with_stream(
    document(
        "How many events were folded, in how many seconds",
        exact(events=COUNT, seconds={"type": "number", "minimum": 0}),
        {"events": 1000, "seconds": 0.4},
    )
)


@router.get("/status", responses={200: _STATUS})
async def get_status(bus: ReadBus) -> Response:
    """Return the status of the engine, the logs, the projection, the subscriptions and the busiest pages."""
    return answer((await bus.status()).model_dump(mode="json"))


@router.get("/archive", responses={200: _ARCHIVE})
async def get_archive(bus: ReadBus) -> Response:
    """Return the segments of the archive, and whether their chain of hashes is whole; no segment is read."""
    url = bus.settings.archive_url
    if not url:
        return answer(_NO_ARCHIVE)
    store = open_archive(url)
    return answer(await anyio.to_thread.run_sync(_archive_of, store, bus.settings.bus))


def _archive_of(store: ArchiveStore, bus: str) -> dict[str, Any]:
    segments: list[dict[str, Any]] = []
    with suppress(ArchiveDamaged):  # the chain says where
        segments.extend(each.model_dump(mode="json") for each in archived_segments(store, bus))
    reports = verify_archive(store, only_chain=True, bus=bus)
    logs = [report.model_dump(mode="json", exclude={"bus"}) for report in reports]
    is_sound = not any(log["problems"] for log in logs)
    return {"where": store.where, "is_sound": is_sound, "segments": segments, "logs": logs}


@router.post("/verify", responses=problems.answers({200: _VERIFIED}, 410))
async def verify_bus(request: Request, bus: AdminBus) -> Response:
    """Compare everything the engine stores with what follows from the log; works while others write."""

    async def verify(report: Any) -> dict[str, Any]:
        found = await bus.verify(report)
        findings = [finding._asdict() for finding in found.findings]
        return {"is_sound": found.is_sound, **asdict(found), "findings": findings}

    return await answer_with_progress(request, verify)


@router.post("/rebuild", responses=problems.answers({200: _REBUILT}, 409, 410))
async def rebuild_bus(request: Request, bus: AdminBus, over_gaps: OverGaps = False) -> Response:
    """Fold the whole log into a new state, and switch to it; readers never see a gap.

    If the log has lost events that the state contains, the state stays unchanged, unless `over_gaps` gives them up.
    """

    async def rebuild(report: Any) -> dict[str, Any]:
        return (await bus.rebuild(report, over_gaps=over_gaps))._asdict()

    return await answer_with_progress(request, rebuild)


@metrics.get("/metrics", response_class=PlainTextResponse, responses=problems.answers({200: _METRICS}))
async def get_metrics(server: ServerOf, caller: CallerOf) -> Response:
    """Return the metrics of this process and of the bus, for Prometheus."""
    caller.need("read")
    status = None
    with anyio.move_on_after(PATIENCE), suppress(ScratchbusError):
        status = await (await server.own_bus()).status()
    text, media_type = await anyio.to_thread.run_sync(render_metrics, status)
    return Response(text, media_type=media_type)
