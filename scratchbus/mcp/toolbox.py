"""Declare tools, call them and return their answers.

A tool is a method: its signature gives the schema of its arguments, its return type the schema of its answers. Both are
derived by `tools/generate_tools.py`, since that takes an eighth of the start of a server. The SDK is not used for this
because it ignores unknown arguments (a forged `source` among them), parses any text that looks like JSON, and spreads
an argument error over many lines.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cache
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, get_type_hints

from pydantic import BaseModel, ValidationError, create_model
from pydantic_core import from_json, to_json

import scratchbus
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
from scratchbus.mcp.notices import Notices
from scratchbus.mcp.tool_parameters import with_types
from scratchbus.mcp.workspace import Workspace

FIXED_BY_CONNECTION: Final = frozenset({"source", "by", "agent", "page", "session", "kind", "instance"})
"""Values fixed by the connection; refused as arguments."""

_TRANSIENT_ERRORS: Final = (EngineUnreachable, EngineLoading, NotReplicated, LogError)

Answer = Mapping[str, Any]
"""A tool's answer: a TypedDict of JSON values, whose schema clients get."""

logger = stderr_logger()


class Hints(NamedTuple):
    """A tool's effect on the bus, as announced to clients. No tool reaches beyond the bus."""

    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False


READS = Hints(read_only=True, idempotent=True)
ADDS = Hints()
SETS = Hints(idempotent=True)
REPLACES = Hints(destructive=True, idempotent=True)
EDITS = Hints(destructive=True)


Method = TypeVar("Method", bound=Callable[..., Awaitable[Answer]])


def tool(title: str, hints: Hints, *, current_name: str | None = None) -> Callable[[Method], Method]:
    """Make a method of a group a tool, with the title people see.

    The method gives the tool its name, its docstring the description, its signature the arguments. `current_name`
    marks a former tool by its current name: it is hidden, but clients that have the current tool can still call it.
    """

    def mark(method: Method) -> Method:
        method.tool = title, hints  # type: ignore[attr-defined]
        method.current_name = current_name  # type: ignore[attr-defined]
        return method

    return mark


class ToolGroup:
    """Related tools of one identity."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._page = workspace.page

    @classmethod
    def current_names(cls) -> dict[str, str]:
        """Return the names of its tools in their order, former ones too, each with its current name."""
        return {name: member.current_name or name for name, member in vars(cls).items() if hasattr(member, "tool")}

    def has(self, name: str) -> bool:
        """Return whether the group offers this tool to this connection."""
        return True


@cache
def _declarations() -> dict[str, dict[str, Any]]:
    """Return all tools as clients see them, by name, as `tools/generate_tools.py` has written them."""
    found: dict[str, dict[str, Any]] = from_json(Path(__file__).with_name("tools.json").read_bytes())
    return found


@cache
def arguments_model(method: Callable[..., Awaitable[Answer]]) -> type[BaseModel]:
    """Return the model that validates the arguments of a tool's method; it is the same for all connections."""
    types = get_type_hints(method, include_extras=True)
    _, *parameters = signature(method).parameters.values()  # without self
    fields: dict[str, Any] = {
        each.name: (types[each.name], ... if each.default is Parameter.empty else each.default) for each in parameters
    }
    return create_model(f"{method.__name__}_arguments", **fields)


class BoundTool:
    """A tool of one connection."""

    def __init__(self, function: Callable[..., Awaitable[Answer]]) -> None:
        self._function = function
        self.name = function.__name__
        self.listed = _declarations()[self.name]
        self._arguments = self.listed["inputSchema"]["properties"]
        self.is_former = function.current_name is not None  # type: ignore[attr-defined]

    async def call(self, arguments: dict[str, Any]) -> Answer:
        """Call the tool; if the engine does not answer a write, retry once with the same event id.

        Raises ScratchbusError; InvalidInput describes invalid arguments.
        """
        try:
            return await self._run(arguments)
        except (EngineError, LogError) as problem:
            # LogBlocked is a LogError too, but stays until an operator repairs the log.
            is_transient = isinstance(problem, _TRANSIENT_ERRORS) and not isinstance(problem, LogBlocked)
            if problem.event_id is None or "event_id" not in self._arguments or not is_transient:
                raise
            return await self._run({**arguments, "event_id": problem.event_id})

    async def _run(self, arguments: dict[str, Any]) -> Answer:
        """Run the tool. An argument that is null counts as omitted, as many clients intend."""
        for name, value in arguments.items():
            if name not in self._arguments:
                raise InvalidInput(self._unknown(name))
            _check_unicode(name, value)
        arguments = {name: self._unpacked(name, value) for name, value in arguments.items() if value is not None}
        try:
            model = arguments_model(self._function.__func__).model_validate(arguments)  # type: ignore[attr-defined]
        except ValidationError as problem:
            raise InvalidInput(_describe_problems(problem)) from None
        for name, value in arguments.items():
            _check_numbers(name, value, getattr(model, name))
        return await self._function(**{name: getattr(model, name) for name in type(model).model_fields})

    def _unknown(self, name: str) -> str:
        if name in FIXED_BY_CONNECTION:
            return f"{name}: your connection sets this; leave the argument out"
        known = ", ".join(self._arguments) or "none"
        return f"{shown(name)}: unknown argument; {self.name} takes: {known}"

    def _unpacked(self, name: str, value: Any) -> Any:
        """Parse a list or object that a client sent as JSON text, as some do."""
        if isinstance(value, str) and self._arguments[name].get("type") in ("array", "object"):
            try:
                return from_json(value)
            except ValueError:
                pass  # validated as text
        return value


class Toolbox:
    """The tools of one connection, by name."""

    def __init__(self, workspace: Workspace, tools: Iterable[BoundTool], group_of: dict[str, str]) -> None:
        self._workspace = workspace
        self._notices = Notices()
        self._tools = {tool.name: tool for tool in tools}
        self._group_of = group_of

    @property
    def names(self) -> list[str]:
        """The names of the tools, in a fixed order."""
        return [name for name, tool in self._tools.items() if not tool.is_former]

    @property
    def listed(self) -> list[dict[str, Any]]:
        """The tools as clients see them, in a fixed order, with the current observation types."""
        types: scratchbus.Registry = self._workspace.bus.types
        return [
            {**tool.listed, "inputSchema": with_types(tool.listed["inputSchema"], types)}
            for tool in self._tools.values()
            if not tool.is_former
        ]

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a tool and return its result. Errors are answers too: one line that says what to do."""
        tool = self._tools.get(name)
        if tool is None:
            return self._refused("unknown", self._unknown_tool(name))
        started_at = time.perf_counter()
        try:
            answer = dict(await tool.call(arguments))
        except ScratchbusError as problem:
            return self._refused(name, for_a_model(self._workspace.told(problem)))
        except Exception:
            logger.exception("a tool failed", tool=name)
            return self._refused(name, f"{name}: internal error, a bug in the server; see its log")
        finally:
            counts.tool_calls[name] += 1
            counts.tool_took.add(time.perf_counter() - started_at)
        notice = self._notices.after(name, arguments, answer, self._tools)
        if notice:
            answer["notice"] = notice
        text = to_json(answer).decode()
        self._notices.read(len(text))
        return {"content": [{"type": "text", "text": text}], "structuredContent": answer, "isError": False}

    def _refused(self, name: str, reason: str) -> dict[str, Any]:
        counts.tool_errors[name] += 1
        return {"content": [{"type": "text", "text": reason}], "isError": True}

    def _unknown_tool(self, name: str) -> str:
        identity = self._workspace.identity
        if name == "update_scratchpad" and not identity.has_scratchpad:
            return f"403 Unauthorized: only a subagent has a scratchpad; you are a {identity.kind}"
        group = self._group_of.get(name)
        if group is None:
            return f"{shown(name)}: unknown tool; available: {', '.join(self.names)}"
        groups = {self._group_of[each] for each in self.names}
        lacks = "does not have this tool" if group in groups else f"has no {group} tools"
        return f"{name}: your connection {lacks}; it has: {', '.join(self.names)}"


_FOR_PEOPLE: Final = re.compile(
    r" ?\([^()]*`scratchbus [^()]*\)|[;,] (?:see |or |start )[^;]*`scratchbus [^;]*|; a holder that was restarted [^;]*"
)


def for_a_model(error: str) -> str:
    """Return an error without advice on shell commands and connections, which a model with only tools cannot follow."""
    return _FOR_PEOPLE.sub("", error)


def _check_unicode(name: str, value: Any) -> None:
    """Raise InvalidInput if an argument contains text that no answer could repeat, such as half a surrogate pair."""
    try:
        to_json(value, serialize_unknown=True)
    except ValueError:
        raise InvalidInput(f"{name}: is not valid Unicode text") from None


def _check_numbers(field: str, given: object, taken: object) -> None:
    """Raise InvalidInput if pydantic has taken true or false for a number."""
    if isinstance(given, bool) and not isinstance(taken, bool):
        raise InvalidInput(f"{field}: {given}: input should be a valid number")
    if isinstance(given, list) and isinstance(taken, list):
        for index, (value, item) in enumerate(zip(given, taken, strict=True)):
            _check_numbers(f"{field}.{index}", value, item)
    elif isinstance(given, dict) and isinstance(taken, BaseModel):
        for name, value in given.items():
            _check_numbers(f"{field}.{name}", value, getattr(taken, name))


def _describe_problems(problem: ValidationError) -> str:
    """Return one line that describes every invalid argument."""
    lines = []
    for each in problem.errors(include_url=False):
        path, message = list(each["loc"]), f"{each['msg'][0].lower()}{each['msg'][1:]}"
        if path[-1] in ("int", "str", "bool") and each["type"] != "extra_forbidden":  # one of the types of a duration
            path, message = path[:-1], 'input should be whole seconds, or a text such as "2h"'
        elif each["type"] in ("dict_type", "model_type"):
            message = "input should be an object"
        elif each["type"].startswith(("datetime_", "timezone_")):
            message = "input should be a time with its zone, such as 2026-01-31T09:00:00Z"
        value = "" if each["type"] == "missing" else f"{shown(each['input'])}: "
        lines.append(f"{'.'.join(map(str, path))}: {value}{message}")
    return "; ".join(dict.fromkeys(lines))
