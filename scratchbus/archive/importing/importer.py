"""The import of an export, in two passes: the file is checked as a whole, then written and shown at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from scratchbus.archive.importing.facts import Facts, Pages
from scratchbus.archive.importing.gaps import Gaps
from scratchbus.archive.importing.lines import read_line
from scratchbus.archive.importing.sequence import problem_with
from scratchbus.archive.staging import Staging
from scratchbus.domain.event import Event
from scratchbus.domain.events import Erased
from scratchbus.domain.position import Position
from scratchbus.engine.scripts import Command
from scratchbus.engine.steps import Pause, Step, ask
from scratchbus.errors import InvalidExport, InvalidField, InvalidInput, NotEmpty, ScratchbusError, shown
from scratchbus.eventlog.append import Log
from scratchbus.eventlog.codec import RawEntry
from scratchbus.eventlog.keys import SYSTEM_PAGE
from scratchbus.eventlog.layouts import FOREVER, SPAN, Head
from scratchbus.readmodel.scope import Core
from scratchbus.readmodel.verify.expected import State, head_of

_BETWEEN_PAUSES = 500  # lines that are checked without letting others in the process do something
_MOST_MISSING = 100_000_000  # events in a row: more than any tombstones explain
_TOGETHER = 200  # heads, scores or keys that one command writes


def import_events(
    core: Core, lines: Iterable[str | bytes], progress: Callable[[int], object] | None = None
) -> Step[int]:
    """Make an equal bus of an export; return how many events it has.

    All lines are checked, as the live bus checks what it appends, before anything is written. What is written cannot be
    read until it is whole: each log then appears at once. A bus that has the first events of the file, or some of its
    logs, gets the rest.

    Raises InvalidExport with the line and what is wrong with it, CodeTooOld, NotEmpty when the bus has other events, or
    Conflict when another import has begun.
    """
    if isinstance(lines, str | bytes) or not isinstance(lines, Iterable):
        raise InvalidField("lines", f"{shown(lines)} is not a list of lines; pass the lines of an export")
    facts = Facts()
    try:
        shards = [_Shard(core.log, shard, facts) for shard in range(core.log.shards)]
        for each in shards:
            yield from each.look()
        number = 0
        for number, line in enumerate(lines, 1):
            _take(line, number, shards)
            if progress is not None:
                progress(number)
            if number % _BETWEEN_PAUSES == 0:
                yield Pause(0)
        for each in shards:
            each.end(number)
        yield from _write(shards)
        return number
    finally:
        facts.close()


def _take(line: str | bytes, number: int, shards: list[_Shard]) -> None:
    """Check a line and take it in. Raises InvalidExport, NotEmpty or CodeTooOld."""
    try:
        entry, event = read_line(line, len(shards))
        shards[event.shard].take(entry, event, number, len(line))
    except InvalidExport:
        raise
    except InvalidInput as problem:
        raise InvalidExport(number, str(problem)) from None


def _write(shards: list[_Shard]) -> Step[None]:
    """Write the logs that are not there yet; show none of them before all are written."""
    missing: list[_Shard] = []
    for each in shards:
        missing += [] if (yield from each.is_there()) else [each]
    try:
        for each in missing:
            yield from each.stage()
        for each in missing:
            yield from each.is_there()  # so that nobody who wrote meanwhile finds half of the logs changed
        for each in missing:
            yield from each.switch()
    except ScratchbusError:
        for each in missing:
            yield from each.drop()
        raise


class _Relations(dict[str, set[str]]):
    """Relations, which nobody asks about here."""

    def __getitem__(self, name: str) -> set[str]:
        return set()


class _Shard:
    """One log of the file: what follows from its events so far."""

    def __init__(self, log: Log, shard: int, facts: Facts) -> None:
        self._log, self._keys, self._facts = log, log.keys(shard), facts
        self._staging = Staging(self._keys)
        self._state = State(pages=Pages(facts, shard), relations=_Relations())
        self._was = ""  # the tail that the log had, if any
        self._line = 0  # of the last event
        self._gaps = Gaps()
        self._begun: dict[str, int] = {}  # of what is on the system page, where it began

    def look(self) -> Step[None]:
        """Read where the log ends."""
        self._was = ((yield from ask(self._keys.shard, "GET", self._keys.tail)) or b"").decode()

    def take(self, entry: RawEntry, event: Event, number: int, size: int) -> None:
        """Take in the next event. Raises InvalidInput, or NotEmpty when the log has another one there."""

        def refuse(kind: str, where: str, what: str) -> None:
            if kind != "gap":  # a tombstone may explain it, later on
                raise InvalidInput(f"the event at {where} {what}")

        if self._log.shard(event.page) != self._keys.shard:
            raise InvalidInput(f"page {shown(event.page)} is on another shard of this bus")
        state, missing = self._state, range(self._state.at.seq + 1, event.seq)
        if len(missing) > _MOST_MISSING:
            raise InvalidInput(f"the event at {event.position} comes {len(missing):,} events too early")
        page = state.page(event.page)
        if problem := problem_with(page, event):
            raise InvalidInput(f"the event at {event.position} {problem}")
        self._facts.weight = size
        state.apply(entry, event, refuse)
        state.gaps.clear()
        if missing:
            self._gaps.add(missing.start, missing.stop - 1, number)
        if isinstance(event, Erased):
            self._explain(event)
        if event.page == SYSTEM_PAGE:
            self._begun.setdefault(event.subject, event.seq)
        self._note_expiry(event)
        self._line = number
        if event.seq == self._end_before and f"{event.position.stream_id}|{event.id}" != self._was:
            raise NotEmpty(self._keys.shard)
        self._facts.add_entry(event.position, entry)

    def _explain(self, event: Erased) -> None:
        for text in event.positions:
            if not self._gaps.explain(Position.parse(text).seq):
                raise InvalidInput(f"the event at {event.position} says that {text} was erased, and it is there")

    def _note_expiry(self, event: Event) -> None:
        """Note when the first on the page expires."""
        document = self._state.peek(event.page).documents.get(event.subject)
        head = head_of(document) if document is not None and document.is_open else None
        key = (self._keys.shard, "soonest", event.page, "")
        known = self._facts.get(key)
        soonest = min(FOREVER if known is None else known, (head.expires if head else 0) or FOREVER)
        if soonest != known:
            self._facts.put(key, soonest)

    @property
    def _end_before(self) -> int:
        return Position.parse(self._was.partition("|")[0]).seq if self._was else 0

    @property
    def _tail(self) -> str:
        return f"{self._state.at.stream_id}|{self._state.event_id}" if self._state.at.seq else ""

    def end(self, number: int) -> None:
        """Check that nothing is missing. Raises InvalidExport, or NotEmpty when the log has more than that."""
        index, total = self._state.batch
        if index != total:
            raise InvalidExport(self._line or number, "ends in the middle of a batch")
        if (missing := self._gaps.unexplained()) is not None:
            line, count = missing
            raise InvalidExport(line, f"{count:,} events are missing before it, and no tombstone covers them")
        if self._state.at.seq < self._end_before:
            raise NotEmpty(self._keys.shard)

    def is_there(self) -> Step[bool]:
        """Say whether the whole log is there already. Raises NotEmpty when someone has written to it meanwhile."""
        tail = ((yield from ask(self._keys.shard, "GET", self._keys.tail)) or b"").decode()
        if tail not in (self._was, self._tail):
            raise NotEmpty(self._keys.shard)
        return tail == self._tail

    def stage(self) -> Step[None]:
        """Write all that the log needs where nobody reads it."""
        yield from self._staging.take()
        yield from self._staging.write(self._commands())

    def switch(self) -> Step[None]:
        """Let all that was written be the log."""
        yield from self._staging.switch(self._was, self._tail)

    def drop(self) -> Step[None]:
        """Delete what was written and is not the log."""
        try:
            yield from self._staging.drop()
        except ScratchbusError:
            return  # the next import does it

    def _commands(self) -> Iterator[Command]:
        """Yield what writes the events, and what the append script keeps of them."""
        keys, shard, facts = self._staging.staged, self._keys.shard, self._facts
        for id, flat in facts.entries(shard):
            yield ("XADD", keys.log, id, *flat)
        for some in _together(self._gaps.erased()):
            yield ("ZADD", keys.erased, *(part for seq in some for part in (seq, seq)))
        yield from _grouped("HSET", keys.heads, self._heads())
        yield from _grouped(
            "ZADD",
            keys.open,
            (
                (page, one.priority * SPAN + one.added_seq, id)
                for page, id, one in facts.all(shard, "document")
                if one.is_open
            ),
        )
        yield from _grouped("HSET", keys.dedupe, facts.all(shard, "holder"))
        yield from _grouped(
            "HSET", lambda _: keys.pages, ((page, page, soonest) for page, _, soonest in facts.all(shard, "soonest"))
        )

    def _heads(self) -> Iterator[tuple[str, str, str]]:
        for page, subject, known in self._facts.all(self._keys.shard, "subject"):
            if page == SYSTEM_PAGE:
                begun = self._begun[subject]
                head = Head(known.events, "active", "c", "", 0, begun, 0, 0, 0, "", 0, known.last, 0, 0, (), "")
                yield page, subject, str(head)
            elif (found := self._state.peek(page).head(subject)) is not None:
                yield page, subject, str(found)


def _together(items: Iterable[Any]) -> Iterator[list[Any]]:
    rest = iter(items)
    while some := list(islice(rest, _TOGETHER)):
        yield some


def _grouped(verb: str, key: Callable[[str], str], rows: Iterable[tuple[str, Any, Any]]) -> Iterator[Command]:
    """Yield commands that write these pairs, each with its page before it, to the key of their page."""
    pairs: list[Any] = []
    at = ""
    for page, one, other in rows:
        if pairs and (key(page) != at or len(pairs) >= 2 * _TOGETHER):
            yield (verb, at, *pairs)
            pairs = []
        at = key(page)
        pairs += (one, other)
    if pairs:
        yield (verb, at, *pairs)
