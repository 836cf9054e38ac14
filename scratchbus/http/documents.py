"""Answers as JSON, with headers for versions, locations and the next page of a list; the checks of JSON bodies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from fastapi import Request
from pydantic_core import from_json
from starlette.responses import Response

from scratchbus import Observation, document_of, shown_fields
from scratchbus.http import patterns
from scratchbus.http.callers import Caller
from scratchbus.http.problems import Refusal, json_bytes

JSON: Final = "application/json"


def answer(
    document: object, status: int = 200, headers: Mapping[str, str] | None = None, *, version: int | None = None
) -> Response:
    """Return a document as a response, with its version as ETag if it has one."""
    tag = {} if version is None else {"ETag": f'"{version}"'}
    return Response(json_bytes(document), status, {**tag, **(headers or {})}, JSON)


def location(*parts: str) -> dict[str, str]:
    """Return the header that says where something new is, by the parts of its path."""
    return {"Location": "/".join(["/api/v1", *(quote(part, safe="") for part in parts)])}


def observation_answer(observation: Observation, status: int = 200, **extra: Any) -> Response:
    """Return an observation with its version as ETag; when it was added (201), with its Location."""
    headers = location("pages", observation.page, "observations", observation.id) if status == 201 else None
    return answer(shown_fields(observation) | extra, status, headers, version=observation.version)


def listing(items: Iterable[object]) -> dict[str, Any]:
    """Return a list as a document; the items are what `document_of` takes."""
    return {"items": [shown_fields(each) if isinstance(each, Observation) else document_of(each) for each in items]}


def paged(request: Request, items: list[Any], after: str | None, **extra: Any) -> Response:
    """Return one page of a list; `after` is the cursor of the next one, None at the end."""
    return answer({**listing(items), "next": after, **extra}, headers=next_page(request, after))


def next_page(request: Request, after: str | None) -> dict[str, str]:
    """Return the header that links to the next page of a list; none without its cursor."""
    if after is None:
        return {}
    parameters = [(name, value) for name, value in request.query_params.multi_items() if name != "after"]
    url = f"{quote(request.url.path, safe='/%:@')}?{urlencode([*parameters, ('after', after)])}"
    return {"Link": f'<{url}>; rel="next"'}


async def body_of(request: Request) -> dict[str, Any]:
    """Return the JSON object of a body; no body is an empty one. Raises Refusal."""
    body = await request.body()
    if not body:
        return {}
    kind = media_type_of(request, JSON)
    if not is_json(kind):
        raise unsupported(kind, JSON)
    return json_object(body)


def json_object(body: bytes, example: str = "{}") -> dict[str, Any]:
    """Return the JSON object of a body. Raises Refusal, which shows an example of one."""
    try:
        document = from_json(body, allow_inf_nan=False)
    except ValueError as problem:
        raise Refusal(400, "bad-json", f"the body is not JSON: {problem}") from None
    if not isinstance(document, dict):
        raise Refusal(422, "invalid-body", f"the body is not a JSON object; send one, such as {example}")
    return document


def media_type_of(request: Request, usual: str) -> str:
    """Return the media type of a body, without parameters; the usual one if the request does not say."""
    return request.headers.get("content-type", usual).partition(";")[0].strip().lower()


def is_json(media_type: str) -> bool:
    """Return whether a body of this media type is JSON."""
    return media_type == JSON or media_type.endswith("+json")


def unsupported(media_type: str, wanted: str) -> Refusal:
    """Return the refusal of a body of another media type than the wanted ones."""
    return Refusal(415, "unsupported-media-type", f"the body is {media_type[:100]}; send {wanted}")


def fields_of(document: dict[str, Any], *allowed: str, required: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the fields of a body. Raises Refusal for an unknown or missing field."""
    for name in document:
        if name not in allowed:
            detail = f"{name[:100]}: unknown field; use one of: {', '.join(sorted(allowed))}"
            raise Refusal(422, "unknown-field", detail, field=name[:100], known=sorted(allowed))
    for name in required:
        if document.get(name) is None:
            raise Refusal(422, "missing-field", f"{name}: this field is required", field=name)
    return document


def check_times(document: Mapping[str, Any], *names: str) -> None:
    """Refuse times without a zone, which people read in different ways. Raises Refusal."""
    for name in names:
        value = document.get(name)
        if isinstance(value, str) and not _is_time(value):
            detail = f"{name}: {value[:100]!r} is not {patterns.MEANINGS[patterns.TIME]}"
            raise Refusal(422, "invalid-field", detail, field=name)


_is_time = re.compile(patterns.TIME).search


def check_lists(document: Mapping[str, Any], *names: str) -> None:
    """Refuse a value that is not a list of texts, including a single text. Raises Refusal."""
    for name in names:
        value = document.get(name)
        if value is not None and not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
            raise Refusal(422, "invalid-field", f'{name}: write a list of texts, such as ["a", "b"]', field=name)


def check_source(caller: Caller, document: Mapping[str, Any], name: str = "source") -> None:
    """Refuse a body that speaks for someone else, unless the caller may. Raises Refusal."""
    source = document.get(name)
    if source is not None and source != caller.source and not caller.may_name_source:
        detail = f"{name}: you speak as {caller.source}; leave it out, or use a token with the scope admin"
        raise Refusal(403, "forged-source", detail, field=name)
