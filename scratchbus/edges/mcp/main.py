"""What `scratchbus mcp` runs: a bus, and the server upon it."""

from __future__ import annotations

from typing import Any

import anyio

from scratchbus.edges.mcp.desk import Desk
from scratchbus.edges.mcp.identity import Identity
from scratchbus.edges.mcp.server import server_of
from scratchbus.edges.mcp.stdio import serve_stdio


def run_stdio(identity: Identity, settings: dict[str, Any]) -> None:
    """Serve one client over standard input and output, as this identity. Raises EngineError before it begins."""

    async def run() -> None:
        async with Desk.opened(identity, **settings) as desk:
            await serve_stdio(server_of(desk))

    anyio.run(run)
