"""The archives of a round: one for each log, since a new log begins after a flush."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scratchbus.archive.archive_reader import Archive
from scratchbus.archive.catalog import SegmentCatalog
from scratchbus.archive.stores import DirectoryStore
from scratchbus.eventlog.compression import zstd
from tests.faults.history.logbook import Entry

TERMS: dict[str, Any] = {"retain": "3s", "retain_events": 100, "archive_segment": 100}
"""Settings that keep more events in the log than a failover may lose, which would then be in the archive only."""


class Archives(Archive):
    """An archive with a separate directory for each log of a bus."""

    def __init__(self, directory: Path, bus: str) -> None:
        super().__init__(DirectoryStore(directory), bus)
        self._directory, self._name = directory, bus
        self._logs: dict[str, Archive] = {}

    def catalog(self, shard: int, origin: str) -> SegmentCatalog:
        """Return the catalog of a log."""
        if origin not in self._logs:
            self._logs[origin] = Archive(DirectoryStore(self._directory / origin), self._name)
        return self._logs[origin].catalog(shard, origin)


def read_archived(directory: Path, bus: str, origin: str, until: int) -> list[Entry]:
    """Return the archived events of a log up to a seq, from the text of the files."""
    entries = []
    for manifest in sorted((directory / origin / bus / "0000").glob("*.manifest.json")):
        segment = manifest.parent / json.loads(manifest.read_bytes())["files"]["segment"]["name"]
        for line in zstd.decompress(segment.read_bytes()).decode().rstrip("\n").split("\n"):
            parsed = json.loads(line)
            fields = [parsed[name] for name in ("ms", "seq", "id", "page", "subject", "kind", "type", "batch")]
            fields.append(line.partition(',"event":')[2][:-1])
            if parsed["seq"] <= until:
                entries.append(Entry(*fields))
    return entries
