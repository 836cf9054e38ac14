"""The filters of a subscription."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Collection
from typing import NamedTuple, Self, cast

from scratchbus.domain.checks import check_tags
from scratchbus.domain.event import Event
from scratchbus.domain.memory_events import NoteAdded, NoteUpdated
from scratchbus.domain.page_events import Added, Updated
from scratchbus.engine.steps import Step
from scratchbus.eventlog.archive_protocol import EVENTS_LOST
from scratchbus.eventlog.codec import Poison
from scratchbus.eventlog.entry_filter import EntryFilter
from scratchbus.eventlog.log_entry import LogEntry
from scratchbus.readmodel.history import history
from scratchbus.readmodel.queries import get
from scratchbus.readmodel.scope import Core
from scratchbus.telemetry.logs import stderr_logger

_MAX_TAGS = 100
_MAX_CACHED = 10_000
_KINDS_WITH_TAGS = frozenset((b"added", b"updated", b"note_added", b"note_updated"))
"""The kinds of events that contain the tags of their subject."""

logger = stderr_logger()


class Filters(NamedTuple):
    """The selection of events; a subject must have all of the tags."""

    narrow: EntryFilter
    tags: frozenset[str] = frozenset()

    @classmethod
    def of(cls, narrow: EntryFilter, tags: str | Collection[str] | None) -> Self:
        """Return the filters for the arguments of a caller. Raises InvalidField."""
        return cls(narrow, frozenset(check_tags([tags] if isinstance(tags, str) else tags, _MAX_TAGS)))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the stored filters of a subscription."""
        fields = json.loads(text)
        narrow = EntryFilter.of(*(fields.get(name) for name in EntryFilter._fields))
        return cls(narrow, frozenset(fields.get("tags", ())))

    def wants(self, item: LogEntry, tags: Tags) -> Step[bool]:
        """Return whether an entry is selected; invalid entries are, since they are logged later."""
        if not self.tags:
            return self.narrow.wants(item.fields)
        event = item.event
        if isinstance(event, Poison):
            return True
        return self.tags <= (yield from tags.of(event)) and self.narrow.wants(item.fields)

    @property
    def reading(self) -> EntryFilter:
        """The selection to read from the log: with tags, it includes the events that change them."""
        kinds = self.narrow.kinds
        return self.narrow._replace(kinds=kinds | _KINDS_WITH_TAGS) if self.tags and kinds is not None else self.narrow

    @property
    def pages(self) -> list[str] | None:
        """The selected pages, or None for all."""
        return None if self.narrow.pages is None else sorted(page.decode() for page in self.narrow.pages)

    def __str__(self) -> str:
        """A canonical text: equal filters have the same one."""
        fields = {
            name: sorted(each.decode() for each in names)
            for name, names in self.narrow._asdict().items()
            if names is not None
        }
        return json.dumps(fields | ({"tags": sorted(self.tags)} if self.tags else {}), separators=(",", ":"))


class Tags:
    """The tags of subjects at their events, taken from passing events or else looked up."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._cache: OrderedDict[tuple[str, str], frozenset[str]] = OrderedDict()

    def of(self, event: Event) -> Step[frozenset[str]]:
        """Return the tags. Events come in log order."""
        key = event.page, event.subject
        tags = tags_in(event)
        if tags is None:
            tags = self._cache.get(key)
        if tags is None:
            tags = yield from self._look_up(event)
        self._cache[key] = tags
        self._cache.move_to_end(key)
        if len(self._cache) > _MAX_CACHED:
            self._cache.popitem(last=False)
        return tags

    def _look_up(self, event: Event) -> Step[frozenset[str]]:
        log = self._core.log
        try:
            events = yield from history(log, event.page, event.subject)
        except EVENTS_LOST as error:
            logger.warning("the current tags are used", position=str(event.position), reason=str(error))
            observation = (yield from get(log, event.page, [event.subject], self._core.fresh)).get(event.subject)
            return frozenset(observation.tags if observation is not None else ())
        tags = [tags_in(each) for each in events if each.seq <= event.seq]
        return next((each for each in reversed(tags) if each is not None), frozenset())


def tags_in(event: Event) -> frozenset[str] | None:
    """Return the tags of its subject in an event, if it has them."""
    if isinstance(event, Added | NoteAdded):
        return frozenset(event.tags)
    if isinstance(event, NoteUpdated):
        return None if event.tags is None else frozenset(event.tags)
    if event.kind == "updated":
        tags = cast(Updated, event).changes.get("tags")
        return None if tags is None else frozenset(tags)
    return None
