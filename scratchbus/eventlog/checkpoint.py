"""Checkpoints, and the writes to the state: a commit moves the checkpoint along, others keep it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from functools import lru_cache
from secrets import token_hex
from typing import NamedTuple, NoReturn

from scratchbus.domain.position import START, Position
from scratchbus.engine.scripts import Command, Key, lua_script, packed
from scratchbus.engine.steps import Call, Collect, Interrupted, Pause, Sent, Step, ask, ask_all
from scratchbus.errors import CodeTooOld, EngineForbidden, InvalidPosition, LogError, LogRewound, StateTooOld
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.keys import ShardKeys
from scratchbus.eventlog.lag import end_of
from scratchbus.eventlog.layouts import CHECKPOINT, LUA
from scratchbus.eventlog.raw_entries import text_of
from scratchbus.projections import scratch_page


@lua_script("eventlog/entries", "eventlog/commands", "eventlog/checkpoint", constants=LUA)
def _commit(
    *commands: object,
    checkpoint: Key,
    log: Key,
    origin: Key,
    never: Key,
    was: str,
    new: str,
    stream_id: str,
    event_id: bytes,
    folded_origin: str,
    floor: str,
    rebuilding: str,
    builder: str,
) -> None:
    """Run commands and move a checkpoint from `was` to `new`, at this event of the log with this origin.

    `floor` and `rebuilding` are keys that a projector may only read: of the floor, and of the lease of rebuilds, whose
    token is `builder` in a rebuild. `never` is a key that never exists (see `ShardKeys.ids`).
    """


class Checkpoint(NamedTuple):
    """How far a projection is folded: the last folded event, in which log, and in which build of the state.

    Its stored form names the form of the state: code that does not know it cannot use the state.
    """

    position: Position = START
    event_id: str = ""
    build: int = 1
    origin: str = ""
    token: str = ""
    form: int = 0
    is_paged: bool = False  # some documents may be paged out

    @classmethod
    @lru_cache(maxsize=1_024)  # most reads find the same checkpoint as the read before
    def parse(cls, row: bytes | None, shard: int) -> Checkpoint:
        """Read the stored form; None is the beginning.

        Raises StateTooOld or CodeTooOld for state of another form, LogRewound for an impossible event id.
        """
        if not row:
            return cls(START._replace(shard=shard), form=scratch_page.FORM)
        stored = CHECKPOINT.regex.fullmatch(text_of(row))
        if stored is None:
            _refuse(shard, 0)  # the form before forms were numbered
        id, event_id, build, form, origin, token = stored.groups()
        if not scratch_page.FORM <= int(form) <= scratch_page.IN_TABLES:
            _refuse(shard, int(form))
        try:
            position = Position.parse(id)._replace(shard=shard)
        except InvalidPosition:
            raise not_folded_from(shard, id) from None
        if position.seq == 0:
            raise not_folded_from(shard, id)
        return cls(position, event_id, int(build), origin, token, int(form), int(form) >= scratch_page.PAGED)

    def __str__(self) -> str:
        if self.position.seq == 0:
            return ""
        return f"{self.position.stream_id}|{self.event_id}|{self.build}|{self.form}|{self.origin}|{self.token}"


def is_state_too_old(log: Log) -> Step[bool]:
    """Return whether any shard's state is stored in the form of an older version."""
    for shard in range(log.shards):
        try:
            yield from read_unchecked(log.keys(shard))
        except StateTooOld:
            return True
        except (LogError, EngineForbidden):  # reads will report it
            continue
    return False


def _refuse(shard: int, form: int) -> NoReturn:
    what = f"shard {shard}: the state is stored in form {form}, this code reads form {scratch_page.IN_TABLES}"
    if form > scratch_page.IN_TABLES:
        raise CodeTooOld(f"{what}; upgrade scratchbus")
    raise StateTooOld(f"{what}; run `scratchbus rebuild`")


def not_folded_from(shard: int, id: object) -> LogRewound:
    """Return the error for state of another log, or folded by an older version from an entry added by hand."""
    return LogRewound(
        f"shard {shard}: the state was folded up to {id}, which is no event of this log; run `scratchbus rebuild`"
    )


def check_end(checkpoint: Checkpoint, tail: bytes | None, origin: bytes | None) -> None:
    """Raise LogRewound for a checkpoint behind the tail, which was read after it; ignore a lost or damaged tail."""
    if tail is None and origin is not None:
        return
    shard = checkpoint.position.shard
    try:
        end = end_of(tail, shard)
    except InvalidPosition:
        return
    if checkpoint.position > end:
        raise not_folded_from(shard, checkpoint.position)


def checkpoint_key(keys: ShardKeys, build: int | None = None) -> str:
    """Return the key of the checkpoint of the live state, or of an unfinished build."""
    return keys.live if build is None else keys.page("", build).checkpoint


def read_checkpoint(keys: ShardKeys, build: int | None = None) -> Step[Checkpoint]:
    """Return the checkpoint of the live state, or of an unfinished build.

    Raises StateTooOld or CodeTooOld for state of another form, LogRewound for state of another log.
    """
    checkpoint, _ = yield from read_checkpoint_and_end(keys, build)
    return checkpoint


def read_checkpoint_and_end(keys: ShardKeys, build: int | None = None) -> Step[tuple[Checkpoint, bytes | None]]:
    """Return the same checkpoint, and the tail of the log as stored."""
    names = (checkpoint_key(keys, build), keys.tail, keys.origin)
    row, tail, origin = yield from ask_all(keys.shard, [("GET", name) for name in names])
    checkpoint = Checkpoint.parse(row, keys.shard)
    check_end(checkpoint, tail, origin)
    return checkpoint if row or build is None else checkpoint._replace(build=build), tail


def read_unchecked(keys: ShardKeys) -> Step[Checkpoint]:
    """Return the checkpoint of the live state, even if it is behind the tail."""
    return Checkpoint.parse((yield from ask(keys.shard, "GET", checkpoint_key(keys))), keys.shard)


class Outcome(Enum):
    """The result of a commit."""

    DONE = 1
    LOST = 0
    REWOUND = -1


class Commit(NamedTuple):
    """A commit: the call that makes it, and the checkpoint before and after."""

    call: Call
    key: str
    was: Checkpoint
    now: Checkpoint


def prepare_commit(
    keys: ShardKeys,
    key: str,
    was: Checkpoint,
    position: Position,
    event_id: bytes,
    commands: Iterable[Command],
    builder: str = "",
) -> Commit:
    """Return the commit that writes the state and moves the checkpoint at `key`.

    It commits only if both the log and the checkpoint are still as they were read, and in a rebuild only while its
    lease has the token `builder`.
    """
    now = was._replace(position=position, event_id=text_of(event_id), token=token_hex(6))
    command = _commit(
        *packed(commands),
        checkpoint=key,
        log=keys.log,
        origin=keys.origin,
        never=keys.ids,
        was=str(was),
        new=str(now),
        stream_id=position.stream_id,
        event_id=event_id,
        folded_origin=was.origin,
        floor=keys.floor,
        rebuilding=keys.rebuilding,
        builder=builder,
    )
    return Commit(Call(keys.shard, (command,), is_write=True), key, was, now)


def commit(prepared: Commit, sent: Sent | None = None) -> Step[tuple[Outcome, Checkpoint]]:
    """Make a commit, unless it is `sent` already; return its outcome and the checkpoint.

    A commit whose reply is lost is recognised by its token when the checkpoint is read again.
    """
    call, key, was, now = prepared
    try:
        (reply,) = yield call if sent is None else Collect(sent)
    except Interrupted:
        yield Pause(0.02)
        row = yield from ask(call.shard, "GET", key)
        return (Outcome.DONE, now) if row == str(now).encode() else (Outcome.LOST, was)
    outcome = Outcome(_commit.answer(reply, *(each.value for each in Outcome))[0])
    return outcome, now if outcome is Outcome.DONE else was


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
