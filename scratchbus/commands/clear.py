"""Remove closed observations from a page."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Any

from scratchbus.commands.execution import Occasion, nth_suffix
from scratchbus.commands.observations import lifecycle_of, type_or_none
from scratchbus.domain.models import CheckedBy, EventId, Given
from scratchbus.domain.page_events import Cleared
from scratchbus.domain.registry import ObservationType
from scratchbus.domain.values import check_id
from scratchbus.engine.steps import Step
from scratchbus.errors import InvalidField, TooLarge, shown
from scratchbus.eventlog.append import append
from scratchbus.eventlog.writes import MAX_BATCH, Op, Write
from scratchbus.readmodel.history import check_not_erased
from scratchbus.readmodel.queries import get
from scratchbus.readmodel.scope import Core


def _check_ids(ids: object) -> list[str]:
    if not isinstance(ids, Collection):
        raise InvalidField("ids", f"{shown(ids)} is not a list of observation ids")
    unique = dict.fromkeys(check_id(id) for id in ([ids] if isinstance(ids, str) else ids))
    return sorted(unique) if isinstance(ids, set | frozenset) else list(unique)


class Clear(Given):
    """The observations to remove from the page; a text counts as a list of one."""

    ids: Annotated[Sequence[str], CheckedBy(_check_ids)]
    event_id: EventId = None


def clear_resolved(core: Core, page: str, arguments: dict[str, Any]) -> Step[None]:
    """Remove resolved observations from the page, all or none; their history stays."""
    command = Clear.parse(arguments)
    if not command.ids:
        return
    if len(command.ids) > MAX_BATCH:
        raise TooLarge("ids", len(command.ids), MAX_BATCH, "observations", "clear them in several calls")
    occasion = Occasion.of(core, page, command.event_id, "clear", command.ids)
    found = yield from get(core.log, page, [*command.ids], core.fresh)
    kinds: dict[str, ObservationType | None] = {}
    for name in {each.type for each in found.values()}:
        kinds[name] = yield from type_or_none(core, name)
    writes = []
    for index, id in enumerate(command.ids):
        before = found.get(id)
        lifecycle = lifecycle_of(kinds[before.type] if before is not None else None, before)
        event = occasion.event(Cleared, id, nth_suffix(index))
        closed = lifecycle.of_class("closed")
        writes.append(Write(event, Op.CLEAR, occasion.digest, allowed=closed, verb="cleared", lifecycle=lifecycle))
    appended = yield from append(core.log, page, writes)
    yield from check_not_erased(core.log, appended.recalled or ())
