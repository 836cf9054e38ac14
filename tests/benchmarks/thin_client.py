"""A client of an MCP server that writes one line and reads one, with next to no overhead."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from subprocess import PIPE, Popen
from typing import Any

from mcp import StdioServerParameters

_VERSION = "2025-11-25"


class ThinClient:
    """A client of one server over pipes, which waits for each answer."""

    def __init__(self, process: Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._into, self._from = process.stdin, process.stdout
        self._ids = count()
        about = {"name": "thin", "version": "1"}
        self._ask("initialize", {"protocolVersion": _VERSION, "capabilities": {}, "clientInfo": about})
        self._write({"method": "notifications/initialized"})

    def call_tool(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the structured answer of a tool."""
        result = self._ask("tools/call", {"name": tool, "arguments": arguments})
        if result.get("isError") or "structuredContent" not in result:
            raise RuntimeError(f"{tool}: {result['content']}")
        answer: dict[str, Any] = result["structuredContent"]
        return answer

    def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        id = next(self._ids)
        self._write({"id": id, "method": method, "params": params})
        answer = json.loads(self._from.readline())
        if answer["id"] != id or "result" not in answer:
            raise RuntimeError(f"{method}: {answer}")
        result: dict[str, Any] = answer["result"]
        return result

    def _write(self, message: dict[str, Any]) -> None:
        self._into.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._into.flush()


@contextmanager
def thin_client(server: StdioServerParameters) -> Iterator[ThinClient]:
    """Start a server and connect a client; at the end the server's input ends, and so does the server."""
    with Popen([server.command, *server.args], stdin=PIPE, stdout=PIPE, env=server.env, cwd=server.cwd) as process:
        yield ThinClient(process)
