"""The parameters that many routes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import unquote

from fastapi import Depends, Header, Path, Query, Request
from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, StringConstraints, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import CoreSchema, core_schema, from_json
from starlette.convertors import StringConvertor, register_url_convertor

from scratchbus.http import patterns
from scratchbus.http.problems import Refusal


def register_id(kind: str, pattern: str) -> None:
    """Let `{name:kind}` in a path stand for ids with this pattern alone, and not for words such as `batch`."""
    register_url_convertor(kind, type(kind, (StringConvertor,), {"regex": pattern[1:-1]})())


register_id("ulid", patterns.ID)


@dataclass(frozen=True)
class Name:
    """What a name in a path looks like once it is unquoted, with an example. It comes last."""

    pattern: str
    example: str

    def __get_pydantic_core_schema__(self, _source: object, _handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the check of a part of a path, which leads to the name."""
        return core_schema.no_info_before_validator_function(_unquoted, core_schema.str_schema(pattern=self.pattern))

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, _handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return its OpenAPI description."""
        return {"type": "string", "pattern": self.pattern, "examples": [self.example]}


def _unquoted(text: str) -> str:
    return unquote(text, errors="replace") if "%" in text else text


def in_path(description: str) -> Any:
    """Return the parameter that is a part of a path, and a name."""
    return Path(description=f"{description}; a slash in it is written %2F.")


PageName = Annotated[str, in_path("The name of a page"), Name(patterns.PAGE, "main")]
SessionName = Annotated[str, in_path("The name of a session"), Name(patterns.SESSION, "s1")]
ScopeName = Annotated[
    str, in_path("The name of a scope, such as a user or a project"), Name(patterns.SCOPE, "ada/shop")
]
Id = Annotated[
    str,
    Path(description="The id of an observation.", examples=["01M82NHKCCEBT4DDKQ2K3C35T3"], pattern=patterns.ID),
]

Limit = Annotated[int, Query(description="The most items of the answer.", ge=1, le=1000)]

Absent = SkipJsonSchema[None]
"""Of a parameter that may be left out; OpenAPI says that by itself."""

AnyPage = Annotated[str, StringConstraints(pattern=patterns.PAGE)]
AnySession = Annotated[str, StringConstraints(pattern=patterns.SESSION)]
AnyScope = Annotated[str, StringConstraints(pattern=patterns.SCOPE)]
AnyTypeName = Annotated[str, StringConstraints(pattern=patterns.TYPE)]
_AnySource = Annotated[str, StringConstraints(pattern=patterns.SOURCE)]
AnyId = Annotated[str, StringConstraints(pattern=patterns.ID)]
AnyTime = Annotated[
    str,
    StringConstraints(pattern=patterns.TIME),
    WithJsonSchema({"type": "string", "format": "date-time", "pattern": patterns.TIME}),
]
Positive = Annotated[int, Field(ge=1, le=1000)]
_Some = Annotated[str, StringConstraints(min_length=1)]
_Key = Annotated[str, StringConstraints(pattern=patterns.EVENT_ID)]
_Version = Annotated[str, StringConstraints(pattern=patterns.VERSION)]
_JsonText = Annotated[
    str, WithJsonSchema({"type": "object", "additionalProperties": True, "contentMediaType": "application/json"})
]
Label = Annotated[str, StringConstraints(pattern=patterns.LABEL, min_length=1, max_length=256)]
"""A text of up to 256 printable characters."""

_PRECONDITIONS: Final = ("if-match", "if-none-match", "if-unmodified-since")

AnyLimit = Annotated[Positive | Absent, Query(description="The most items; all without it.")]
TypeName = Annotated[AnyTypeName | Absent, Query(description="The name of a type.", examples=["risk_alert"])]
SourceName = Annotated[_AnySource | Absent, Query(description="Who published it.", examples=["fraud_detector"])]
Owner = Annotated[Label | Absent, Query(description="Whom it concerns.", examples=["user:42"])]
Since = Annotated[
    AnyTime | Absent, Query(description="Created at this time or later.", examples=["2026-11-22T00:00:00Z"])
]
Cursor = Annotated[AnyId | Absent, Query(description="The `next` of the previous answer.")]
Part = Annotated[_Some | Absent, Query(description="Part of the content, in any case.", examples=["fraud"])]
Least = Annotated[Annotated[float, Field(ge=0, le=1)] | Absent, Query(description="At least this.", examples=[0.5])]
JsonObject = Annotated[
    _JsonText | Absent,
    Query(description="A JSON object; observations must have all its names with the same values."),
]


@dataclass(frozen=True)
class WriteHeaders:
    """What the headers of a write say: an id that makes a retry safe, and the version that the write expects."""

    event_id: str | None
    expected_version: int | None = None

    def as_keywords(self) -> dict[str, Any]:
        """Return them as the methods of a page take them."""
        return {"event_id": self.event_id, "expected_version": self.expected_version}

    def of_revision(self) -> dict[str, Any]:
        """Return them as the methods of a memory take them."""
        return {"event_id": self.event_id, "revision": self.expected_version}

    def based_on(self, tag: str | None) -> WriteHeaders:
        """Return them with the version that an `If-Match` names, if it names one."""
        if tag is None or tag == "*":
            return self
        return WriteHeaders(self.event_id, int(tag.removeprefix("W/").strip('"')))


async def idempotency(
    idempotency_key: Annotated[
        _Key | Absent,
        Header(
            alias="Idempotency-Key",
            description="An id you choose for this write: a retry with the same id is not applied twice.",
        ),
    ] = None,
) -> WriteHeaders:
    """Return the guards of a write that compares no version itself."""
    return WriteHeaders(idempotency_key)


async def _guards(
    once: Annotated[WriteHeaders, Depends(idempotency)],
    if_match: Annotated[
        _Version | Absent,
        Header(
            alias="If-Match",
            description="The ETag of a read: the write is refused (412) if the version has changed since.",
            examples=['"3"'],
        ),
    ] = None,
) -> WriteHeaders:
    return once.based_on(if_match)


Once = Annotated[WriteHeaders, Depends(idempotency)]
"""The guards of a write that makes something new."""

Guarded = Annotated[WriteHeaders, Depends(_guards)]
"""The guards of a write that changes an existing subject."""


def object_of(field: str, text: str | None) -> dict[str, Any] | None:
    """Return the JSON object that a query parameter has. Raises Refusal."""
    if text is None:
        return None
    try:
        found = from_json(text, allow_inf_nan=False)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Refusal(
            422, "invalid-parameter", f'{field}: write a JSON object, such as {{"task_id":"t1"}}', field=field
        )
    return found


def refuse_unknown_parameters(request: Request) -> None:
    """Refuse query parameters and preconditions that the route does not have. Raises Refusal.

    A client would take a parameter for a filter, although it filters nothing, and a precondition for a guard. One that
    is repeated, although the route takes it once, is refused too.
    """
    route = request.scope["route"]
    if request.method not in ("GET", "HEAD"):
        for header in _PRECONDITIONS:
            if header in request.headers and header not in route.headers:
                detail = f"{header.title()}: this operation does not compare versions this way; leave it out"
                raise Refusal(422, "unknown-precondition", detail)
    if not request.query_params:
        return
    parameters: dict[str, bool] = route.query_parameters
    seen = set()
    for name, _ in request.query_params.multi_items():
        if name not in parameters:
            hint = f"use one of: {', '.join(sorted(parameters))}" if parameters else "there are none"
            raise Refusal(
                422, "unknown-parameter", f"{name[:100]}: unknown query parameter; {hint}", known=sorted(parameters)
            )
        if name in seen and not parameters[name]:
            raise Refusal(422, "repeated-parameter", f"{name}: this is there more than once; give one value")
        seen.add(name)
