"""A server of several callers, each with a token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from scratchbus import McpIdentity, McpTokens
from tests.edges.http.conftest import Served, serving


class Holders:
    """Clients of a server, each with a token of its own name, kind and scopes."""

    def __init__(self, served: Served, tokens: McpTokens) -> None:
        self.served = served
        self._tokens = tokens

    def client(self, name: str, *scopes: str, kind: str = "subagent", **more: Any) -> httpx2.Client:
        token = self._tokens.add(name, McpIdentity.of(name, kind=kind), scopes=scopes)
        return self.served.client(token, **more)


@contextmanager
def serving_holders(engine: str, directory: Path) -> Iterator[Holders]:
    tokens = McpTokens(directory / "tokens.yaml")
    tokens.add("first", McpIdentity.of("first"), scopes=("read",))
    with serving(engine, "--tokens", str(tokens.path)) as served:
        yield Holders(served, tokens)
