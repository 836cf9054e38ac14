"""The servers that `scratchbus mcp` runs: for one client over stdio, or for many over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Collection
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio

from scratchbus import AsyncBus
from scratchbus.daemon import listen, stderr_logger
from scratchbus.mcp.identity import GROUPS, Identity, groups_of
from scratchbus.mcp.methods import Methods
from scratchbus.mcp.stdio import serve_stdio
from scratchbus.mcp.workspace import Workspace

logger = stderr_logger()


def run_stdio(identity: Identity, settings: dict[str, Any]) -> None:
    """Serve one client over stdio as this identity. Raises EngineError before serving starts."""

    async def run() -> None:
        async with Workspace.opened(identity, **settings) as workspace:
            await serve_stdio(Methods(workspace))

    anyio.run(run, backend_options={"use_uvloop": find_spec("uvloop") is not None})


def run_http(
    where: str, file: Path, groups: Collection[str] | None, settings: dict[str, Any], announce: Callable[[str], None]
) -> None:
    """Serve the tokens of a file over HTTP; `announce` is called with the URL.

    Raises SettingsError, and InvalidInput for unknown groups and for settings that no bus can have.
    """
    from scratchbus.mcp.access_tokens import Tokens
    from scratchbus.mcp.app import PATH, mcp_app, serve_http  # late: over stdio they are not needed

    tokens, offered = Tokens(file), groups_of(GROUPS if groups is None else groups)
    tokens.check_any()
    AsyncBus.connect(**settings)  # not awaited: checks the URL and the settings
    listener = listen(where)
    url = f"{listener.url()}{PATH}"
    if not listener.is_local:
        logger.warning("tokens travel unencrypted; put a TLS proxy in front of this server", url=url)
    app = mcp_app(tokens, offered, settings, is_local=listener.is_local)
    anyio.run(serve_http, app, listener.socket, lambda: announce(url))
