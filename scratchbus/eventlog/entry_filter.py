"""The filter of events by page, type, kind and subject, and the decoding of the entries that it matches."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

from scratchbus.domain.position import in_time
from scratchbus.eventlog.codec import AT_ONCE, Poison, decode_items
from scratchbus.eventlog.raw_entries import entry_fields
from scratchbus.eventlog.reader import Chunks
from scratchbus.telemetry.logs import stderr_logger

if TYPE_CHECKING:
    from scratchbus.domain.events import AnyEvent

logger = stderr_logger()


class EntryFilter(NamedTuple):
    """A filter of events; None matches all."""

    pages: frozenset[bytes] | None = None
    types: frozenset[bytes] | None = None
    kinds: frozenset[bytes] | None = None
    subjects: frozenset[bytes] | None = None

    @classmethod
    def of(
        cls,
        pages: Collection[str] | None,
        types: Collection[str] | None,
        kinds: Collection[str] | None,
        subjects: Collection[str] | None = None,
    ) -> EntryFilter:
        """Return the filter for the arguments of a caller: a text counts as a list of one."""
        return cls(_names(pages), _names(types), _names(kinds), _names(subjects))

    def wants(self, fields: dict[bytes, bytes]) -> bool:
        """Return whether an entry with these fields is wanted."""
        return (
            (self.pages is None or fields.get(b"page") in self.pages)
            and (self.types is None or fields.get(b"type") in self.types)
            and (self.kinds is None or fields.get(b"kind") in self.kinds)
            and (self.subjects is None or fields.get(b"subject") in self.subjects)
        )


EVERYTHING = EntryFilter()


def _names(names: Collection[str] | None) -> frozenset[bytes] | None:
    if names is None:
        return None
    return frozenset(name.encode() for name in ([names] if isinstance(names, str) else names))


def decode_wanted(chunks: Chunks, entry_filter: EntryFilter) -> list[AnyEvent]:
    """Decode the wanted entries, in the order of time across shards; log and skip entries that are not events."""
    events = []
    for shard, entries in chunks:
        if entry_filter != EVERYTHING:
            entries = [entry for entry in entries if entry_filter.wants(entry_fields(entry))]
        for _, item in decode_items(entries, shard):
            if isinstance(item, Poison):
                logger.warning("not an event", position=str(item.position), reason=item.reason)
            else:
                events.append(item)
    if len(chunks) > 1:
        events.sort(key=in_time)
    return events


def decode_in_chunks(chunks: Chunks, entry_filter: EntryFilter) -> Iterator[list[AnyEvent]]:
    """Decode as `decode_wanted` does, in chunks if all entries are of one shard."""
    if len(chunks) != 1:
        yield decode_wanted(chunks, entry_filter)
        return
    ((shard, entries),) = chunks
    for at in range(0, len(entries), AT_ONCE):
        yield decode_wanted([(shard, entries[at : at + AT_ONCE])], entry_filter)
