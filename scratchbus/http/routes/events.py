"""Events: a list of them, a stream of them (SSE), and how many there are over time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Query, Request
from pydantic import StringConstraints, WithJsonSchema
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from scratchbus import AsyncBus, BusPosition, Event, cloud_event, document_of
from scratchbus.http import examples, patterns, problems
from scratchbus.http.client_connections import ClientConnection, wait_until_gone
from scratchbus.http.documents import JSON, answer, next_page
from scratchbus.http.frames import CLOUD_EVENT, CLOUD_EVENTS, EventFilter, Vector, moved, text_of, vector_of
from scratchbus.http.metrics import open_stream
from scratchbus.http.parameters import Absent, AnyPage, AnyTime, AnyTypeName, Limit, Positive
from scratchbus.http.problems import Refusal
from scratchbus.http.progress import STREAM
from scratchbus.http.responses import EVENT, EVENT_KINDS
from scratchbus.http.schemas import DATE_TIME, STRING, component, document, exact, listed, or_null
from scratchbus.http.server import ReadBus, caller_of, server_of
from scratchbus.http.stream_group import EventStream
from scratchbus.http.streams import Streams

router = APIRouter(tags=["events"])

BUFFERED: Final = 16 * 1024
"""The most bytes that wait for a client which reads slowly."""

_TEXT_OR_NULL: Final = or_null(STRING)
_CLOUD_EXAMPLE: Final = {
    "specversion": "1.0",
    "id": "1795386035607-1",
    "source": "urn:scratchbus:default",
    "type": "scratchbus.added",
    "subject": examples.ID,
    "time": "2026-11-22T22:20:35.607000Z",
    "datacontenttype": "application/json",
    "page": "main",
    "position": "1795386035607-1",
    "by": "fraud_detector",
    "data": examples.ADDED_EVENT,
}
_CLOUD_EVENT: Final = component(
    "CloudEvent",
    {
        "type": "object",
        "required": ["specversion", "id", "source", "type"],
        "properties": {name: STRING for name in _CLOUD_EXAMPLE if name != "data"} | {"data": EVENT},
    },
)
_EVENTS: Final = document(
    "The events, oldest first. `next` is the cursor of later events, null at the end; `previous` that of earlier"
    " ones, when the last ones were requested; a stream continues after `position`",
    exact(
        items=listed(EVENT),
        next=_TEXT_OR_NULL,
        previous=_TEXT_OR_NULL,
        position=STRING,
    ),
    {"items": [examples.ADDED_EVENT], "next": None, "previous": None, "position": "1795386035607-1"},
)
_EVENTS["content"] |= {
    STREAM: {"schema": STRING, "example": "id: 1795386035607-1\nevent: added\ndata: {…}\n\n"},
    CLOUD_EVENTS: {"schema": listed(_CLOUD_EVENT), "example": [_CLOUD_EXAMPLE]},
}
_BUCKET: Final = exact(
    at=DATE_TIME,
    position=_TEXT_OR_NULL,
    count={"type": "integer"},
    kinds={"type": "object", "additionalProperties": {"type": "integer"}},
)
_TIME_OR_NULL: Final = or_null(DATE_TIME)
_HISTOGRAM: Final = document(
    "The number of events over time",
    exact(
        since=DATE_TIME,
        until=DATE_TIME,
        buckets=listed(_BUCKET),
        first=_TIME_OR_NULL,
        last=_TIME_OR_NULL,
        archived={"type": "integer", "description": "Events that are only in the archive, and are not counted."},
        sampled={"type": "boolean", "description": "Whether the counts of kinds are estimates."},
    ),
    {
        "since": "2026-11-22T22:00:00Z",
        "until": "2026-11-22T23:00:00Z",
        "buckets": [{"at": "2026-11-22T22:00:00Z", "position": "1795386035607-1", "count": 1, "kinds": {"added": 1}}],
        "first": "2026-11-22T22:20:35.607000Z",
        "last": "2026-11-22T22:20:35.607000Z",
        "archived": 0,
        "sampled": False,
    },
)


_KIND: Final = patterns.explain(
    f"a kind of event; use one of: {', '.join(EVENT_KINDS)}", f"^({'|'.join(EVENT_KINDS)})$"
)
AnyKind = Annotated[
    str,
    StringConstraints(pattern=_KIND),
    WithJsonSchema({"type": "string", "enum": [*EVENT_KINDS]}),
]
AnySubject = Annotated[str, StringConstraints(min_length=1, max_length=256)]
AnyPosition = Annotated[str, StringConstraints(pattern=patterns.BUS_POSITION)]
EventPosition = Annotated[str, StringConstraints(pattern=patterns.POSITION)]


async def _filter(
    page: Annotated[list[AnyPage], Query(description="Any of these pages.", examples=[["main"]])] = [],  # noqa: B006
    type: Annotated[list[AnyTypeName], Query(description="Any of these types.")] = [],  # noqa: B006
    kind: Annotated[list[AnyKind], Query(description="Any of these kinds.", examples=[["added"]])] = [],  # noqa: B006
    subject: Annotated[list[AnySubject], Query(description="Any of these subjects.")] = [],  # noqa: B006
) -> EventFilter:
    pages, types, kinds, subjects = (frozenset(each) or None for each in (page, type, kind, subject))
    return EventFilter(pages, types, kinds, subjects)


QueryFilter = Annotated[EventFilter, Depends(_filter)]


@router.get("/events", responses=problems.answers({200: _EVENTS}, 406, 409, 410))
async def list_events(
    request: Request,
    bus: ReadBus,
    event_filter: QueryFilter,
    after: Annotated[
        AnyPosition | Absent,
        Query(description="A position; the default is the beginning for a list, now for a stream."),
    ] = None,
    limit: Limit = 100,
    before: Annotated[
        EventPosition | Absent, Query(description="The position of an event: return the last ones before it.")
    ] = None,
    last: Annotated[Positive | Absent, Query(description="Return this many of the newest events.")] = None,
    last_event_id: Annotated[
        AnyPosition | Absent,
        Header(
            alias="Last-Event-ID",
            description="Where a stream continues: the last `id` received.",
            examples=["1795386035607-1"],
        ),
    ] = None,
) -> Response:
    """List events, or stream them as they happen (`Accept: text/event-stream`).

    Of a stream, `id` is the position of the bus, `event` the kind, and `data` the event. With the header
    `Last-Event-ID` it goes on behind a position, without a gap or a duplicate. The events `position-lost` and `rewound`
    say that some are missing: read the current state again. With `application/cloudevents+json` in `Accept`, events are
    CloudEvents.
    """
    kind = _accepted(request)
    if kind == STREAM:
        return await _stream(request, bus, event_filter, last_event_id or after)
    if before is not None or last is not None:
        if after is not None:
            raise Refusal(409, "conflicting-parameters", "after: cannot be combined with before or last", field="after")
        return _listed(kind, bus, await _newest(bus, event_filter, before, last or limit))
    return await _forward(request, kind, bus, event_filter, after, limit)


@router.get("/events/histogram", responses={200: _HISTOGRAM})
async def get_histogram(
    bus: ReadBus,
    since: Annotated[AnyTime | Absent, Query(description="The start; by default the first event.")] = None,
    until: Annotated[AnyTime | Absent, Query(description="The end; by default after the last event.")] = None,
    buckets: Annotated[int, Query(description="The number of buckets, all of the same length.", ge=1, le=1000)] = 120,
    page: Annotated[AnyPage | Absent, Query(description="Only the events of this page.", examples=["main"])] = None,
) -> Response:
    """Return how many events there are over time, by kind, for a time slider."""
    found = await bus.histogram(since=since, until=until, buckets=buckets, page=page)
    return answer(found.model_dump(mode="json"))


def _accepted(request: Request) -> str:
    """Return the media type to answer with. Raises Refusal."""
    accepted = {part.partition(";")[0].strip().lower() for part in request.headers.get("accept", "*/*").split(",")}
    if STREAM in accepted:
        return STREAM
    if accepted & {CLOUD_EVENT, CLOUD_EVENTS}:
        return CLOUD_EVENTS
    if accepted & {JSON, "application/*", "*/*", ""}:
        return JSON
    raise Refusal(406, "not-acceptable", f"events come as {JSON}, {STREAM} or {CLOUD_EVENTS}")


async def _forward(
    request: Request, kind: str, bus: AsyncBus, event_filter: EventFilter, after: str | None, limit: int
) -> Response:
    end = (await bus.position()).shards
    position, found = vector_of(after, len(end)), list[Event]()
    has_more = False
    async for event in bus.events(BusPosition(position), **event_filter.arguments()):
        has_more = len(found) == limit
        if has_more:
            break
        found.append(event)
        position = moved(position, event)
    reached = text_of(position if has_more else tuple(map(max, position, end)))
    next_after = reached if has_more else None
    page = {"items": found, "next": next_after, "previous": None, "position": reached}
    return _listed(kind, bus, page, next_page(request, next_after))


async def _newest(bus: AsyncBus, event_filter: EventFilter, before: str | None, count: int) -> dict[str, Any]:
    end = (await bus.position()).shards  # before they are read, so that a stream behind it misses none
    found = await bus.last_events(count, before=before, **event_filter.arguments())
    shown = [event for event in found if event.seq <= end[event.shard].seq]
    previous = str(shown[0].position) if len(found) == count and shown else None
    return {"items": shown, "next": None, "previous": previous, "position": text_of(end)}


def _listed(kind: str, bus: AsyncBus, page: dict[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    if kind == JSON:
        return answer({**page, "items": [document_of(event) for event in page["items"]]}, headers=headers)
    found = answer([cloud_event(event, bus.settings.bus) for event in page["items"]], headers=headers)
    found.headers["Content-Type"] = CLOUD_EVENTS
    return found


async def _stream(request: Request, bus: AsyncBus, event_filter: EventFilter, after: str | None) -> Response:
    end = (await bus.position()).shards
    bus.events(**event_filter.arguments())  # raises for invalid filters
    position = end if after is None else vector_of(after, len(end))
    as_cloud_events = CLOUD_EVENT in request.headers.get("accept", "").lower()
    return _Streamed(request.app.state.streams, position, event_filter._replace(as_cloud_events=as_cloud_events))


class _Streamed(Response):
    """A stream of events; it ends when the client leaves, stops reading, or is no longer welcome."""

    media_type = STREAM

    def __init__(self, streams: Streams, position: Vector, event_filter: EventFilter) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._streams = streams
        self._position = position
        self._event_filter = event_filter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection: ClientConnection | None = scope.get("state", {}).get("connection")
        if connection is not None:
            connection.limit_buffers(BUFFERED)

        server, caller = server_of(Request(scope)), caller_of(Request(scope))

        def is_valid() -> bool:
            return server.callers.is_valid(caller)

        async def write(frames: bytes) -> None:
            await send({"type": "http.response.body", "body": frames, "more_body": True})

        stream = EventStream(self._position, is_valid, connection.abort if connection is not None else lambda: None)
        disconnected = asyncio.create_task(_close_when_gone(receive, stream))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await write(b"retry: 1000\nid: %b\n\n" % text_of(self._position).encode())
            with open_stream():
                await self._streams.run(stream, self._event_filter, write)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            disconnected.cancel()


async def _close_when_gone(receive: Receive, stream: EventStream) -> None:
    with suppress(Refusal):  # the client goes on with a body that is too long or takes too long
        await wait_until_gone(receive)
    stream.close()
