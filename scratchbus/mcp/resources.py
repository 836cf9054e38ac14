"""The MCP resources: the observations of the page, and the memories of the session, each under a URI."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from pydantic_core import to_json

from scratchbus import document_of
from scratchbus.errors import EngineError, InvalidId, NotFound, ScratchbusError, shown
from scratchbus.mcp.answers import page_of, whole
from scratchbus.mcp.protocol import INTERNAL_ERROR, INVALID_PARAMS, Client, Params, ProtocolError, Result
from scratchbus.mcp.toolbox import Answer
from scratchbus.mcp.workspace import Workspace

JSON: Final = "application/json"
MARKDOWN: Final = "text/markdown"


class Kind(NamedTuple):
    """A kind of resource: its URI template, name and description, and the group of tools it needs."""

    template: str
    name: str
    about: str
    group: str
    mime_type: str = JSON

    @property
    def document(self) -> dict[str, Any]:
        """Its description for clients, without the URI."""
        return {"name": self.name, "description": self.about, "mimeType": self.mime_type}

    @property
    def key(self) -> str:
        """The name of the variable part of the URI."""
        return self.template.partition("{")[2].partition("}")[0]

    def uri(self, value: str) -> str:
        """Return the URI for a value, percent-encoded."""
        return self.template.replace(f"{{{self.key}}}", quote(value, safe=""))

    def value_in(self, uri: str) -> str | None:
        """Return the value in a URI, percent-encoded or not; None if the URI is of another kind."""
        before, _, after = self.template.partition(f"{{{self.key}}}")
        found = re.fullmatch(f"{re.escape(before)}(.+){re.escape(after)}/?", uri)
        return None if found is None else unquote(found[1])


ACTIVE: Final = Kind(
    "scratch://{page}/active", "active", "The active observations of your page, by priority.", "observations"
)
OBSERVATION: Final = Kind("observation://{id}", "observation", "One observation of your page.", "observations")
NOTES: Final = Kind("notes://{session}", "notes", "The notes of your session, newest first.", "notes")
NOTEPAD: Final = Kind("notepad://{session}", "notepad", "The notepad of your session.", "notepad", MARKDOWN)
TODO: Final = Kind("todo://{session}", "todo", "The todo list of your session.", "todo")
CONTEXT: Final = Kind("context://{agent}", "context", "What get_context returns, unrecorded.", "context", MARKDOWN)

KINDS: Final = (ACTIVE, OBSERVATION, NOTES, NOTEPAD, TODO, CONTEXT)


class Resources:
    """The resources of one connection."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._readers: Mapping[Kind, Callable[[str], Awaitable[Answer | str]]] = {
            ACTIVE: self._active,
            OBSERVATION: self._observation,
            NOTES: self._notes,
            NOTEPAD: self._notepad,
            TODO: self._todo,
            CONTEXT: self._context,
        }

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of resources that the connection may read."""
        return [kind for kind in KINDS if self._workspace.identity.has(kind.group)]

    async def list(self, _: Client, __: Params) -> Result:
        """Return the resources that always exist."""
        own_values = self._workspace.own_values
        documents = [
            {"uri": kind.uri(value), "title": f"{kind.name} of {value}", **kind.document}
            for kind in self.kinds
            if (value := own_values.get(kind.key))
        ]
        return {"resources": documents}

    async def list_templates(self, _: Client, __: Params) -> Result:
        """Return the templates of the URIs."""
        return {"resourceTemplates": [{"uriTemplate": kind.template, **kind.document} for kind in self.kinds]}

    async def read(self, _: Client, params: Params) -> Result:
        """Return the content of a resource."""
        uri = params["uri"]
        with _refusing(uri, self._workspace):
            kind, value = self.find(uri)
            answer = await self._readers[kind](value)
        text = answer if isinstance(answer, str) else to_json(answer).decode()
        return {"contents": [{"uri": uri, "mimeType": kind.mime_type, "text": text}]}

    def find(self, uri: str) -> tuple[Kind, str]:
        """Return the kind of a resource, and the value in its URI. Raises NotFound if this server has none."""
        for kind in self.kinds:
            value = kind.value_in(uri)
            if value is None:
                continue
            own_value = self._workspace.own_values.get(kind.key)
            if own_value is not None and value != own_value:
                raise NotFound(
                    f"{shown(uri)}: your connection is for {kind.key} {own_value}; read {kind.uri(own_value)}"
                )
            return kind, value
        forms = ", ".join(kind.template for kind in self.kinds)
        raise NotFound(f"{shown(uri)} is not a resource; these are: {forms}")

    async def check(self, uri: str) -> str:
        """Return the URI used in notifications about a resource. Raises ProtocolError unless it exists."""
        with _refusing(uri, self._workspace):
            kind, value = self.find(uri)
            if kind == CONTEXT:
                raise NotFound(f"{shown(uri)} changes with everything else; subscribe to {ACTIVE.template}")
            if kind.key == "session" and value != self._workspace.identity.session:
                whose = "belongs to a session that you entered; you can subscribe only to resources of your own"
                raise NotFound(f"{shown(uri)} {whose}")
            if kind == OBSERVATION:
                await self._observation(value)
            return kind.uri(value)

    async def _active(self, _: str) -> Answer:
        found = (await self._workspace.look()).active()
        await self._workspace.page.log_read(found)
        return page_of(found)

    async def _observation(self, id: str) -> Answer:
        try:
            found = await self._workspace.read_observation(id)
        except InvalidId:
            found = None
        if found is None:
            raise NotFound(f"observation://{id}: there is no such observation on page {self._workspace.page.name}")
        return whole(found, self._workspace.bus.owner)

    async def _notes(self, session: str) -> Answer:
        notes = (await self._workspace.bus.notes(session).list()).notes
        return {"notes": [document_of(note) for note in notes]}

    async def _notepad(self, session: str) -> str:
        return await self._workspace.bus.notepad(session).read()

    async def _todo(self, session: str) -> Answer:
        return (await self._workspace.bus.todo(session).read()).model_dump(mode="json")

    async def _context(self, _: str) -> str:
        return (await self._workspace.bus.context.assemble(**self._workspace.context_arguments)).text


@contextmanager
def _refusing(uri: str, workspace: Workspace) -> Iterator[None]:
    """Make errors of the bus errors of the protocol about a URI."""
    try:
        yield
    except ScratchbusError as problem:
        code = INTERNAL_ERROR if isinstance(problem, EngineError) else INVALID_PARAMS
        raise ProtocolError(code, workspace.told(problem), {"uri": uri}) from None
