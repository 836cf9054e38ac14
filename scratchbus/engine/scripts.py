"""Lua scripts: their declaration in Python, the commands that run them, and their replies.

The signature of a decorated function is the only place that knows the order of KEYS and ARGV:

    @lua_script("eventlog/fetch", only_reads=True)
    def fetch(*stream_ids: str, log: Key) -> None:
        \"\"\"Return the entries of a stream that have these ids.\"\"\"

    command = fetch("7-1", "7-2", log=keys.log)

Its Lua text begins with generated locals: one for each parameter, under its name in capitals (`LOG`), a number if it is
an `int`, else a string; and `FIRST`, the index in ARGV of the first of `*stream_ids`. A default is "" or a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from hashlib import sha1
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, ParamSpec, TypeVar, get_type_hints

from hiredis import pack_command

from scratchbus.errors import EngineError, shown
from scratchbus.telemetry.lazy import once

P = ParamSpec("P")
T = TypeVar("T")

Command = tuple[Any, ...]
"""A command and its arguments."""


class Prefix(tuple[str, ...]):
    """The first arguments of many commands, packed once."""

    @once
    def packed(self) -> bytes:
        """The arguments in wire format."""
        return packed_arguments(self)


def packed_arguments(parts: tuple[str | bytes, ...]) -> bytes:
    """Return some of a command's arguments in wire format."""
    packed: bytes = pack_command(parts)  # type: ignore[arg-type]  # it takes a tuple of any length
    return packed[packed.index(b"\n") + 1 :]  # without the line that counts them


Key = Annotated[str, "KEYS"]
"""A parameter that is passed in KEYS. All others are passed in ARGV."""

Keys = Annotated[tuple[str, ...], "KEYS"]
"""Any number of keys, passed after the others. Their Lua local is the index in KEYS of the first."""

Constants = Mapping[str, str | Callable[..., str]]
"""Values for the placeholders in Lua: expressions, or functions that return one for the placeholder's words."""

MAX_ARGUMENTS = 2_000
"""The most arguments of one command that a script runs; Lua's `unpack` fails near 8,000."""

_PLACEHOLDER = re.compile(r"@([A-Z_]+)(?:\(([^)]*)\))?@")
_FOLDER = Path(__file__).parents[1]


class Script(Generic[P]):
    """A Lua script, called with named keys and arguments; returns the command that runs it.

    The command sends the script's digest, or its text if the engine does not have the script. A script that only reads
    is sent as EVALSHA_RO, so that users with read-only permissions can run it. They may not load scripts; users who may
    load them do so when they connect, and when the engine lacks one of their own scripts.
    """

    known: ClassVar[dict[str, str]] = {}  # texts by digest
    reading: ClassVar[list[tuple[str, ...]]] = []  # the commands that load the read-only scripts

    def __init__(
        self, declared: Callable[P, object], names: Iterable[str], *, only_reads: bool = False, constants: Constants
    ) -> None:
        self.name = declared.__name__.strip("_")
        self.__doc__ = declared.__doc__
        parameters = signature(declared).parameters.values()
        types = get_type_hints(declared, include_extras=True)
        named = [each for each in parameters if each.kind is Parameter.KEYWORD_ONLY]
        self._defaults = {each.name: each.default for each in named if each.default is not Parameter.empty}
        self._keys = [each.name for each in named if types[each.name] == Key]
        self._more_keys = [each.name for each in named if types[each.name] == Keys]
        self._arguments = [each.name for each in named if types[each.name] not in (Key, Keys)]
        self._numbers = [name for name in self._arguments if types[name] is int]
        locals = {name: f"KEYS[{number}]" for number, name in enumerate(self._keys, 1)}
        locals |= {name: str(len(locals) + 1) for name in self._more_keys}
        for number, name in enumerate(self._arguments, 1):
            locals[name] = f"tonumber(ARGV[{number}])" if types[name] is int else f"ARGV[{number}]"
        if any(each.kind is Parameter.VAR_POSITIONAL for each in parameters):
            locals["first"] = str(len(self._arguments) + 1)
        prologue = f"local {', '.join(locals).upper()} =\n  {', '.join(locals.values())}"
        self._source = "\n".join([prologue, *map(_read, names)])
        self._constants = {found[1]: constants[found[1]] for found in _PLACEHOLDER.finditer(self._source)}
        self._verb = "EVALSHA_RO" if only_reads else "EVALSHA"
        if only_reads:
            Script.reading.append(("SCRIPT", "LOAD", self.text))

    @once
    def text(self) -> str:
        """The text of the script, built on first use because some constants need slow imports."""
        return _PLACEHOLDER.sub(partial(_fill, self._constants), self._source)

    @once
    def sha(self) -> str:
        """The SHA-1 digest that identifies the script to the engine."""
        digest = sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        Script.known[digest] = self.text
        return digest

    def __call__(self, *rest: P.args, **named: P.kwargs) -> Command:
        """Return the command that runs the script."""
        values: dict[str, Any] = self._defaults | named
        for name in self._numbers:
            values[name] = str(values[name])  # see `packable`
        keys = list(map(values.__getitem__, self._keys))
        for name in self._more_keys:
            keys += values[name]
        return (self._verb, self.sha, str(len(keys)), *keys, *map(values.__getitem__, self._arguments), *rest)

    def answer(self, reply: Any, *codes: int) -> list[Any]:
        """Return a reply of the script. Raises EngineError unless it is a list that begins with one of these codes."""
        if isinstance(reply, list) and reply and reply[0] in codes and isinstance(reply[0], int):
            return reply
        raise self.unknown(reply)

    def unknown(self, reply: object) -> EngineError:
        """Return the error for an unexpected reply."""
        return EngineError(
            f"script {self.name!r} answered {shown(reply)}, which this code does not know; upgrade scratchbus"
            " everywhere, and check with `scratchbus verify` that the engine is whole"
        )


def lua_script(
    *names: str, only_reads: bool = False, constants: Constants | None = None
) -> Callable[[Callable[P, object]], Script[P]]:
    """Return a decorator that turns the declaration of a script into a `Script`.

    `names` are Lua files in the package's folder; the script is their concatenation. In it `@NAME@` stands for the
    constant of that name, and `@NAME(word, word)@` for what the constant, a function, returns for these words.
    """
    return lambda declared: Script(declared, names, only_reads=only_reads, constants=constants or {})


def packed(commands: Iterable[Command]) -> list[Any]:
    """Return commands as arguments of a script: for each, its number of parts, then the parts (see commands.lua)."""
    parts: list[Any] = []
    for command in commands:
        parts.append(str(len(command)))  # as text, so that `packable` finds no number to convert
        parts += command
    return parts


def _read(name: str) -> str:
    return _FOLDER.joinpath(f"{name}.lua").read_text("utf-8")


def _fill(constants: Constants, found: re.Match[str]) -> str:
    name, arguments = found.groups()
    value = constants[name]
    return value if isinstance(value, str) else value(*(arguments.split(", ") if arguments else ()))
