"""Checkpoints, and the commit that moves one together with the state."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from secrets import token_hex
from typing import Any, NamedTuple

from scratchbus.domain.position import START, Position
from scratchbus.log.keys import ShardKeys
from scratchbus.log.steps import Call, Interrupted, Pause, Script, Step, ask

_SCRIPT = Script("commit")

Command = tuple[Any, ...]


class Checkpoint(NamedTuple):
    """How far a projection is folded: the last folded event, in which log, and in which build of the state."""

    position: Position = START
    event_id: str = ""
    build: int = 1
    origin: str = ""
    token: str = ""

    @classmethod
    def parse(cls, row: bytes | None, shard: int) -> Checkpoint:
        """Read the stored form; None is the beginning."""
        if not row:
            return cls(START._replace(shard=shard))
        id, _, rest = row.decode().partition("|")
        event_id, build, origin, token = rest.rsplit("|", 3)  # a caller's own event id may have a | in it
        return cls(Position.parse(id)._replace(shard=shard), event_id, int(build), origin, token)

    def __str__(self) -> str:
        if self.position.seq == 0:
            return ""
        return f"{self.position.stream_id}|{self.event_id}|{self.build}|{self.origin}|{self.token}"


class Outcome(Enum):
    """What became of a commit."""

    DONE = 1
    LOST = 0
    REWOUND = -1


def commit(
    keys: ShardKeys, projection: str, was: Checkpoint, position: Position, event_id: bytes, commands: Iterable[Command]
) -> Step[tuple[Outcome, Checkpoint]]:
    """Write the state and move the checkpoint, if both the log and the checkpoint are still as they were read.

    A commit whose reply is lost is recognised by its token when the checkpoint is read again.
    """
    now = was._replace(position=position, event_id=event_id.decode("utf-8", "replace"), token=token_hex(6))
    arguments: list[Any] = [str(was), str(now), position.stream_id, event_id, was.origin]
    for command in commands:
        arguments.append(len(command))
        arguments += command
    names = (keys.checkpoint(projection), keys.log, keys.origin, keys.ids)
    try:
        (reply,) = yield Call(keys.shard, (_SCRIPT.command(names, arguments),), is_write=True)
    except Interrupted:
        yield Pause(0.02)
        row = yield from ask(keys.shard, "GET", keys.checkpoint(projection))
        return (Outcome.DONE, now) if row == str(now).encode() else (Outcome.LOST, was)
    outcome = Outcome(reply[0])
    return outcome, now if outcome is Outcome.DONE else was
