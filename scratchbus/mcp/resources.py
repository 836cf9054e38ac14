"""The MCP resources: the active observations of the page, and each observation."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import unquote

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)
from pydantic_core import to_json

from scratchbus.errors import EngineError, NotFound, ScratchbusError, shown
from scratchbus.mcp.answers import page_of, whole
from scratchbus.mcp.notifications import active_uri
from scratchbus.mcp.toolbox import Answer
from scratchbus.mcp.workspace import Workspace

JSON: Final = "application/json"
_ACTIVE: Final = re.compile(r"scratch://(.+)/active")
_ONE: Final = re.compile(r"observation://([^/]+)/?")

Request = ServerRequestContext[Any, Any]


class Resources:
    """The resources of one page."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def list(self, _: Request, __: PaginatedRequestParams | None) -> ListResourcesResult:
        """Return the resources that always exist."""
        name = self._workspace.page.name
        active = Resource(
            uri=active_uri(name),
            name="active",
            title=f"Active observations of {name}",
            description=f"What is going on: the active observations of page {name}, highest priority first.",
            mime_type=JSON,
        )
        return ListResourcesResult(resources=[active])

    async def list_templates(self, _: Request, __: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
        """Return the templates of the URIs."""
        active = ResourceTemplate(
            uri_template="scratch://{page}/active",
            name="active",
            title="Active observations",
            description=f"Active observations of a page, highest priority first. Yours is {self._workspace.page.name}.",
            mime_type=JSON,
        )
        one = ResourceTemplate(
            uri_template="observation://{id}",
            name="observation",
            title="An observation",
            description="One observation of your page, in full.",
            mime_type=JSON,
        )
        return ListResourceTemplatesResult(resource_templates=[active, one])

    async def read(self, _: Request, params: ReadResourceRequestParams) -> ReadResourceResult:
        """Return a resource as JSON."""
        try:
            answer = await self._read(params.uri)
        except ScratchbusError as problem:
            code = INTERNAL_ERROR if isinstance(problem, EngineError) else INVALID_PARAMS
            raise MCPError(code=code, message=str(problem), data={"uri": params.uri}) from None
        text = to_json(answer).decode()
        return ReadResourceResult(contents=[TextResourceContents(uri=params.uri, mime_type=JSON, text=text)])

    async def _read(self, uri: str) -> Answer:
        own = self._workspace.page.name
        if active := _ACTIVE.fullmatch(uri):
            page = unquote(active[1])
            if page != own:
                raise NotFound(f"{shown(uri)}: your connection is for page {own}; read {active_uri(own)}")
            return page_of((await self._workspace.look()).active())
        if one := _ONE.fullmatch(uri):
            found = (await self._workspace.look()).get(one[1])
            if found is None:
                raise NotFound(f"{shown(uri)}: there is no such observation on page {own}")
            return whole(found, self._workspace.bus.owner)
        raise NotFound(f"{shown(uri)} is not a resource; read {active_uri(own)} or observation://<id>")
