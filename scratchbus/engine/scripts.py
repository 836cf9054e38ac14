"""Lua scripts: how one is declared in Python, sent to the engine, and answered.

The signature of a decorated function is the only place that knows the order of KEYS and ARGV:

    @lua_script("eventlog/fetch", only_reads=True)
    def fetch(*stream_ids: str, log: Key) -> None:
        \"\"\"Return the entries of a stream that have these ids.\"\"\"

    command = fetch("7-1", "7-2", log=keys.log)

Its Lua text begins with generated locals: one for each parameter, named as that is in capitals (`LOG`), as a number
for an `int`, else as text; and `FIRST`, the index in ARGV of the first of `*stream_ids`. A default is "" or a number.
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
from scratchbus.telemetry.late import once

P = ParamSpec("P")
T = TypeVar("T")

Command = tuple[Any, ...]
"""A command and its arguments."""


class Prefix(tuple[str, ...]):
    """The beginning of many commands, which is packed once."""

    @once
    def packed(self) -> bytes:
        """Its parts as they are sent."""
        return packed_arguments(self)


def packed_arguments(parts: tuple[str | bytes, ...]) -> bytes:
    """Return parts of a command as they are sent."""
    packed: bytes = pack_command(parts)  # type: ignore[arg-type]  # it takes a tuple of any length
    return packed[packed.index(b"\n") + 1 :]  # behind their number


Key = Annotated[str, "KEYS"]
"""A parameter of a script that goes with its KEYS. All others go with its ARGV."""

Keys = Annotated[tuple[str, ...], "KEYS"]
"""Any number of keys, which come last. Their Lua local is the index in KEYS of the first."""

Constants = Mapping[str, str | Callable[..., str]]
"""What Lua gets from Python: Lua expressions, or functions that return one for words."""

_PLACEHOLDER = re.compile(r"@([A-Z_]+)(?:\(([^)]*)\))?@")
_FOLDER = Path(__file__).parents[1]


class Script(Generic[P]):
    """A Lua script, called with named keys and arguments; returns the command that runs it.

    The command sends the script's digest, or the whole script if the engine does not have it. A script that only reads
    is marked read-only, so that users who may only read can run it. They may not send a whole script; other users load
    it, when they connect and when one of their own scripts is missing.
    """

    known: ClassVar[dict[str, str]] = {}
    reading: ClassVar[list[tuple[str, ...]]] = []  # the commands that load those that only read

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
        """The whole script, made when it is first used: what some constants need takes long to import."""
        return _PLACEHOLDER.sub(partial(_fill, self._constants), self._source)

    @once
    def sha(self) -> str:
        """The digest by which the engine knows it."""
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

    def answer(self, reply: Any, *known: int) -> list[Any]:
        """Return a reply of the script, a list that has to begin with one of these numbers. Raises EngineError."""
        if isinstance(reply, list) and reply and reply[0] in known and isinstance(reply[0], int):
            return reply
        raise self.unknown(reply)

    def unknown(self, reply: object) -> EngineError:
        """Return the error for a reply that this code does not know."""
        return EngineError(
            f"script {self.name!r} answered {shown(reply)}, which this code does not know; upgrade scratchbus"
            " everywhere, and check with `scratchbus verify` that the engine is whole"
        )


def lua_script(
    *names: str, only_reads: bool = False, constants: Constants | None = None
) -> Callable[[Callable[P, object]], Script[P]]:
    """Return a decorator that makes the declaration of a script its wrapper.

    `names` are the Lua files, in the package's folder, whose text follows one another in the script. In it `@NAME@` is
    the constant of that name, and `@NAME(word, word)@` what that returns for these words.
    """
    return lambda declared: Script(declared, names, only_reads=only_reads, constants=constants or {})


def packed(commands: Iterable[Command]) -> list[Any]:
    """Return commands as arguments of a script: for each, how many parts it has, and these (see commands.lua)."""
    parts: list[Any] = []
    for command in commands:
        parts.append(str(len(command)))  # where all is text, packing does not look for numbers again
        parts += command
    return parts


def _read(name: str) -> str:
    return _FOLDER.joinpath(f"{name}.lua").read_text("utf-8")


def _fill(constants: Constants, found: re.Match[str]) -> str:
    name, words = found.groups()
    value = constants[name]
    return value if isinstance(value, str) else value(*(words.split(", ") if words else ()))
