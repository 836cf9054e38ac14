"""Registries published to a whole bus as events on the system page: observation types, and relations of facts."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

from scratchbus.domain.checks import check_own_event_id
from scratchbus.domain.digest import digest_of
from scratchbus.domain.page_events import RelationsChanged, TypesChanged
from scratchbus.domain.position import START, Position
from scratchbus.domain.values import check_whole
from scratchbus.engine.steps import Step
from scratchbus.errors import LogError, VersionConflict
from scratchbus.eventlog.append import append, find_attempt
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.ids import new_event_id
from scratchbus.eventlog.keys import SYSTEM_PAGE
from scratchbus.eventlog.writes import Op, Write
from scratchbus.readmodel.history import known_events
from scratchbus.readmodel.queries import read_head


class Version(NamedTuple):
    """The version of a published text, 0 for none, and the position of its event.

    A log that has lost events gives a number again, but at another position.
    """

    number: int = 0
    position: Position = START


UNPUBLISHED = Version()
"""The version of a text that is not published."""


def read_published(log: Log, subject: str, known: Version = UNPUBLISHED) -> Step[tuple[Version, str | None]]:
    """Return the published version, and its text unless it is the known one."""
    head = yield from read_head(log, SYSTEM_PAGE, subject)
    if head is None:
        return UNPUBLISHED, None
    version = Version(head.version, Position.parse(head.position))
    if version == known:
        return version, None
    (event,) = yield from known_events(log, [version.position])
    return version, cast(TypesChanged | RelationsChanged, event).text


def publish(
    log: Log,
    event: TypesChanged | RelationsChanged,
    event_id: str | None,
    expected_version: int | None,
    check: Callable[[str | None], Step[None]] | None = None,
) -> Step[tuple[bool, Version | None]]:
    """Publish the text of an event; return whether that changed anything, and its version if it was appended now.

    `check` gets the text in force, None if there is none, and may refuse the new one. Raises VersionConflict if someone
    else has published meanwhile, or since the expected version. A retry with the same event id gets the first answer;
    so with an id, the text in force is published again, which records the id.
    """
    check_own_event_id(event_id)
    if expected_version is not None:
        check_whole("expected_version", expected_version, minimum=0)
    subject, text = event.subject, event.text
    (version, _), current = yield from read_published(log, subject)
    guards = () if expected_version is None else (expected_version,)
    digest = digest_of(f"push_{subject}", text, *guards) if event_id is not None else ""
    event = event.placed(id=event_id or new_event_id())
    earlier = (yield from find_attempt(log, SYSTEM_PAGE, [Write(event, Op.PUT, digest)])) if digest else None
    if earlier is not None:
        return (yield from _has_changed(log, earlier[0])), None
    if expected_version is not None and expected_version != version:
        raise VersionConflict(subject, expected_version, version)
    if current == text and event_id is None:
        return False, None
    if check is not None:
        yield from check(current)
    appended = yield from append(log, SYSTEM_PAGE, [Write(event, Op.PUT, digest, version=version)])
    published = Version(appended.written[0].version, appended.written[0].position) if appended.written else None
    return current != text, published


def _has_changed(log: Log, position: Position) -> Step[bool]:
    """Return whether the event at a position published another text than the one before; True if that is lost."""
    try:
        (event,) = yield from known_events(log, [position])
        if not event.prev:
            return True
        (before,) = yield from known_events(log, [Position.parse(event.prev)._replace(shard=position.shard)])
    except LogError:
        return True
    published = cast(TypesChanged | RelationsChanged, event)
    return published.text != cast(TypesChanged | RelationsChanged, before).text
