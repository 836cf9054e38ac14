"""Dead letters: events that a subscription set aside because handling them failed again and again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from datetime import UTC, datetime
from typing import Self

from pydantic import BaseModel

from scratchbus.domain.event import Event
from scratchbus.domain.position import Position, in_time
from scratchbus.domain.quoting import encodable
from scratchbus.engine.steps import Step, ask, ask_all, batches
from scratchbus.errors import InvalidPosition, NotFound, PositionLost, shown
from scratchbus.eventlog.archive_protocol import EVENTS_LOST
from scratchbus.eventlog.below_floor import entries_at
from scratchbus.eventlog.keys import ShardKeys
from scratchbus.eventlog.log_entry import LogEntry
from scratchbus.eventlog.raw_entries import RawEntry, entry_position, texts_of
from scratchbus.eventlog.subscription_errors import removed
from scratchbus.eventlog.subscription_state import names, take_dead_letters, texts
from scratchbus.readmodel.scope import Core
from scratchbus.subscriptions.options import check_name
from scratchbus.telemetry.counters import counts
from scratchbus.telemetry.logs import stderr_logger

logger = stderr_logger()

READ_AT_ONCE = 100
"""The most dead letters whose events, and the most subscriptions whose dead letters, are read at once."""

Positions = Position | str | Iterable[Position | str] | None
"""One position, several, or None for all."""


class DeadLetter(BaseModel):
    """An event that was set aside: its position, the reason, the number of attempts, and the time."""

    subscription: str
    position: str
    event_id: str
    page: str
    subject: str
    kind: str
    reason: str
    attempts: int
    at: datetime

    @classmethod
    def of(cls, subscription: str, event: Event, reason: str, attempts: int) -> Self:
        """Make one now."""
        return cls(
            subscription=subscription,
            position=str(event.position),
            event_id=event.id,
            page=event.page,
            subject=event.subject,
            kind=event.kind,
            reason=encodable(reason),
            attempts=attempts,
            at=datetime.now(UTC),
        )


def set_aside(subscription: str, event: Event, reason: str, attempts: int) -> str:
    """Log and count an event that is set aside; return its dead letter as it is stored."""
    return _stored(DeadLetter.of(subscription, event, reason, attempts))


def set_aside_again(before: DeadLetter, reason: str, attempts: int) -> str:
    """Do the same for a dead letter that was delivered again, without its event."""
    now = datetime.now(UTC)
    return _stored(before.model_copy(update={"reason": encodable(reason), "attempts": attempts, "at": now}))


def _stored(dead_letter: DeadLetter) -> str:
    logger.error("set aside as a dead letter", subscription=dead_letter.subscription, position=dead_letter.position,
                 attempts=dead_letter.attempts, reason=dead_letter.reason)  # fmt: skip
    counts.subscriptions[dead_letter.subscription].dead += 1
    return dead_letter.model_dump_json()


def list_dead_letters(core: Core, name: str | None) -> Step[list[DeadLetter]]:
    """Return the dead letters of a subscription, or of all, in the order of their events. Raises NotFound."""
    keys = core.log.keys(0)
    out: list[DeadLetter] = []
    chosen = (yield from names(keys)) if name is None else [(yield from _checked_name(keys, name))]
    for batch in batches(chosen, READ_AT_ONCE):
        replies = yield from ask_all(keys.shard, [("HGETALL", keys.dead(each)) for each in batch])
        for rows in map(texts, replies):
            out += [DeadLetter.model_validate_json(rows[position]) for position in sorted(rows, key=by_time)]
    return out


def retry_dead_letters(core: Core, name: str, positions: Positions) -> Step[int]:
    """Enqueue dead letters for redelivery, before new events; return their number.

    Raises NotFound, or PositionLost if an event is no longer in the log; then nothing has changed.
    """
    keys = core.log.keys(0)
    chosen = yield from _chosen_positions(keys, name, positions)
    for batch in batches(chosen, READ_AT_ONCE):
        found = yield from _find_entries(core, batch)
        for position in batch:
            if position not in found:
                raise PositionLost(
                    f"the event at {position} is no longer in the log and cannot be delivered again;"
                    f" drop its dead letter: `scratchbus dead-letters drop {name} {position}`"
                )
    return (yield from take_dead_letters(keys, name, "redeliver", chosen))


def drop_dead_letters(core: Core, name: str, positions: Positions) -> Step[int]:
    """Delete dead letters; return their number. Raises NotFound."""
    keys = core.log.keys(0)
    chosen = yield from _chosen_positions(keys, name, positions)
    return (yield from take_dead_letters(keys, name, "drop", chosen))


def find_entry(core: Core, position: str) -> Step[RawEntry | None]:
    """Return the log entry at a position, or None. Raises an error of EVENTS_LOST if it was archived."""
    found = yield from entries_at(core.log, [Position.parse(position)])
    return found[0] if found else None


def _find_entries(core: Core, positions: Sequence[str]) -> Step[dict[str, RawEntry]]:
    """Return the log entries at these positions, without missing ones. Raises an error of EVENTS_LOST."""
    by_shard: dict[int, list[Position]] = {}
    for position in map(Position.parse, positions):
        by_shard.setdefault(position.shard, []).append(position)
    found: dict[str, RawEntry] = {}
    for shard, wanted in by_shard.items():
        for entry in (yield from entries_at(core.log, wanted)):
            found[str(entry_position(entry, shard))] = entry
    return found


def positions_to_redeliver(core: Core, name: str) -> Step[list[str]]:
    """Return the positions of the dead letters to deliver again, oldest event first."""
    return sorted(texts_of((yield from ask(0, "HKEYS", core.log.keys(0).again(name)))), key=by_time)


def read_redeliveries(core: Core, name: str, positions: Sequence[str]) -> Step[tuple[list[LogEntry], list[DeadLetter]]]:
    """Return the dead letters to deliver again at these positions, and those whose events are gone or unreadable."""
    items: list[LogEntry] = []
    missing: list[DeadLetter] = []
    found: dict[str, RawEntry] | None = None
    with suppress(*EVENTS_LOST):  # one that cannot be read must not hold up all others
        found = yield from _find_entries(core, positions)
    for position in positions:
        entry, reason = None, "its event is no longer in the log"
        try:
            entry = (yield from find_entry(core, position)) if found is None else found.get(position)
        except EVENTS_LOST as error:
            reason = str(error)
        if entry is None:
            dead_letter = yield from read_redelivery(core, name, position)
            if dead_letter is not None:  # else another consumer has handled it
                missing.append(dead_letter.model_copy(update={"reason": reason}))
        else:
            items.append(LogEntry(entry, Position.parse(position).shard))
    return items, missing


class Redeliveries:
    """The dead letters that a consumer has yet to deliver again; it reads a few at a time."""

    def __init__(self) -> None:
        self.positions: list[str] = []

    def read(self, core: Core, name: str, queued: Set[str]) -> Step[tuple[list[LogEntry], list[DeadLetter]]]:
        """Return the next ones except those `queued`, see `read_redeliveries`; nothing once there are no more."""
        if not self.positions:
            found = yield from positions_to_redeliver(core, name)
            self.positions = [position for position in found if position not in queued]
        items: list[LogEntry] = []
        missing: list[DeadLetter] = []
        while self.positions and not items:
            items, gone = yield from read_redeliveries(core, name, self.positions[:READ_AT_ONCE])
            missing += gone
            del self.positions[:READ_AT_ONCE]
        return items, missing


def read_redelivery(core: Core, name: str, position: str) -> Step[DeadLetter | None]:
    """Return the dead letter that is to be delivered again at a position, or None."""
    row = yield from ask(0, "HGET", core.log.keys(0).again(name), position)
    return None if row is None else DeadLetter.model_validate_json(row)


def by_time(position: str) -> tuple[int, int, int]:
    """Return a key that sorts the texts of positions across shards."""
    return in_time(Position.parse(position))


def text_of(position: Position | str) -> str:
    """Return the text of a position, by which dead letters and pulled events are stored. Raises InvalidPosition."""
    return str(position if isinstance(position, Position) else Position.parse(position))


def _checked_name(keys: ShardKeys, name: str) -> Step[str]:
    if not (yield from ask(keys.shard, "EXISTS", keys.subscription(check_name(name)))):
        raise removed(name)
    return name


def _chosen_positions(keys: ShardKeys, name: str, positions: Positions) -> Step[list[str]]:
    yield from _checked_name(keys, name)
    stored = set(texts_of((yield from ask(keys.shard, "HKEYS", keys.dead(name)))))
    if positions is None:
        return sorted(stored, key=by_time)
    listed = [positions] if isinstance(positions, Position | str) else positions
    if not isinstance(listed, Iterable):
        raise InvalidPosition(f"positions: {shown(listed)} is neither a position nor a list of positions")
    chosen = list(map(text_of, listed))
    for position in chosen:
        if position not in stored:
            raise NotFound(f"{name!r} has no dead letter at {position}; see `scratchbus dead-letters list {name}`")
    return sorted(set(chosen), key=by_time)
