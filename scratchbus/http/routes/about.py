"""The caller and the server: the caller's identity, and the server's health."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from scratchbus.errors import EngineError
from scratchbus.http import problems
from scratchbus.http.callers import cookie_of
from scratchbus.http.documents import answer
from scratchbus.http.observation_bodies import Login
from scratchbus.http.problems import Refusal
from scratchbus.http.responses import CALLER, WELL
from scratchbus.http.routes.operations import PATIENCE
from scratchbus.http.server import CallerOf, ServerOf, server_of

router = APIRouter(tags=["server"])
health = APIRouter(tags=["server"])


@router.get("/me", responses={200: CALLER})
async def get_caller(caller: CallerOf) -> Response:
    """Return your identity and permissions."""
    identity = {"name": caller.name, "source": caller.source, "kind": caller.kind}
    return answer({**identity, "scopes": caller.held, "may_name_source": caller.may_name_source})


@router.post("/login", status_code=204, responses={204: {"description": "The cookie is set"}})
async def log_in(request: Request, server: ServerOf, given: Login) -> Response:
    """Keep a token in a cookie that scripts cannot read, for the console."""
    token = given["token"]
    if not isinstance(token, str):
        raise Refusal(422, "invalid-field", "token: write a string", field="token")
    await server.callers.check(token, request.client)
    answer = Response(status_code=204)
    answer.set_cookie(value=token, **_cookie(request))
    return answer


@router.post("/logout", status_code=204, responses={204: {"description": "The cookie is gone"}})
async def log_out(request: Request) -> Response:
    """Delete the cookie."""
    answer = Response(status_code=204)
    answer.delete_cookie(**_cookie(request))
    return answer


@health.get("/healthz", responses={200: WELL})
async def get_health() -> Response:
    """Return that this process works; it says nothing of the engine."""
    return answer({"status": "ok"})


@health.get("/readyz", responses={200: WELL, 503: problems.documented(503)})
async def get_readiness(request: Request) -> Response:
    """Return whether the engine answers; 503 while it does not, or refuses."""
    try:
        async with asyncio.timeout(PATIENCE):
            bus = await asyncio.shield(server_of(request).own_bus())  # a slow connection is there for the next probe
            await bus.position()
    except TimeoutError:
        detail = f"the engine did not answer within {PATIENCE:g} s"
        raise Refusal(503, "engine-unreachable", detail, {"Retry-After": problems.RETRY_AFTER}) from None
    except EngineError as refused:
        return problems.problem_of(refused, 503)
    return answer({"status": "ok"})


async def open_console(request: Request) -> Response | None:
    """Return the answer to a URL that has the key of this start: the key moves to a cookie, out of the URL.

    Raises Refusal.
    """
    key = request.query_params.get("key")
    if key is None:
        return None
    server = server_of(request)
    await server.callers.check(key, request.client)
    answer = RedirectResponse("/", 303)
    answer.set_cookie(value=key, **_cookie(request))
    return answer


def _cookie(request: Request) -> dict[str, Any]:
    """Return how a browser keeps its secret: where neither scripts nor other sites reach it."""
    scheme = request.url.scheme
    name = cookie_of(scheme, request.headers.get("host", ""))
    return {"key": name, "httponly": True, "samesite": "strict", "secure": scheme == "https", "path": "/"}
