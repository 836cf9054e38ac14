"""The caller's identity and scratchpad: the routes with which an agent begins and ends a run."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from scratchbus.errors import TooLarge
from scratchbus.http import problems
from scratchbus.http.bodies import schema_of
from scratchbus.http.callers import SCOPES, Caller
from scratchbus.http.documents import JSON, answer, body_of, is_json, media_type_of, unsupported
from scratchbus.http.memories import Based
from scratchbus.http.problems import MEDIA_TYPE, Refusal, refusal
from scratchbus.http.routes.scratchpads import MAX_CHARACTERS, ScratchpadText
from scratchbus.http.schemas import COUNT, REVISION, STRING, exact, listed, one_of, record
from scratchbus.http.server import CallerOf, ServerOf

router = APIRouter(tags=["whoami"])

MARKDOWN: Final = "text/markdown"
FORM: Final = "application/x-www-form-urlencoded"

NAME: Final = "update_scratchpad"
UPDATED: Final = "Scratchpad updated successfully."
UNAUTHORIZED: Final = "403 Unauthorized"

_PATH: Final = f"/whoami/actions/{NAME}"
_ACTION: Final = {
    "name": NAME,
    "params_string": "(content)",
    "description": "Update your scratchpad with notes for your future self",
}
_PARAMETER: Final = {
    "name": "content",
    "type": "string",
    "description": f"The new scratchpad content (max {MAX_CHARACTERS} chars). Replaces existing content.",
}
_DEFINITION: Final = {**_ACTION, "params": [_PARAMETER], "authorization": "self_subagent"}

_SHORT: Final = exact(**dict.fromkeys(_ACTION, STRING))


def _both(description: str, schema: dict[str, Any], example: Any, text: str) -> dict[str, Any]:
    """Return a response in Markdown, or in JSON for clients that accept it."""
    content = {MARKDOWN: {"schema": STRING, "example": text}, JSON: {"schema": schema, "example": example}}
    return {"description": description, "content": content}


def _answers(
    success: dict[str, Any], *statuses: int, is_for_all: bool = False, fails_in_markdown: bool = False
) -> dict[int | str, dict[str, Any]]:
    """Return the possible answers; an operation only for subagents answers others in one line of text."""
    found = problems.answers({200: success}, *statuses)
    if fails_in_markdown:
        content = {**found[422]["content"], MARKDOWN: {"schema": STRING, "example": f"## Action failed: `{NAME}`"}}
        found[422] = {**found[422], "content": content}
    if not is_for_all:
        content = {**found[403]["content"], "text/plain": {"schema": STRING, "example": UNAUTHORIZED}}
        found[403] = {**found[403], "content": content}
    return found


_WHO: Final = record(
    ("name", "kind", "scopes", "text", "actions"),
    name=STRING,
    kind=one_of("subagent", "person", "daemon"),
    scopes=listed(one_of(*SCOPES)),
    text=STRING,
    scratchpad=exact(content=STRING, revision=COUNT),
    actions=listed(_SHORT),
)
_WHO_TEXT: Final = "You are analyst, a subagent.\n\n## Your Scratchpad\n\nAsk for the account number first."
_WHO_EXAMPLE: Final = {
    "name": "analyst",
    "kind": "subagent",
    "scopes": ["memory"],
    "text": _WHO_TEXT,
    "scratchpad": {"content": "Ask for the account number first.", "revision": 3},
    "actions": [_ACTION],
}
_LISTED: Final = _both("The actions", exact(actions=listed(_SHORT)), {"actions": [_ACTION]}, "# Actions")
_PARAMETERS: Final = listed(exact(**dict.fromkeys(_PARAMETER, STRING)))
_DESCRIBED: Final = _both(
    "The action",
    exact(**dict.fromkeys((*_ACTION, "authorization"), STRING), params=_PARAMETERS),
    _DEFINITION,
    f"# `{NAME}(content)`",
)
_DONE: Final = exact(action_name=STRING, result=STRING, revision={"type": "integer", "minimum": 1})
_EXECUTED: Final = {
    **_both(
        "It was done; `revision` is also the ETag",
        _DONE,
        {"action_name": NAME, "result": UPDATED, "revision": 4},
        UPDATED,
    ),
    "headers": REVISION,
}
_CONTENT: Final = schema_of(ScratchpadText)
_BODY: Final = {
    "requestBody": {
        "required": True,
        "content": {kind: {"schema": _CONTENT, "example": ScratchpadText.example} for kind in (JSON, FORM)},
    },
}


@router.get("/whoami", responses=_answers(_both("Who you are", _WHO, _WHO_EXAMPLE, _WHO_TEXT), is_for_all=True))
async def get_whoami(request: Request, server: ServerOf, caller: CallerOf) -> Response:
    """Return your identity, with your scratchpad and your actions if you are a subagent."""
    found: dict[str, Any] = {
        "name": caller.source,
        "kind": caller.kind,
        "scopes": caller.held,
        "text": f"You are {caller.source}, a {caller.kind}.",
    }
    if _has_scratchpad(caller):
        pad = (await server.bus_of(caller, request.state.uses)).scratchpad(caller.source)
        content, revision = await pad.read_with_revision()
        found |= {"text": await pad.whoami(), "scratchpad": {"content": content, "revision": revision}}
    actions = _actions_of(caller)
    text = "\n\n".join([found["text"], *([_list(actions)] if actions else [])])
    return _shown(request, {**found, "actions": actions}, text)


@router.get("/whoami/actions", responses=_answers(_LISTED, is_for_all=True))
async def list_actions(request: Request, caller: CallerOf) -> Response:
    """List the actions that you may take; people have none."""
    actions = _actions_of(caller)
    return _shown(request, {"actions": actions}, _list(actions))


@router.get(_PATH, responses=_answers(_DESCRIBED))
async def describe_update_scratchpad(request: Request, caller: CallerOf) -> Response:
    """Describe the action that replaces your scratchpad."""
    if caller.kind != "subagent":
        return PlainTextResponse(UNAUTHORIZED, 403)
    text = (
        f"# `{NAME}(content)`\n\n{_ACTION['description']}.\n\n"
        f"- `content` (string): {_PARAMETER['description']}\n\n"
        f'Send it as `POST {_PATH}`, as JSON like {{"content": "…"}} or as a form.'
    )
    return _shown(request, _DEFINITION, text)


@router.post(_PATH, responses=_answers(_EXECUTED, 400, 409, 412, 415, 422, fails_in_markdown=True), openapi_extra=_BODY)
async def update_scratchpad(request: Request, server: ServerOf, caller: CallerOf, guards: Based) -> Response:
    """Replace your scratchpad with notes for your future self; a blank text clears it."""
    if caller.kind != "subagent":
        return PlainTextResponse(UNAUTHORIZED, 403)
    caller.need("memory")
    given = ScratchpadText.checked(await _fields_of(request))
    pad = (await server.bus_of(caller, request.state.uses)).scratchpad(caller.source)
    try:
        revision = await pad.write(given.content, **guards.of_revision())
    except TooLarge as error:
        return _failed(request, str(error))
    result = {"action_name": NAME, "result": UPDATED, "revision": revision}
    return _shown(request, result, UPDATED, {"ETag": f'"{revision}"'})


def _has_scratchpad(caller: Caller) -> bool:
    return caller.kind == "subagent" and "memory" in caller.scopes


def _actions_of(caller: Caller) -> list[dict[str, str]]:
    return [_ACTION] if _has_scratchpad(caller) else []


def _list(actions: list[dict[str, str]]) -> str:
    lines = [f"- [`{each['name']}{each['params_string']}`]({_PATH}): {each['description']}" for each in actions]
    return "\n".join(["## Actions", "", *(lines or ["_There are no actions here for you._"])])


def _wants_json(request: Request) -> bool:
    return JSON in request.headers.get("accept", "")


def _shown(request: Request, document: dict[str, Any], text: str, headers: dict[str, str] | None = None) -> Response:
    if _wants_json(request):
        return answer(document, headers={"Vary": "Accept", **(headers or {})})
    return _markdown(text, 200, headers)


def _markdown(text: str, status: int, headers: dict[str, str] | None = None) -> Response:
    return Response(f"{text}\n", status, {"Vary": "Accept", **(headers or {})}, MARKDOWN)


def _failed(request: Request, error: str) -> Response:
    if _wants_json(request) or MEDIA_TYPE in request.headers.get("accept", ""):
        return refusal(Refusal(422, "too-large", error, action_name=NAME, error=error))
    return _markdown(f"## Action failed: `{NAME}`\n\n{error}", 422)


async def _fields_of(request: Request) -> dict[str, Any]:
    """Return the fields of a body, which is JSON or a form. Raises Refusal."""
    kind = media_type_of(request, JSON)
    if is_json(kind) or not await request.body():
        return await body_of(request)
    if kind != FORM:
        raise unsupported(kind, f"{JSON} or {FORM}")
    try:
        pairs = parse_qsl((await request.body()).decode(), keep_blank_values=True, errors="strict", max_num_fields=10)
    except ValueError as problem:
        raise Refusal(400, "bad-form", f"the body is not a form: {problem}") from None
    return dict(pairs)
