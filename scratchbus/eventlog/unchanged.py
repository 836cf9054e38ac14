"""Writes to the state that depend on some of its fields, not on how far it is folded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from secrets import token_hex
from typing import NamedTuple

from scratchbus.engine.scripts import Command, Key, lua_script, packed
from scratchbus.engine.steps import Call, Interrupted, Pause, Step, ask
from scratchbus.eventlog.checkpoint import Checkpoint, checkpoint_key
from scratchbus.eventlog.keys import ShardKeys
from scratchbus.eventlog.layouts import LUA


@lua_script("eventlog/commands", "eventlog/unchanged", constants=LUA)
def _write_if_unchanged(
    *checks_and_commands: object, checkpoint: Key, build: str, folded_origin: str, token: str, form: int, checks: int
) -> None:
    """Run commands if fields are as they were read; give the checkpoint a new token, and at least this form."""


class FieldRead(NamedTuple):
    """A field of a hash as it was read: None if it did not exist."""

    key: str
    field: str
    value: bytes | None


def write_if_unchanged(
    keys: ShardKeys, was: Checkpoint, reads: Sequence[FieldRead], commands: Iterable[Command], form: int
) -> Step[bool]:
    """Write to the state if it is still this build, of this log, and these fields are as they were read.

    Unlike a commit, it does not fail because projectors have folded further meanwhile. Afterwards the state has at
    least this form. Returns whether it wrote. After a lost reply that is False if the checkpoint has moved since: read
    the fields again.
    """
    token, key = token_hex(6), checkpoint_key(keys)
    checks = [part for key, field, value in reads for part in (key, field, value or b"")]
    command = _write_if_unchanged(
        *checks, *packed(commands), checkpoint=key, build=str(was.build), folded_origin=was.origin, token=token,
        form=form, checks=len(reads),
    )  # fmt: skip
    try:
        (reply,) = yield Call(keys.shard, (command,), is_write=True)
    except Interrupted:
        yield Pause(0.02)
        return Checkpoint.parse((yield from ask(keys.shard, "GET", key)), keys.shard).token == token
    return bool(_write_if_unchanged.answer(reply, 0, 1)[0])
