"""Declare tools, call them and return their answers.

The argument model and the answer schema come from the SDK's own `Tool`. The call itself is made here because the SDK
ignores unknown arguments (a forged `source` among them), parses any text that looks like JSON, and spreads an argument
error over many lines.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from mcp.server.mcpserver.tools import Tool as Declared
from mcp_types import CallToolResult, TextContent, Tool, ToolAnnotations
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json, to_json

from scratchbus.daemon import counts, stderr_logger
from scratchbus.errors import (
    EngineError,
    EngineLoading,
    EngineUnreachable,
    InvalidInput,
    LogBlocked,
    LogError,
    NotReplicated,
    ScratchbusError,
    shown,
)
from scratchbus.mcp.identity import Identity
from scratchbus.mcp.workspace import Workspace

SETTLED: Final = frozenset({"source", "by", "agent", "page", "session", "kind", "instance"})
"""Names that the connection settles; refused as arguments."""

_PASSING: Final = (EngineUnreachable, EngineLoading, NotReplicated, LogError)

Answer = Mapping[str, Any]
"""A tool's answer: a TypedDict of JSON values, whose schema clients get."""

logger = stderr_logger()


class Hints(NamedTuple):
    """What a tool does to the bus, as announced to clients. No tool reaches beyond the bus."""

    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False


READS = Hints(read_only=True, idempotent=True)
ADDS = Hints()
SETS = Hints(idempotent=True)
REPLACES = Hints(destructive=True, idempotent=True)
EDITS = Hints(destructive=True)


Method = TypeVar("Method", bound=Callable[..., Awaitable[Answer]])


def tool(title: str, hints: Hints) -> Callable[[Method], Method]:
    """Make a method of a group a tool, with the title people see.

    The tool has the name of the method, the description of its docstring and the arguments of its signature.
    """

    def mark(method: Method) -> Method:
        method.tool = title, hints  # type: ignore[attr-defined]
        return method

    return mark


class ToolGroup:
    """Related tools of one identity."""

    def __init__(self, workspace: Workspace) -> None:
        raise NotImplementedError

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of its tools in their order."""
        return [name for name, member in vars(cls).items() if hasattr(member, "tool")]


class _Declaration(NamedTuple):
    """What a tool takes and gives: the model that validates its arguments, their schemas, and how clients see it."""

    model: type[BaseModel]
    arguments: dict[str, Any]
    listed: Tool


_DECLARATIONS: dict[object, _Declaration] = {}
"""By method: to derive the schemas of all tools takes longer than all else that a new connection needs."""


def _declaration_of(function: Callable[..., Awaitable[Answer]]) -> _Declaration:
    """Return the declaration of a tool's method, which is the same for all connections."""
    method = getattr(function, "__func__", function)
    found = _DECLARATIONS.get(method)
    if found is None:
        found = _DECLARATIONS[method] = _declared(function)
    return found


def _declared(function: Callable[..., Awaitable[Answer]]) -> _Declaration:
    title, hints = function.tool  # type: ignore[attr-defined]
    declared = Declared.from_function(function, structured_output=True)
    schema = _lean(declared.parameters) | {"additionalProperties": False}
    arguments = {name: _without_null(each) for name, each in schema.get("properties", {}).items()}
    schema["properties"] = arguments
    listed = Tool(
        name=declared.name,
        title=title,
        description=_one_paragraph(declared.description),
        input_schema=schema,
        output_schema=_lean(declared.output_schema or {}),
        annotations=ToolAnnotations(
            title=title,
            read_only_hint=hints.read_only,
            destructive_hint=hints.destructive,
            idempotent_hint=hints.idempotent,
            open_world_hint=False,
        ),
    )
    return _Declaration(declared.fn_metadata.arg_model, arguments, listed)


class BoundTool:
    """A tool of one connection."""

    def __init__(self, function: Callable[..., Awaitable[Answer]]) -> None:
        self._function = function
        self._model, self._arguments, self.listed = _declaration_of(function)
        self.name = self.listed.name

    def takes(self, name: str) -> bool:
        """Return whether it has an argument of this name."""
        return name in self._arguments

    async def __call__(self, given: dict[str, Any]) -> Answer:
        """Call the tool. An argument that is null counts as left out, which is what many clients mean.

        Raises ScratchbusError; InvalidInput describes invalid arguments.
        """
        for name in given:
            if name not in self._arguments:
                raise InvalidInput(self._unknown(name))
        given = {name: self._unpacked(name, value) for name, value in given.items() if value is not None}
        try:
            model = self._model.model_validate(given)
        except ValidationError as problem:
            raise InvalidInput(_what_is_wrong(problem)) from None
        return await self._function(**{name: getattr(model, name) for name in type(model).model_fields})

    def _unknown(self, name: str) -> str:
        if name in SETTLED:
            return f"{name}: your connection sets this; leave the argument out"
        known = ", ".join(self._arguments) or "none"
        return f"{shown(name)}: unknown argument; {self.name} takes: {known}"

    def _unpacked(self, name: str, value: Any) -> Any:
        """Parse a list or object that a client sent as JSON text, as some do."""
        if isinstance(value, str) and self._arguments[name].get("type") in ("array", "object"):
            try:
                return from_json(value)
            except ValueError:
                pass  # validated as the text that it is
        return value


class Toolbox:
    """The tools of one connection, by name."""

    def __init__(self, identity: Identity, tools: Iterable[BoundTool], names_elsewhere: dict[str, str]) -> None:
        self.identity = identity
        self._tools = {tool.name: tool for tool in tools}
        self._names_elsewhere = names_elsewhere

    @property
    def listed(self) -> list[Tool]:
        """The tools as clients see them, in a fixed order."""
        return [tool.listed for tool in self._tools.values()]

    async def call(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool. An error is an answer too: one line that says what to do."""
        tool = self._tools.get(name)
        if tool is None:
            return self._refused("unknown", self._no_such(name))
        begun = time.perf_counter()
        try:
            answer = await _retried(tool, arguments)
        except ScratchbusError as problem:
            return self._refused(name, str(problem))
        except Exception:
            logger.exception("a tool failed", tool=name)
            return self._refused(name, f"{name}: internal error, a bug in the server; see its log")
        finally:
            counts.tool_calls[name] += 1
            counts.tool_took.add(time.perf_counter() - begun)
        text = to_json(answer).decode()
        return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=dict(answer))

    def _refused(self, name: str, why: str) -> CallToolResult:
        counts.tool_errors[name] += 1
        return CallToolResult(content=[TextContent(type="text", text=why)], is_error=True)

    def _no_such(self, name: str) -> str:
        group = self._names_elsewhere.get(name)
        if group is not None:
            return f"{name}: your connection has no {group} tools, only: {', '.join(self.identity.tools)}"
        return f"{shown(name)}: unknown tool; available: {', '.join(self._tools)}"


async def _retried(tool: BoundTool, arguments: dict[str, Any]) -> Answer:
    """Call a tool; if the engine does not answer a write, retry once with the same event id."""
    try:
        return await tool(arguments)
    except (EngineError, LogError) as problem:
        may_pass = isinstance(problem, _PASSING) and not isinstance(problem, LogBlocked)  # which an admin must repair
        if problem.event_id is None or not tool.takes("event_id") or not may_pass:
            raise
        return await tool({**arguments, "event_id": problem.event_id})


def _what_is_wrong(problem: ValidationError) -> str:
    """Return one line that describes every invalid argument."""
    lines = []
    for each in problem.errors(include_url=False):
        field = ".".join(str(part) for part in each["loc"])
        given = "" if each["type"] == "missing" else f"{shown(each['input'])}: "
        lines.append(f"{field}: {given}{each['msg'][0].lower()}{each['msg'][1:]}")
    return "; ".join(lines)


def _one_paragraph(text: str) -> str:
    return " ".join(text.split())


def _lean(schema: Any, parts: Mapping[str, Any] | None = None) -> Any:
    """Return a JSON schema without titles, which cost a model tokens and tell it nothing.

    References are replaced by their definitions, which makes validation by clients a fifth faster.
    """
    if isinstance(schema, list):
        return [_lean(each, parts) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if parts is None:
        parts = schema.get("$defs", {})
    if "$ref" in schema:
        return _lean(parts[schema["$ref"].removeprefix("#/$defs/")], parts)
    kept = {name: value for name, value in schema.items() if name != "$defs"}
    return {name: _lean(value, parts) for name, value in kept.items() if name != "title" or isinstance(value, dict)}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an optional argument without the null it also accepts."""
    choices = [each for each in schema.get("anyOf", []) if each != {"type": "null"}]
    if len(choices) != 1:
        return schema
    rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    return {**choices[0], **rest}
