"""Add a batch of observations."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from scratchbus.commands.add import add_all, name_item, parse
from scratchbus.domain.observation import Observation
from scratchbus.domain.observation_models import NewObservation
from scratchbus.domain.values import check_event_id
from scratchbus.engine.steps import Step
from scratchbus.errors import InvalidField, InvalidInput, TooLarge, shown
from scratchbus.eventlog.writes import MAX_BATCH, SPLIT_BATCH
from scratchbus.readmodel.scope import Core


def add_many(core: Core, page: str, items: Sequence[NewObservation], event_id: str | None) -> Step[list[Observation]]:
    """Add all observations of a batch, or none."""
    if not isinstance(items, Collection):
        raise InvalidField("items", f"{shown(items)} is not a list of NewObservation")
    for index, item in enumerate(items):
        if not isinstance(item, NewObservation):
            raise InvalidField(
                f"items[{index}]", f"{shown(item)} is not a NewObservation; write NewObservation(type=…, content=…)"
            )
    if len(items) > MAX_BATCH:
        raise TooLarge("batch", len(items), MAX_BATCH, "observations", SPLIT_BATCH)
    id_count = sum(item.event_id is not None for item in items)
    if id_count not in (0, len(items)) or (id_count and event_id is not None):
        raise InvalidField("event_id", "give one for each item of a batch, or one for the whole batch, or none")
    if id_count and len({item.event_id for item in items}) < len(items):
        raise InvalidField("event_id", "two items of the batch have the same one; give each its own")
    if event_id is not None:
        check_event_id(event_id)
    if not items:
        return []
    parsed: list[dict[str, Any]] = []
    try:
        for item in items:
            parsed.append(parse(item.__dict__))  # noqa: PERF401  # the length tells which one failed
    except InvalidInput as error:
        name_item(error, len(parsed), len(items))
        raise
    return (yield from add_all(core, page, parsed, event_id))
