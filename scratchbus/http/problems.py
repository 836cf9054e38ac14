"""Problem details (RFC 9457): the one table from the error tree to HTTP statuses.

Every refusal is `application/problem+json`: `type`, `title`, `status` and `detail`, and what the error itself knows,
such as `expected` and `actual` of a version conflict. `event_id` is there when the outcome of a write is unknown: send
it as `Idempotency-Key` when retrying.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

import anyio
import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json, to_jsonable_python
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from scratchbus import errors
from scratchbus.daemon import LimitedLogger, stderr_logger
from scratchbus.http.patterns import MEANINGS

MEDIA_TYPE: Final = "application/problem+json"

MAX_SCANNED: Final = 2**20
"""The most bytes of a refused body that are compared with the OpenAPI document."""

RETRY_AFTER: Final = "1"
"""Seconds after which a request is worth a retry while the engine is away."""

_STATUSES: Final[tuple[tuple[type[Exception], int], ...]] = (
    (errors.Unauthorized, 403),
    (errors.InvalidInput, 422),
    (errors.NotFound, 404),
    (errors.VersionConflict, 412),
    (errors.Conflict, 409),
    (errors.EngineForbidden, 502),
    (errors.EngineAuth, 502),
    (errors.EngineError, 503),
    (errors.ArchiveUnavailable, 503),
    (errors.PositionLost, 410),
    (errors.LogRewound, 410),
    (errors.LogGap, 410),
    (errors.Behind, 503),
    (errors.LogBlocked, 503),
    (errors.BusClosed, 503),
    (errors.IndexFailed, 503),
    (errors.FilesUnavailable, 503),
)

EVERYWHERE: Final = (401, 403, 421, 500, 502, 503)
"""The statuses of problems that any operation may answer."""

_PRECONDITIONS: Final = ("if-match", "if-none-match")
_NO_MEMBERS: Final = {"advice", "type", "title", "status", "detail"}
_encode: Final = msgspec.json.Encoder(enc_hook=to_jsonable_python).encode
_CONTROLS: Final = re.compile(b"\xc2[\x80-\x9f]|\x7f")
_LOST_PLUS: Final = re.compile(r"T[0-9:.]+ [0-9]{2}:[0-9]{2}$")
_WORDS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")

logger = stderr_logger()
limited_logger = LimitedLogger(logger)

Responses = dict[int | str, dict[str, Any]]
"""The answers of an operation by status, for OpenAPI."""


class Refusal(Exception):
    """A request that the HTTP interface refuses by itself, before it asks the bus."""

    def __init__(
        self, status: int, slug: str, detail: str, headers: Mapping[str, str] | None = None, **members: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.slug = slug
        self.detail = detail
        self.headers = dict(headers or {})
        self.members = members


def json_bytes(document: object) -> bytes:
    """Return a document as JSON in which a terminal finds nothing to obey: control characters are escaped."""
    try:
        found = _encode(document)
    except OverflowError:  # an integer of more than 64 bits
        found = to_json(document)
    if b"\xc2" in found or b"\x7f" in found:
        return _CONTROLS.sub(lambda match: b"\\u00%02x" % match[0][-1], found)
    return found


def status_of(error: BaseException) -> int:
    """Return the status of an error of the bus by its class in the table, else 500."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def problem_of(error: errors.ScratchbusError, status: int | None = None) -> Response:
    """Return an error of the bus as a response, with the status of the table unless another is given."""
    status = status_of(error) if status is None else status
    if isinstance(error, errors.EngineError):
        event = slug_of(type(error)).replace("-", " ")
        limited_logger.warning(event, problem=str(error))  # clients are not told all of it
    headers = {"Retry-After": RETRY_AFTER} if status == 503 else {}
    return Response(json_bytes(body_of(error, status)), status, headers, MEDIA_TYPE)


def refusal(error: Refusal) -> Response:
    """Return a refusal as a response."""
    return Response(json_bytes(refusal_body(error)), error.status, error.headers, MEDIA_TYPE)


def body_of(error: errors.ScratchbusError, status: int) -> dict[str, Any]:
    """Return the fields of a problem for an error of the bus."""
    if isinstance(error, errors.FilesUnavailable):  # where the files are is nothing for clients
        return _body(status, slug_of(type(error)), "the private files cannot be read or written; the log says why", {})
    detail = errors.for_clients(error)
    if isinstance(error, errors.EngineUnreachable):
        detail = f"the engine is unreachable; try again after the seconds in Retry-After{error.advice}"
    return _body(status, slug_of(type(error)), detail, _members(error))


def nothing_here(why: str | None = None) -> Refusal:
    """Return the refusal of a request for a path that there is not, because of a part of it if that is known."""
    return Refusal(404, "not-found", why or "there is nothing at this path; /api/v1/openapi.json lists all paths")


def refusal_body(error: Refusal) -> dict[str, Any]:
    """Return the fields of a problem for a refusal."""
    return _body(error.status, error.slug, error.detail, error.members)


def _body(status: int, slug: str, detail: str, members: Mapping[str, Any]) -> dict[str, Any]:
    title = slug.replace("-", " ").capitalize()
    common = {"type": f"urn:scratchbus:problem:{slug}", "title": title, "status": status, "detail": detail}
    return common | dict(members)


def slug_of(kind: type[BaseException]) -> str:
    """Return the last part of a problem's type: `version-conflict` for VersionConflict."""
    return _WORDS.sub("-", kind.__name__).lower()


def documented(status: int) -> dict[str, Any]:
    """Return the OpenAPI response for a status; `openapi` adds the problems with that status as examples."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    response: dict[str, Any] = {"description": HTTPStatus(status).phrase, "content": content}
    if status == 503:
        retry = {"description": "Seconds until a retry makes sense.", "schema": {"type": "integer", "minimum": 0}}
        response["headers"] = {"Retry-After": retry}
    return response


def answers(successes: Responses, *statuses: int) -> Responses:
    """Return what an operation may answer, for OpenAPI: the good answers, and problems with these statuses.

    `openapi` adds the problems that follow from the parameters and the body of an operation.
    """
    return successes | {status: documented(status) for status in sorted({*statuses, *EVERYWHERE})}


def install(app: FastAPI) -> None:
    """Answer all errors of an application with problems."""
    for kind in (errors.ScratchbusError, Refusal, RequestValidationError, Exception):
        app.add_exception_handler(kind, answer_to)
    app.state.comparing = anyio.CapacityLimiter(1)


async def answer_to(request: Request, error: Exception) -> Response:
    """Return the answer to a request that failed."""
    if isinstance(error, errors.ScratchbusError):
        return await _failed(request, error)
    if isinstance(error, Refusal):
        return await _refused(request, error)
    if isinstance(error, RequestValidationError):
        return refusal(_invalid(error))
    if isinstance(error, ClientDisconnect):
        return refusal(Refusal(400, "bad-request", "the client closed the connection before its request was complete"))
    logger.error("request failed", method=request.method, path=request.url.path, exc_info=error)
    return refusal(Refusal(500, "internal-error", "the server failed; its log says why"))


async def _failed(request: Request, error: errors.ScratchbusError) -> Response:
    status = status_of(error)
    if status == 422 and await _is_as_documented(request):
        status = 404 if request.method in ("GET", "HEAD") else 409
    elif isinstance(error, errors.VersionConflict) and not any(each in request.headers for each in _PRECONDITIONS):
        status = 409
    elif isinstance(error, errors.FilesUnavailable):
        limited_logger.error(
            "private files are unavailable", method=request.method, path=request.url.path, problem=str(error)
        )
    return problem_of(error, status)


async def _is_as_documented(request: Request) -> bool:
    """Return whether a request matches the OpenAPI document, so that only the current state of the bus refuses it.

    Examples are an unknown type, or a moment in the future. Parameters were checked before. To keep others from
    waiting, a body that is too long is not checked, and only one is checked at a time.
    """
    from scratchbus.http import conformity  # late: it imports jsonschema

    schema = conformity.schema_of(request.app.openapi(), request.scope["route"].name)
    if schema is None:
        return True
    body = await request.body()
    if len(body) > MAX_SCANNED:
        return False
    kind, limiter = request.headers.get("content-type", ""), request.app.state.comparing
    return await anyio.to_thread.run_sync(conformity.fits, schema, body, kind, limiter=limiter)


async def _refused(request: Request, error: Refusal) -> Response:
    if error.status == 422 and "field" in error.members and request.method not in ("GET", "HEAD"):
        error.status = 409 if await _is_as_documented(request) else 422
    return refusal(error)


def explanation_of(error: Mapping[str, Any]) -> str:
    """Return pydantic's finding about a value: the value, and what it should be."""
    value, kind, message = error["input"], error["type"], error["msg"]
    if kind == "missing":
        return "is missing"
    if kind in ("model_type", "model_attributes_type"):
        return f"{errors.shown(value)} is not a JSON object"
    if kind == "string_pattern_mismatch":
        hint = "; in a URL, + is %2B" if _LOST_PLUS.search(value) else ""
        return f"{errors.shown(value)} is not {MEANINGS[error['ctx']['pattern']]}{hint}"
    return f"{errors.shown(value)} {message.removeprefix('Input ')}" if message.startswith("Input ") else message


def _invalid(error: RequestValidationError) -> Refusal:
    found: dict[str, str] = {}
    for each in error.errors():
        found.setdefault(".".join(str(part) for part in each["loc"][1:2]), explanation_of(each))  # further: of a union
    field, message = next(iter(found.items()))
    detail = f"{field}: {message}" if field else message
    invalid = [{"field": name, "problem": text} for name, text in found.items()]
    return Refusal(422, "invalid-request", detail, errors=invalid)


def _members(error: errors.ScratchbusError) -> dict[str, Any]:
    known = {name: value for name, value in vars(error).items() if not name.startswith("_")}
    members = {name: _plain(value) for name, value in known.items() if name not in _NO_MEMBERS}
    if isinstance(error, errors.UnknownType | errors.TypeInUse):
        members["observation_type"] = error.type
    return members


def _plain(value: object) -> object:
    if value is None or isinstance(value, str | int | float | bool | datetime):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return str(value)
    if isinstance(value, Iterable):
        return [_plain(each) for each in value]
    return str(value)
