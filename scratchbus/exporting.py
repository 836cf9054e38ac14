"""The log as JSON Lines: every event as it was written, from which an equal bus can be made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from secrets import token_hex
from typing import Any

from pydantic_core import from_json, to_json

from scratchbus.core import Core
from scratchbus.domain.events import Erased, Event
from scratchbus.domain.position import Position
from scratchbus.errors import InvalidExport, InvalidField, NotEmpty, shown
from scratchbus.log.append import Log
from scratchbus.log.codec import Head, Poison, RawEntry, decode_entry, encode_body, text_of
from scratchbus.log.keys import SYSTEM_PAGE
from scratchbus.log.steps import Script, Step, ask
from scratchbus.verification.holdings import SPAN
from scratchbus.verification.state import State

_SCRIPT = Script("import")
_AT_ONCE = 500
_FOREVER = 2**53 - 1  # as in append/inputs.lua
_TEXTS = ("id", "subject", "page", "kind", "type", "batch", "prev")


def line_of(event: Event) -> str:
    """Return an event as one line of JSON: its place, its envelope, and its body, with the schema version of today."""
    envelope = {name: getattr(event, name) for name in _TEXTS}
    place = {"shard": event.shard, "seq": event.seq, "ms": event.ms, "at": event.at.isoformat()}
    return (to_json(place | envelope)[:-1] + b',"event":' + encode_body(event) + b"}").decode()


def import_events(
    core: Core, lines: Iterable[str | bytes], progress: Callable[[int], object] | None = None
) -> Step[int]:
    """Write the events of an export into a bus that has none; return how many there are then.

    They keep their places and ids, and what the append script keeps beside them is made with them. A bus that has the
    first of them, since it was cut short, gets the others. Raises InvalidExport, or NotEmpty; then what came before
    that line is written.
    """
    if isinstance(lines, str | bytes) or not isinstance(lines, Iterable):
        raise InvalidField("lines", f"{shown(lines)} is not a list of lines; give those of an export")
    shards = []
    for shard in range(core.log.shards):
        tail = yield from ask(shard, "GET", core.log.keys(shard).tail)
        shards.append(_Shard(core.log, shard, text_of(tail or b"")))
    number = 0
    for number, line in enumerate(lines, 1):
        entry, shard = _parse(line, number, len(shards))
        shards[shard].take(entry, number)
        if shards[shard].is_full:
            yield from shards[shard].flush()
        if progress is not None:
            progress(number)
    for each in shards:
        yield from each.end(number)
    return number


def _parse(line: str | bytes, number: int, shards: int) -> tuple[RawEntry, int]:
    """Return the entry of a line, and its shard."""
    try:
        parsed: dict[str, Any] = from_json(line)
        flat: list[bytes] = []
        for name in _TEXTS:
            flat += (name.encode(), str(parsed[name]).encode())
        place = Position(int(parsed["ms"]), int(parsed["seq"]), int(parsed["shard"]))
        body = to_json(parsed["event"])
    except (ValueError, KeyError, TypeError) as problem:
        raise InvalidExport(number, f"is no event of an export ({type(problem).__name__}: {problem})") from None
    if place.shard >= shards:
        raise InvalidExport(number, f"is of shard {place.shard}, and this bus has {shards}")
    return [place.stream_id.encode(), [*flat, b"event", body]], place.shard


class _Shard:
    """A shard that is being written: what follows from its log so far, and what is to be written next."""

    def __init__(self, log: Log, shard: int, tail: str) -> None:
        self._log = log
        self._keys = log.keys(shard)
        self._tail = tail
        self._state = State()
        self._entries: list[RawEntry] = []
        self._missing: set[int] = set()  # numbers of events that were not there, and that no tombstone named yet
        self._erased: list[int] = []
        self._touched: dict[tuple[str, str], set[str]] = {}  # by page and subject: the dedupe keys it had or has
        self._begun: dict[str, int] = {}  # of what is on the system page, where it began
        self._soonest: dict[str, int] = {}  # of each page, before when nothing on it expires

    @property
    def is_full(self) -> bool:
        """Whether it is time to write, at the end of a batch."""
        return len(self._entries) >= _AT_ONCE and self._state.batch[0] == self._state.batch[1]

    def take(self, entry: RawEntry, number: int) -> None:
        """Take in the next event. Raises InvalidExport, NotEmpty or CodeTooOld."""
        shard = self._keys.shard

        def refuse(kind: str, where: str, what: str) -> None:
            if kind != "gap":  # a tombstone may explain it, later on
                raise InvalidExport(number, f"the event at {where} {what}")

        try:
            event = decode_entry(entry, shard)
        except Poison as poison:
            raise InvalidExport(number, f"is no event: {poison.reason}") from None
        if self._log.shard(event.page) != shard:
            raise InvalidExport(number, f"page {shown(event.page)} is on another shard of this bus")
        self._missing.update(range(self._state.at.seq + 1, event.seq))
        page = self._state.page(event.page)
        before = page.documents.get(event.subject)
        self._state.apply(entry, event, refuse)
        if event.page == SYSTEM_PAGE:
            self._begun.setdefault(event.subject, event.seq)
        head = self._head(event.page, event.subject)
        if head is not None and head.status_class == "o" and head.expires:
            self._soonest[event.page] = min(self._soonest.get(event.page, _FOREVER), head.expires)
        if self._is_there(event):
            return
        self._entries.append(entry)
        if isinstance(event, Erased):
            self._erased += [seq for place in event.positions if (seq := Position.parse(place).seq) in self._missing]
        words = self._touched.setdefault((event.page, event.subject), set())
        for document in (before, page.documents.get(event.subject)):
            if document is not None and document.dedupe_key:
                words.add(document.dedupe_key)

    def _is_there(self, event: Event) -> bool:
        """Say whether an event is in the log already. Raises NotEmpty when another one is."""
        end = Position.parse(self._tail.partition("|")[0]).seq if self._tail else 0
        if event.seq == end and self._tail != f"{event.position.stream_id}|{event.id}":
            raise NotEmpty(self._keys.shard)
        return event.seq <= end

    def flush(self) -> Step[None]:
        """Write what was taken in. Raises NotEmpty when someone else has written meanwhile."""
        if not self._entries:
            return
        tail = f"{self._state.at.stream_id}|{self._state.event_id}"
        arguments: list[Any] = [self._tail, tail, token_hex(8)]
        for command in self._commands():
            arguments += (len(command), *command)
        names = (self._keys.tail, self._keys.origin, self._keys.log, self._keys.ids)
        (done,) = yield from ask(self._keys.shard, *_SCRIPT.command(names, arguments))  # twice does no harm
        if not done:
            raise NotEmpty(self._keys.shard)
        self._missing.difference_update(self._erased)
        self._tail, self._entries, self._erased, self._touched = tail, [], [], {}

    def end(self, number: int) -> Step[None]:
        """Write the rest. Raises InvalidExport when something is missing, NotEmpty when the log has more than that."""
        if self._state.batch[0] != self._state.batch[1]:
            raise InvalidExport(number, "ends in the middle of a batch")
        yield from self.flush()
        if self._missing:
            raise InvalidExport(number, f"is the last, and {len(self._missing)} events were missing before it")
        if self._tail and self._state.at.seq < Position.parse(self._tail.partition("|")[0]).seq:
            raise NotEmpty(self._keys.shard)

    def _commands(self) -> Iterator[tuple[Any, ...]]:
        """Yield what writes the events, and what the append script keeps of them."""
        keys = self._keys
        for id, flat in self._entries:
            yield ("XADD", keys.log, id, *flat)
        for seq in self._erased:
            yield ("ZADD", keys.erased, seq, seq)
        for (name, subject), words in self._touched.items():
            page = self._state.peek(name)
            head, document = self._head(name, subject), page.documents.get(subject)
            if head is not None:
                yield ("HSET", keys.heads(name), subject, str(head))
            if document is not None and document.is_open:
                yield ("ZADD", keys.open(name), document.priority * SPAN + document.added_seq, subject)
            else:
                yield ("ZREM", keys.open(name), subject)
            for word in words:
                holder = page.holders.get(word)
                yield ("HSET", keys.dedupe(name), word, holder) if holder else ("HDEL", keys.dedupe(name), word)
            yield ("HSET", keys.pages, name, self._soonest.get(name, _FOREVER))

    def _head(self, page: str, subject: str) -> Head | None:
        if page != SYSTEM_PAGE:
            return self._state.peek(page).head(subject)
        known = self._state.peek(page).subjects[subject]
        return Head(known.events, "active", "c", "", 0, self._begun[subject], 0, 0, 0, "", 0, known.last, 0, 0, (), "")
