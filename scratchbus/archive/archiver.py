"""The archiver: copies closed ranges of a log to its archive, and only then trims them from the log.

It stores a segment, its index and its manifest, in this order; each is durable before the next. The manifest makes the
segment part of the archive. Its name contains the number of its first event, and a store accepts a name only once: of
two archivers only one continues, whatever their leases say. An archiver may be killed at any point: files that no
manifest names are ignored, and the next run begins where the last manifest ends.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from secrets import token_hex
from typing import NamedTuple

from pydantic import BaseModel

from scratchbus.archive.archive_reader import Archive
from scratchbus.archive.catalog import SegmentCatalog
from scratchbus.archive.erasure import not_yet_erased
from scratchbus.archive.manifest import END, FILES, Manifest, number_of
from scratchbus.archive.segment import SegmentBuilder
from scratchbus.archive.segment_builders import segment_builders
from scratchbus.archive.stores import NOT_SET
from scratchbus.archive.trimmer import Trimmer
from scratchbus.engine.steps import Step, ask_all
from scratchbus.errors import (
    ArchiveBusy,
    ArchiveDamaged,
    ArchiveForeign,
    EngineForbidden,
    EngineReadOnly,
    LogError,
    ScratchbusError,
    SettingsError,
)
from scratchbus.eventlog.below_floor import read_floor
from scratchbus.eventlog.gaps import erased_between
from scratchbus.eventlog.keys import ShardKeys
from scratchbus.eventlog.lag import end_of
from scratchbus.eventlog.raw_entries import entry_id, entry_position, is_beside, text_of
from scratchbus.eventlog.subscription_state import drop_idle
from scratchbus.eventlog.trim import Archiving
from scratchbus.readmodel.catch_up import catch_up
from scratchbus.readmodel.scope import Core, Host
from scratchbus.telemetry.counters import counts
from scratchbus.telemetry.logs import stderr_logger

LEASE = 30.0
"""Seconds without a renewal after which another archiver takes over."""

PATIENCE = 86_400.0
"""Seconds beyond `retain` that events wait in the log for a full segment, before they are stored in a small one."""

logger = stderr_logger()


class Progress(NamedTuple):
    """The progress of a run with one log: events archived, events to archive, and events trimmed from the log."""

    shard: int
    archived: int
    wanted: int
    trimmed: int


Report = Callable[[Progress], object]


class Archived(BaseModel):
    """The result of a run for one log: segments written, their events and bytes, and events trimmed from the log.

    `floor` is the last event that is only in the archive, `end` the last event in the archive.
    """

    shard: int
    segments: int = 0
    events: int = 0
    bytes: int = 0
    trimmed: int = 0
    floor: str | None = None
    end: str | None = None


def archive_of(core: Core) -> Archive:
    """Return the archive that the settings name. Raises SettingsError if they name none."""
    if not isinstance(core.log.archive, Archive):
        raise SettingsError(NOT_SET)
    return core.log.archive


def archive_bus(
    bus: Host, *, patience: float = 0.0, lease: float = LEASE, report: Report = lambda progress: None
) -> list[Archived]:
    """Archive the events that the settings do not keep live, and trim those that no reader needs from the logs.

    Drops subscriptions without a consumer for `subscription_ttl`. A segment that is not full waits `patience` seconds
    for more events. Raises SettingsError, ArchiveBusy, ArchiveDamaged, ArchiveForeign, ArchiveUnavailable, LogGap,
    LogRewound or EngineError; an error of one log or its archive after the other shards. No error loses events, and the
    next run continues.
    """
    archive = archive_of(bus.core)
    ttl = bus.core.settings.ms("subscription_ttl")
    if ttl is not None:
        for name, cursor in bus.converse(drop_idle(bus.core.log.keys(0), ttl)):
            logger.warning("dropped a subscription without a consumer", subscription=name, cursor=cursor)
    results: list[Archived] = []
    failure: ScratchbusError | None = None
    for shard in range(bus.core.log.shards):
        try:
            results.append(_LogArchiver(bus, archive, shard, patience, lease, report).run())
        except (LogError, ArchiveDamaged, ArchiveForeign) as problem:
            failure = failure or problem
    if failure is not None:
        raise failure
    return results


def run_archiver(bus: Host, stop: threading.Event) -> None:
    """Archive every `archive_interval`, until `stop` is set; stand by while another archiver is running.

    Raises the errors of `archive_bus`, except ArchiveBusy.
    """
    while not stop.is_set():
        try:
            for archived in archive_bus(bus, patience=PATIENCE):
                if archived.segments or archived.trimmed:
                    logger.info("archived", **archived.model_dump(exclude_none=True))
        except ArchiveBusy as busy:
            logger.debug("standing by", reason=str(busy))
        stop.wait(bus.core.settings.seconds("archive_interval"))


class _LogArchiver:
    """One run over one shard's log."""

    def __init__(self, bus: Host, archive: Archive, shard: int, patience: float, lease: float, report: Report) -> None:
        self._bus, self._shard, self._report = bus, shard, report
        self._archive, self._origin = archive, ""
        self._keys: ShardKeys = bus.core.log.keys(shard)
        self._lease = Archiving(self._keys, token_hex(8), bus.core.process, round(lease * 1000))
        self._patience_ms = round(patience * 1000)
        self.result = Archived(shard=shard)

    def run(self) -> Archived:
        """Take the lease, archive, trim, and release the lease."""
        now = self._bus.converse(self._lease.take())
        try:
            self._run(now)
        finally:
            self._bus.converse(self._lease.leave())
        return self.result

    def _run(self, now: int) -> None:
        origin, limit = self._bus.converse(self._limits(now))
        if not origin:
            return  # nothing was ever written
        self._origin = origin
        catalog = self._archive.catalog(self._shard, origin)
        names = catalog.refresh()
        last = catalog.last()
        self._check_end(catalog, last)
        if last is not None:
            catalog.mark_end(last)
            self._erase(catalog, last)
        else:
            self._bus.converse(self._lease.check_unrecorded(catalog.where))
        with suppress(EngineForbidden, EngineReadOnly):
            self._bus.converse(catch_up(self._bus.core.log, self._shard))  # only folded events can be trimmed
        trimmer = Trimmer(self._bus, catalog, self._lease, origin, limit, now)
        archived_before = last.chain.last.seq if last else 0
        self._report_progress(archived_before, limit)
        for builder in segment_builders(self._bus, catalog, last, self._shard, limit):
            if not builder.is_full(self._bus.core.settings.archive_segment) and not self._has_waited(builder, now):
                break
            last = self._store(catalog, builder, last)
            self.result.trimmed += trimmer.trim(last)
            self._report_progress(archived_before, limit)
        if last is not None:
            self.result.trimmed += trimmer.trim(last)
            self.result.end = last.chain.last.at
            self._delete_leftovers(catalog, names, last)
        floor = self._bus.converse(read_floor(self._bus.core.log, self._shard)).position
        self.result.floor = floor.stream_id if floor.seq else None
        self._report_progress(archived_before, limit)

    def _report_progress(self, archived_before: int, limit: int) -> None:
        self._report(Progress(self._shard, self.result.events, max(0, limit - archived_before), self.result.trimmed))

    def _limits(self, now: int) -> Step[tuple[str, int]]:
        """Return the log's origin, and the number of the last event that need not be kept live."""
        keys, settings = self._keys, self._bus.core.settings
        latest_ms = now - (settings.ms("retain") or 0)
        origin, last_old, tail = yield from ask_all(
            self._shard,
            [
                ("GET", keys.origin),
                ("XREVRANGE", keys.log, f"{max(0, latest_ms)}-{2**64 - 1}", "-", "COUNT", 1),
                ("GET", keys.tail),
            ],
        )
        end = end_of(tail, self._shard)
        by_age = min(end, entry_position(last_old[0], self._shard)).seq if last_old else 0
        return text_of(origin or b""), max(0, min(by_age, end.seq - settings.retain_events))

    def _check_end(self, catalog: SegmentCatalog, last: Manifest | None) -> None:
        """Raise ArchiveForeign if the log does not have the last archived event."""
        if last is None:
            return
        end = last.chain.last
        tail, before, after = self._bus.converse(
            ask_all(
                self._shard,
                [
                    ("GET", self._keys.tail),
                    ("XREVRANGE", self._keys.log, end.at, "-", "COUNT", 1),
                    ("XRANGE", self._keys.log, f"({end.at}", "+", "COUNT", 1),
                ],
            )
        )
        has_end = all(is_beside(entry, end.position, end.id) for entry in [*before, *after])
        if end_of(tail, self._shard).seq < end.seq or not has_end:
            common, advice = self._last_common(catalog), "set archive_url to a new location for it"
            if common:
                advice = f"copy the archive to a new location, delete {END} and the files numbered above {common} from"
                advice += f" {catalog.folder} there, and set archive_url to it"
            raise ArchiveForeign(
                f"{catalog.where} ends at {end.at}, an event that the log of shard {self._shard} does not have; the log"
                f" was rewound or restored from an older backup: {advice}"
            )

    def _last_common(self, catalog: SegmentCatalog) -> int:
        """Return the number of the last event of the last segment that the log has too, 0 without one."""
        floor = self._bus.converse(read_floor(self._bus.core.log, self._shard)).position
        for first in reversed(catalog.firsts):
            with suppress(ArchiveDamaged):
                last = catalog.manifest(first).chain.last
                (found,) = self._bus.converse(ask_all(self._shard, [("XRANGE", self._keys.log, last.at, last.at)]))
                if last.seq <= floor.seq or (found and entry_id(found[0]) == last.id):
                    return last.seq
        return 0

    def _has_waited(self, builder: SegmentBuilder, now: int) -> bool:
        """Return whether a segment that is not full has waited long enough."""
        waited = now - entry_position(builder.first, self._shard).ms
        return waited >= (self._bus.core.settings.ms("retain") or 0) + self._patience_ms

    def _erase(self, catalog: SegmentCatalog, last: Manifest) -> None:
        """Erase from the archive the events that were erased from the log.

        It still has them if the erasing process was killed or had no archive_url, or if an archiver stored them late.
        """
        erased = self._bus.converse(erased_between(self._keys, 1, last.chain.last.seq))
        try:
            for _ in self._archive.erase(self._shard, self._origin, not_yet_erased(catalog, erased)):
                self._bus.converse(self._lease.keep())
        except ArchiveDamaged as problem:
            logger.warning("erased events are still in the archive", reason=str(problem))

    def _store(self, catalog: SegmentCatalog, builder: SegmentBuilder, before: Manifest | None) -> Manifest:
        """Store a segment durably, then the manifest that makes it part of the archive. Raises ArchiveBusy."""
        segment = builder.finish(self._bus.core.log.bus, self._shard, self._origin, before)
        manifest, store = segment.manifest, catalog.store
        with catalog.removed_on_failure(segment):
            for file, content in segment.contents:
                catalog.put(file, content)
                self._bus.converse(self._lease.keep())
        name, content = catalog.folder + manifest.name, manifest.encode()
        if not store.put_new(name, content) and store.get(name) != content:
            raise ArchiveBusy(self._shard, "another archiver")
        catalog.add(segment)
        catalog.mark_end(manifest)
        self.result.segments += 1
        self.result.events += manifest.chain.count
        self.result.bytes += manifest.files.segment.size + manifest.files.index.size
        counts.archived += manifest.chain.count
        return manifest

    def _delete_leftovers(self, catalog: SegmentCatalog, names: list[str], last: Manifest) -> None:
        """Delete the files of failed attempts whose events are now in other segments."""
        files = Counter(map(number_of, names))
        for name in names:
            number = number_of(name) or 0
            if number > last.chain.last.seq or (number in catalog.firsts and files[number] == FILES):
                continue
            manifest = catalog.stored_manifest(number) if number in catalog.firsts else None
            if manifest is None or name not in manifest.names:
                self._bus.converse(self._lease.keep())
                catalog.store.delete(catalog.folder + name)
