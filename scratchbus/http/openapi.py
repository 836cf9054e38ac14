"""The OpenAPI document: FastAPI's output for the routes, and the parts it cannot derive.

These are the named schemas, authentication, examples of problems, and parameters written in JSON.
"""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from scratchbus.http import problem_examples, problems, schemas
from scratchbus.http.bodies import reader_of
from scratchbus.http.guard import needs_caller

_SECURITY: Final = {
    "token": {"type": "http", "scheme": "bearer", "description": "A token, or the key of this start of the server."},
    "cookie": {
        "type": "apiKey",
        "in": "cookie",
        "name": "scratchbus-PORT",
        "description": "The same, for the console; the cookie's name contains the port of the URL.",
    },
}

_WHOLE: Final[schemas.Schema] = {"type": "integer"}
_INVALID: Final = schemas.exact(field=schemas.STRING, problem=schemas.STRING)
_PROBLEM: Final[schemas.Schema] = {
    "type": "object",
    "description": "Why a request was refused (RFC 9457); some problems have further members.",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": schemas.STRING,
        "title": schemas.STRING,
        "status": _WHOLE,
        "detail": schemas.STRING,
        "expected": _WHOLE | {"description": "The version or revision that the request was based on."},
        "actual": _WHOLE | {"description": "The current version, revision or fence."},
        "field": schemas.STRING | {"description": "The field that is wrong."},
        "known": schemas.listed(schemas.STRING, description="The names that are known instead."),
        "errors": schemas.listed(_INVALID, description="All invalid parameters."),
        "event_id": {
            "type": ["string", "null"],
            "description": "The id to retry the write with, as `Idempotency-Key`.",
        },
        "signs_in_with": {
            "enum": ["key", "token"],
            "description": "What identifies a browser here: the key of the server's start, or a token.",
        },
    },
    "additionalProperties": True,
}


def document_bodies(router: APIRouter) -> None:
    """Document the bodies that routes take as parameters. This has to precede the inclusion of their router."""
    for route in router.routes:
        if isinstance(route, APIRoute) and (found := reader_of(route.dependant)):
            route.openapi_extra = found[1].documented


def install(app: FastAPI, *, needs_token: bool) -> None:
    """Complete the document of an application, where all callers need a token, or the user's own programs do not."""
    generate = app.openapi

    def completed() -> dict[str, Any]:
        if app.openapi_schema is None:
            _complete(generate(), needs_token)
        return generate()

    app.openapi = completed  # type: ignore[method-assign]


def _complete(document: dict[str, Any], needs_token: bool) -> None:
    components = document.setdefault("components", {})
    components.setdefault("schemas", {}).update(schemas.COMPONENTS)
    components["schemas"]["Problem"] = _PROBLEM
    components["schemas"].pop("HTTPValidationError", None)
    components["schemas"].pop("ValidationError", None)
    components["securitySchemes"] = _SECURITY
    document["security"] = [{"token": []}, {"cookie": []}, *([] if needs_token else [{}])]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for parameter in operation.get("parameters", ()):
                _in_json(parameter)
            if not needs_caller(path):
                operation["security"] = []
            _add_problems(path, method, operation)
    components["examples"] = schemas.EXAMPLES | problem_examples.components()


def _in_json(parameter: dict[str, Any]) -> None:
    """Describe a parameter that is written in JSON by the media type of its value."""
    schema = parameter.get("schema", {})
    kind = schema.pop("contentMediaType", None)
    if kind is not None:
        parameter["content"] = {kind: {"schema": parameter.pop("schema")}}


def _add_problems(path: str, method: str, operation: dict[str, Any]) -> None:
    """Add what any operation of its kind may answer."""
    statuses = set(problems.EVERYWHERE)
    parameters = {parameter["name"] for parameter in operation.get("parameters", ())}
    if "requestBody" in operation:
        statuses |= {400, 408, 409, 413, 415, 422}
    if needs_caller(path):  # it refuses unknown query parameters
        statuses.add(422)
    if parameters:
        statuses.add(404)
    if "{" in path:
        statuses.add(400)
    if method == "delete":
        statuses.add(409)
    if "If-Match" in parameters:
        statuses.add(412)
    if parameters & {"at", "known_at"}:  # which may be too long ago
        statuses.add(410)
    responses = operation["responses"]
    for status in sorted(statuses):
        if path.startswith("/api/") or status == 422:
            responses.setdefault(str(status), problems.documented(status))
    if "422" in responses and problems.MEDIA_TYPE not in responses["422"].get("content", {}):
        responses["422"] = problems.documented(422)  # FastAPI's own
    for status, response in responses.items():
        for kind, content in response.get("content", {}).items():
            if kind == problems.MEDIA_TYPE:
                content["examples"] = problem_examples.of_operation(int(status), operation.get("tags", ()))
