"""Check that what an observation refers to exists: its evidence, its blockers, and what its reminder waits for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from scratchbus.commands.observations import check_statuses
from scratchbus.engine.steps import Step, ask, batches
from scratchbus.errors import InvalidField
from scratchbus.readmodel.relations import find_pages, may_be_archived
from scratchbus.readmodel.scope import Core, type_of

_AT_ONCE = 1_000  # ids


def check_known_ids(core: Core, page: str, ids: Iterable[str], field: str = "evidence") -> Step[dict[str, str]]:
    """Raise InvalidField for ids that were never on any page of the bus; return the page of each id on another page.

    Ids that are no longer on a page are looked up in the archive, if there is one.
    """
    keys, ids = core.log.keys(core.log.shard(page)), list(dict.fromkeys(ids))
    missing: list[str] = []
    for batch in batches(ids, _AT_ONCE):
        heads = yield from ask(keys.shard, "HMGET", keys.heads(page), *batch)
        missing += [id for id, head in zip(batch, heads, strict=True) if head is None]
    pages = (yield from find_pages(core.log, missing)) if missing else {}
    for id in missing:
        if id not in pages and not (yield from may_be_archived(core.log, id)):
            raise InvalidField(
                field,
                f"{id} is not on any page of this bus; pass the ids of observations that were added or listed",
            )
    return {id: other for id, other in pages.items() if other != page}


def check_blockers(core: Core, page: str, ids: Iterable[str]) -> Step[None]:
    """Raise InvalidField for ids that were never on the page: only observations of the page can block one of it."""
    for id, other in (yield from check_known_ids(core, page, ids, "blocked_by")).items():
        raise InvalidField(
            "blocked_by", f"{id} is on page {other!r}; pass ids of page {page!r}, or name it in evidence instead"
        )


def check_trigger(core: Core, trigger: Mapping[str, Any]) -> Step[None]:
    """Raise UnknownType or InvalidField for a `remind_on` with a type or a status that does not exist."""
    if "type" in trigger:
        yield from type_of(core, trigger["type"])
    if "status" in trigger:
        yield from check_statuses(core, "remind_on.status", [trigger["status"]])
