"""The import of an export, in two passes: the whole file is checked, then written and made visible at once."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from functools import lru_cache
from io import IOBase
from itertools import islice
from typing import Any

from scratchbus.archive.export import MAX_LINE, OtherShards, read_line
from scratchbus.archive.importing.event_rules import check_event, problem_with
from scratchbus.archive.importing.spill import Spill, Spilled, temporary_spill
from scratchbus.domain.event import Event
from scratchbus.domain.page_events import Erased
from scratchbus.domain.position import Position
from scratchbus.engine.scripts import Command
from scratchbus.engine.steps import Pause, Step, ask
from scratchbus.errors import InvalidExport, InvalidField, InvalidInput, NotEmpty, shown
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.raw_entries import RawEntry
from scratchbus.eventlog.staging import Staging
from scratchbus.readmodel.scope import Core
from scratchbus.readmodel.verify.expected import ExpectedState, PageState

_BETWEEN_PAUSES = 500  # lines to check before yielding to other tasks
_MAX_MISSING = 100_000_000  # events in a row; more than tombstones can cover
_TOGETHER = 200  # heads, scores or keys per command


def import_events(
    core: Core, lines: Iterable[str | bytes], progress: Callable[[int], object] | None = None
) -> Step[int]:
    """Import an export into an identical bus; return how many events it has.

    All lines are checked by the rules of live writes before anything is written. Nothing can be read until all is
    written; then each log appears at once. A bus that has the first events of the file, or some of its logs, gets the
    rest.

    Raises InvalidExport with the line and what is wrong with it, CodeTooOld, NotEmpty if the bus has other events, or
    Conflict if another import has begun.
    """
    if isinstance(lines, str | bytes) or not isinstance(lines, Iterable):
        raise InvalidField("lines", f"{shown(lines)} is not a list of lines; pass the lines of an export")
    with temporary_spill() as spill:
        logs = [_ImportedLog(core.log, shard, spill) for shard in range(core.log.shards)]
        for log in logs:
            log.old_tail = yield from log.tail()
        number = 0
        for number, line in enumerate(_bounded(lines), 1):
            _take(line, number, logs)
            if progress is not None:
                progress(number)
            if number % _BETWEEN_PAUSES == 0:
                yield Pause(0)
        for log in logs:
            log.end(number)
        yield from _write(logs)
        return number


def _bounded(lines: Iterable[str | bytes]) -> Iterator[str | bytes]:
    """Yield the lines; one of an open file ends after MAX_LINE, since a file without line breaks may be of any size."""
    if not isinstance(lines, IOBase):
        yield from lines
        return
    while line := lines.readline(MAX_LINE + 1):
        yield line


def _take(line: str | bytes, number: int, logs: list[_ImportedLog]) -> None:
    """Check a line and add its event to its log. Raises InvalidExport, NotEmpty or CodeTooOld."""
    try:
        entry, event, until = read_line(line, len(logs))
        for log, end in zip(logs, until.shards if until is not None else (), strict=False):
            log.must_reach(end)
        check_event(event)
        logs[event.shard].take(entry, event, number, len(line))
    except OtherShards as problem:
        advice = f"set SCRATCHBUS_SHARDS={problem.shards} and choose a new name for the bus"
        raise InvalidExport(number, str(problem), advice) from None
    except InvalidInput as problem:
        raise InvalidExport(number, str(problem)) from None


def _write(logs: list[_ImportedLog]) -> Step[None]:
    """Write the logs that are not there yet; make none visible before all are written."""
    missing: list[_ImportedLog] = []
    for log in logs:
        missing += [] if (yield from log.is_there()) else [log]
    try:
        for log in missing:
            yield from log.staging.take()
            yield from log.staging.write(log.commands())
        for log in missing:
            yield from log.is_there()  # refuse a bus that was written to meanwhile before any log changes
        for log in missing:
            yield from log.staging.switch(log.old_tail, log.new_tail)
    except GeneratorExit:
        raise  # nothing more can be sent
    except BaseException:  # such as Ctrl-C or a cancellation
        for log in missing:
            yield from log.staging.drop()
        raise


class _ImportedLog:
    """One log of the file: each event is checked against the state after the events before it.

    `old_tail` is the log's tail before the import, "" if it was empty, and `new_tail` its tail after it.
    """

    def __init__(self, log: Log, shard: int, spill: Spill) -> None:
        self._log, self._keys, self._spill = log, log.keys(shard), spill
        self.staging = Staging(self._keys)
        self.old_tail = self.new_tail = ""
        self._state = ExpectedState(pages=_SpilledPages(spill, shard))
        self._entries = Spilled(spill, f"{shard} entries")
        self._line = self._count = 0  # the line of the last event, and the number of events
        self._erased: set[int] = set()
        self._until = 0  # the number of the event up to which the log was exported

    def tail(self) -> Step[str]:
        """Return the stored tail of the log."""
        return ((yield from ask(self._keys.shard, "GET", self._keys.tail)) or b"").decode()

    def take(self, entry: RawEntry, event: Event, line: int, size: int) -> None:
        """Add the next event. Raises InvalidInput, or NotEmpty if the log has another event in its place."""
        if self._log.shard(event.page) != self._keys.shard:
            raise InvalidInput(f"page {shown(event.page)} is on another shard of this bus")
        if (missing := event.seq - self._state.at.seq - 1) > _MAX_MISSING:
            raise InvalidInput(f"{missing:,} events are missing before the event at {event.position}")
        if problem := problem_with(self._state.page(event.page), event):
            raise InvalidInput(f"the event at {event.position} {problem}")
        self._state.apply(entry, event, _refuse)
        self._state.gaps.clear()
        for text in event.positions if isinstance(event, Erased) else ():
            if _name(seq := Position.parse(text).seq) in self._entries:
                raise InvalidInput(f"the event at {event.position} says that {text} was erased, but the file has it")
            self._erased.add(seq)
        self.new_tail = f"{event.position.stream_id}|{event.id}"
        if event.seq == self._seq_before and self.new_tail != self.old_tail:
            raise NotEmpty(self._keys.shard)
        self._spill.put((f"{self._keys.shard} entries", "", _name(event.seq)), (line, entry), 2 * size)
        self._line, self._count = line, self._count + 1

    @property
    def _seq_before(self) -> int:
        return Position.parse(self.old_tail.partition("|")[0]).seq if self.old_tail else 0

    def must_reach(self, end: Position) -> None:
        """Note a position that the export goes to."""
        self._until = max(self._until, end.seq)

    def end(self, number: int) -> None:
        """Check that no event is missing. Raises InvalidExport, or NotEmpty if the log has more events."""
        if self._state.at.seq < self._until:
            raise InvalidExport(
                number,
                f"the file ends here, before event {self._until} of shard {self._keys.shard}, to which it was exported:"
                " it was cut, or the export was interrupted",
            )
        index, total = self._state.batch
        if index != total:
            raise InvalidExport(self._line or number, "ends in the middle of a batch")
        if self._count + len(self._erased) < self._state.at.seq:
            raise self._missing()
        if self._state.at.seq < self._seq_before:
            raise NotEmpty(self._keys.shard)

    def _missing(self) -> InvalidExport:
        """Return the error for the first events that are missing and were not erased."""
        erased, before = sorted(self._erased), 0
        for name, (line, _) in self._entries.items():
            seq = int(name)
            missing = seq - before - 1 - (bisect_left(erased, seq) - bisect_left(erased, before))
            if missing:
                return InvalidExport(line, f"{missing:,} events are missing before it, and no tombstone covers them")
            before = seq
        raise AssertionError("no events are missing")

    def is_there(self) -> Step[bool]:
        """Return whether the whole log is there already. Raises NotEmpty if it was written to meanwhile."""
        tail = yield from self.tail()
        if tail not in (self.old_tail, self.new_tail):
            raise NotEmpty(self._keys.shard)
        return tail == self.new_tail

    def commands(self) -> Iterator[Command]:
        """Yield the commands that write the events, and the keys that the append script derives from them."""
        keys = self.staging.staged
        for _, (id, flat) in self._entries.values():
            yield ("XADD", keys.log, id, *flat)
        yield from _grouped("ZADD", keys.erased, ((seq, seq) for seq in sorted(self._erased)))
        for name in self._spill.pages(f"{self._keys.shard} subjects"):
            page = self._state.peek(name)
            heads = ((subject, page.head(subject)) for subject in page.subjects)
            yield from _grouped("HSET", keys.heads(name), ((id, str(head)) for id, head in heads if head is not None))
            yield from _grouped("ZADD", keys.open(name), ((page.score(id), id) for id in page.open()))
            yield from _grouped("HSET", keys.dedupe(name), page.holders.items())
            yield ("HSET", keys.pages, name, page.soonest())


class _SpilledPages(dict[str, PageState]):
    """The pages of a log, whose state is in the spill."""

    def __init__(self, spill: Spill, shard: int) -> None:
        kinds = [f"{shard} {part.name}" for part in fields(PageState)]
        self._page = lru_cache(256)(lambda name: PageState(*(Spilled(spill, kind, name) for kind in kinds)))

    def get(self, name: str, default: Any = None) -> PageState:
        """Return a page; every name has one."""
        return self._page(name)


def _refuse(kind: str, where: str, what: str) -> None:
    if kind != "gap":  # a later tombstone may cover it
        raise InvalidInput(f"the event at {where} {what}")


def _name(seq: int) -> str:
    return f"{seq:015d}"  # so that names sort by number


def _grouped(verb: str, key: str, pairs: Iterable[tuple[Any, Any]]) -> Iterator[Command]:
    """Yield commands that write these pairs to a key."""
    remaining = iter(pairs)
    while group := list(islice(remaining, _TOGETHER)):
        yield (verb, key, *(part for pair in group for part in pair))
