"""The staged keys of an import into one shard, which replace the keys of the log all at once.

An import that is killed before the switch leaves only staged keys; the next import, or an erasure, deletes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from secrets import token_hex
from typing import Any

from scratchbus.engine.scans import find_keys
from scratchbus.engine.scripts import Command, Key, lua_script, packed
from scratchbus.engine.steps import Step, ask, batches
from scratchbus.errors import Conflict, NotEmpty, ScratchbusError
from scratchbus.eventlog.keys import ShardKeys
from scratchbus.eventlog.layouts import LUA

_MAX_COMMANDS, _MAX_BYTES = 500, 4 * 1024 * 1024  # per part
_KEYS_AT_ONCE = 1_000


@lua_script("eventlog/commands", "eventlog/import", constants=LUA)
def _import(
    *keys_or_commands: object,
    importing: Key,
    tail: Key,
    origin: Key,
    log: Key,
    never: Key,
    operation: str,
    token: str,
    part: int = 0,
    old_tail: str = "",
    new_tail: str = "",
    new_origin: str = "",
) -> None:
    """Do one step of an import; which arguments are needed depends on the operation.

    `old_tail` is the tail before the import, "" for an empty log; `new_origin` is a random word for a new log.
    """


class Staging:
    """One import into one shard. Its requests are idempotent."""

    def __init__(self, keys: ShardKeys) -> None:
        self.keys = keys
        self.staged = keys.staged
        self._token = token_hex(8)

    def take(self) -> Step[None]:
        """Begin, abort any other import into the shard, and delete its staged keys."""
        reply = yield from self._do("take")
        if reply[1]:
            yield from self._clear()

    def write(self, commands: Iterable[Command]) -> Step[None]:
        """Write the log and its other keys under their staged names. Raises Conflict."""
        part: list[Any] = []
        number = count = size = 0
        for command in commands:
            part += packed([command])
            count, size = count + 1, size + sum(len(each) for each in command if isinstance(each, bytes))
            if count >= _MAX_COMMANDS or size >= _MAX_BYTES:
                number += 1
                yield from self._do("part", *part, part=number)
                part, count, size = [], 0, 0
        if part:
            yield from self._do("part", *part, part=number + 1)

    def switch(self, old_tail: str, new_tail: str) -> Step[None]:
        """Replace the log by the staged one if its tail is still the old one. Raises NotEmpty or Conflict."""
        reply = yield from self._do("switch", old_tail=old_tail, new_tail=new_tail, new_origin=token_hex(8))
        if reply[0] == 0:
            raise NotEmpty(self.keys.shard)

    def leave(self) -> Step[None]:
        """Record that no import is at work. Raises Conflict if another one has begun."""
        yield from self._do("leave")

    def drop(self) -> Step[None]:
        """Delete the staged keys, unless another import has begun."""
        with suppress(ScratchbusError):  # the next import deletes them
            yield from self._clear()
            yield from self.leave()

    def _clear(self) -> Step[None]:
        found = yield from find_keys(self.keys.shard, match=f"{self.staged.tag}*")
        for batch in batches(found, _KEYS_AT_ONCE):
            yield from self._do("clear", *batch)

    def _do(self, operation: str, *keys_or_commands: object, **needed: Any) -> Step[list[Any]]:
        keys = self.keys
        command = _import(
            *keys_or_commands,
            importing=keys.importing,
            tail=keys.tail,
            origin=keys.origin,
            log=keys.log,
            never=keys.ids,
            operation=operation,
            token=self._token,
            **needed,
        )
        reply = _import.answer((yield from ask(keys.shard, *command)), 1, 0, -1)
        if reply[0] == -1:
            raise Conflict(
                f"shard {keys.shard}: another import into this bus has started, which aborted this one;"
                " wait until the other one ends"
            )
        return reply


def abort_import(keys: ShardKeys) -> Step[None]:
    """Abort an import into a shard that is at work or was killed, and delete its staged keys."""
    if (yield from ask(keys.shard, "EXISTS", keys.importing)):
        staging = Staging(keys)
        with suppress(Conflict):  # another one has begun meanwhile
            yield from staging.take()
            yield from staging.leave()
