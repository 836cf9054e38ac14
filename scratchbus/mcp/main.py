"""What `scratchbus mcp` runs: a server for one client over standard input and output, or for many over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import anyio

from scratchbus.errors import SettingsError
from scratchbus.mcp.desk import Desk
from scratchbus.mcp.http import Reception, is_local, listen, serve_http
from scratchbus.mcp.identity import GROUPS, Identity, groups_of
from scratchbus.mcp.server import server_of
from scratchbus.mcp.stdio import serve_stdio
from scratchbus.mcp.tokens import Tokens
from scratchbus.telemetry.logs import stderr_logger

logger = stderr_logger()


def run_stdio(identity: Identity, settings: dict[str, Any]) -> None:
    """Serve one client over standard input and output, as this identity. Raises EngineError before it begins."""

    async def run() -> None:
        async with Desk.opened(identity, **settings) as desk:
            await serve_stdio(server_of(desk))

    anyio.run(run)


def run_http(
    where: str, file: Path, groups: Collection[str] | None, settings: dict[str, Any], announce: Callable[[str], None]
) -> None:
    """Serve all who bear a token of a file, over HTTP; `announce` is told the address.

    Raises SettingsError, and InvalidField for groups that there are not.
    """
    tokens, offered = Tokens(file), groups_of(GROUPS if groups is None else groups)
    if not tokens.all():
        raise SettingsError(
            f"{file} has no tokens; make one: scratchbus mcp token add NAME --agent AGENT --tokens {file}"
        )
    listener, url = listen(where)
    if not is_local(listener):
        logger.warning("tokens are not encrypted on their way; put a proxy with TLS before this", url=url)
    reception = Reception(tokens, offered, settings, is_local(listener))
    anyio.run(serve_http, reception, listener, lambda: announce(url))
