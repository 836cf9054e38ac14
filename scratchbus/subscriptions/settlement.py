"""The settlement of pulled events: they are acked, failed or released."""

from __future__ import annotations

from collections.abc import Iterable

from scratchbus.domain.checks import MAX_REASON, check_content, check_text
from scratchbus.domain.event import Event
from scratchbus.domain.events import AnyEvent
from scratchbus.domain.position import Position
from scratchbus.domain.values import Duration, delay_ms
from scratchbus.engine.retry_limits import JITTER
from scratchbus.engine.steps import Step
from scratchbus.errors import InvalidField, shown
from scratchbus.eventlog.archive_protocol import EVENTS_LOST
from scratchbus.eventlog.codec import Poison, decode_item
from scratchbus.eventlog.pulls import ACKED, OUT, WAITING, OutEntry, read_out, settle
from scratchbus.eventlog.subscription_state import drop_if_erased, read_state
from scratchbus.readmodel.scope import Core
from scratchbus.subscriptions.dead_letters import (
    find_entry,
    read_redelivery,
    set_aside,
    set_aside_again,
    text_of,
)
from scratchbus.subscriptions.options import Terms, check_attempts, check_name, retry_seconds
from scratchbus.telemetry.counters import counts

_Positions = Iterable[Position | str] | Position | str


def ack_pulled(core: Core, name: str, token: str, positions: _Positions) -> Step[None]:
    """Ack pulled events, all or none. Raises LeaseLost, NotDelivered, NotFound or InvalidInput."""
    texts = _texts(positions)
    count = yield from settle(core.log.keys(0), check_name(name), _token(token), texts, ACKED)
    counts.subscriptions[name].acked += count


def requeue(core: Core, name: str, token: str, positions: _Positions) -> Step[None]:
    """Give pulled events back unhandled, all or none; the attempt does not count.

    Raises LeaseLost, NotDelivered, NotFound or InvalidInput.
    """
    yield from settle(core.log.keys(0), check_name(name), _token(token), _texts(positions), WAITING)


def fail_pulled(
    core: Core,
    name: str,
    token: str,
    position: Position | str,
    reason: str,
    delay: Duration | None,
    max_attempts: int | None,
) -> Step[None]:
    """Take back a pulled event that failed: it is delivered again, or set aside after the last attempt.

    The last attempt at an archived event that this process cannot read does not count, since a dead letter needs the
    event. Raises LeaseLost, NotDelivered, NotFound or InvalidInput.
    """
    most = None if max_attempts is None else check_attempts(max_attempts)
    count = yield from _fail(core, name, token, position, reason, delay, most)
    counts.subscriptions[name].failed += count


def _fail(
    core: Core, name: str, token: str, position: Position | str, reason: str, delay: Duration | None, most: int | None
) -> Step[int]:
    """Take back a pulled event; return 0 if it was before."""
    text = text_of(position)
    token, reason = _token(token), check_content(reason, MAX_REASON, "reason")
    keys, wait_ms = core.log.keys(0), None if delay is None else delay_ms(delay, "delay")
    state = yield from read_state(keys, check_name(name))
    max_attempts = int(state.get("max_attempts") or 0) or Terms().max_attempts
    retry_ms = int(state.get("retry_delay") or 1000)
    entry, attempts = {each.position: each for each in read_out(state.get("out", ""))}.get(text), 1
    if entry is not None and entry.state == OUT and state.get("token", "") == token:
        if entry.attempt >= min(filter(None, (max_attempts, most))):
            try:
                event = yield from event_at(core, text)
            except EVENTS_LOST:
                if entry.comes_again:
                    return (yield from give_up_unread(core, name, token, entry, reason[:1000], entry.attempt))
                attempts = 0  # a client that can read the event has its last attempt again
            else:
                return (yield from give_up(core, name, token, entry, event, reason[:1000], entry.attempt))
        if wait_ms is None:
            wait_ms = round(retry_seconds(retry_ms / 1000, entry.attempt) * 1000)
            if state.get("url"):  # many webhooks may wait for one receiver
                wait_ms = round(wait_ms * JITTER.uniform(0.8, 1.2))
    return (yield from settle(keys, name, token, [text], WAITING, wait_ms=wait_ms or 0, attempts=attempts))


def give_up(
    core: Core, name: str, token: str, entry: OutEntry, event: Event | None, reason: str, attempts: int
) -> Step[int]:
    """Set an event aside as a dead letter; one that was erased is acked. Return 0 if it was before."""
    dead_letter = "" if event is None else set_aside(name, event, reason, attempts)
    return (yield from _settle_as(core, name, token, entry, dead_letter))


def give_up_unread(
    core: Core, name: str, token: str, entry: OutEntry, reason: str, attempts: int | None = None
) -> Step[int]:
    """Make an event that was delivered again a dead letter again, if the event was archived since and cannot be read.

    Without `attempts` it keeps their number. Returns 0 if it was before.
    """
    before = yield from read_redelivery(core, name, entry.position)
    dead_letter = ""  # of one that was erased or removed meanwhile
    if before is not None:
        dead_letter = set_aside_again(before, reason, before.attempts if attempts is None else attempts)
    return (yield from _settle_as(core, name, token, entry, dead_letter))


def _settle_as(core: Core, name: str, token: str, entry: OutEntry, dead_letter: str) -> Step[int]:
    count = yield from settle(core.log.keys(0), name, token, [entry.position], ACKED, dead_letter=dead_letter)
    if dead_letter:
        yield from drop_if_erased(core.log.keys(0), name, entry.position)
    return count


def _texts(positions: _Positions) -> list[str]:
    if not isinstance(positions, Iterable):
        raise InvalidField("positions", f"{shown(positions)} is neither a position nor a list of positions")
    listed = [positions] if isinstance(positions, Position | str) else list(positions)
    if not listed:
        raise InvalidField("positions", "is empty; name at least one event of the batch")
    return list(map(text_of, listed))


def _token(token: object) -> str:
    if not isinstance(token, str) or not token or not token.isascii():
        raise InvalidField("token", f"{shown(token)} is not the token of a batch; pass the one from `pull`")
    return check_text("token", token)


def event_at(core: Core, position: str) -> Step[AnyEvent | None]:
    """Return the event at a position; None if it was erased."""
    entry = yield from find_entry(core, position)
    event = None if entry is None else decode_item(entry, Position.parse(position).shard)
    return None if isinstance(event, Poison) else event
