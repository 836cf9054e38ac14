"""The application: all routes behind the guard."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from operator import attrgetter
from typing import Final

import anyio
from fastapi import APIRouter, FastAPI
from starlette.routing import Route
from starlette.types import ASGIApp

from scratchbus.http import mcp, openapi, problems
from scratchbus.http.callers import LocalUser
from scratchbus.http.guard import Guard
from scratchbus.http.metrics import Counted
from scratchbus.http.routes import (
    about,
    console,
    context,
    events,
    fact_relations,
    facts,
    files,
    history,
    notepad,
    notes,
    observations,
    operations,
    pages,
    preferences,
    recall,
    scratchpads,
    sessions,
    subscriptions,
    todo,
    transitions,
    turns,
    types,
    whoami,
)
from scratchbus.http.routing import Routes
from scratchbus.http.server import Server
from scratchbus.http.streams import Streams
from scratchbus.http.webhooks import Webhooks

PREFIX: Final = "/api/v1"

_DESCRIPTION: Final = """The shared working memory of daemons and agents, over HTTP.

Names are those of the Python API.

Writes take `Idempotency-Key`, an id of yours that makes a retry safe, and `If-Match` with the ETag of a read, which
refuses the write (412) when someone else was faster. Reads take `at`, a time or a position, and answer what was true
then. Every refusal is a problem (RFC 9457).
"""


def declare_app(server: Server) -> FastAPI:
    """Return the routes of a server, as FastAPI declares and documents them."""
    streams = Streams(server.own_bus)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with server.running(), Webhooks(server).running():
            server.tasks.start_soon(anyio.to_thread.run_sync, console.read_files)  # before a browser asks
            yield
            await streams.close()

    app = FastAPI(
        title="scratchbus",
        version=version("scratchbus"),
        description=_DESCRIPTION,
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,  # it would load its scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        generate_unique_id_function=attrgetter("name"),
        redirect_slashes=False,
    )
    app.state.server = server
    app.state.streams = streams
    problems.install(app)
    api = APIRouter(prefix=PREFIX)
    groups = (observations, transitions, history, events, subscriptions, pages, types, operations, about)
    memories = (
        sessions,
        notes,
        notepad,
        todo,
        scratchpads,
        turns,
        files,
        facts,
        fact_relations,
        preferences,
        recall,
        context,
    )
    for group in (*groups, *memories):
        openapi.document_bodies(group.router)
        api.include_router(group.router)
    app.include_router(api)
    app.include_router(about.health)
    app.include_router(operations.metrics)
    app.include_router(whoami.router)
    app.include_router(console.router)
    app.router.routes.append(Route(mcp.PATH, mcp.Mcp(server)))
    openapi.install(app, needs_token=not isinstance(server.callers, LocalUser))
    return app


def create_app(server: Server) -> ASGIApp:
    """Return the application of a server."""
    return Counted(Guard(Routes(declare_app(server)), server))
