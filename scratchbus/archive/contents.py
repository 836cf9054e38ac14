"""The contents of a store: all logs that have an archive in it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime

from pydantic import BaseModel

from scratchbus.archive.manifest import END, Manifest, bus_folder, hash_in, is_manifest, number_of
from scratchbus.archive.stores import Store
from scratchbus.errors import ArchiveDamaged

_SHARD = r"\d{4,}/"


def archived_logs(store: Store, bus: str | None = None) -> dict[str, list[str]]:
    """Return the folders of all logs in a store, or of one bus, each with the names of its files.

    Raises ArchiveUnavailable.
    """
    prefix = "" if bus is None else bus_folder(bus)
    path = re.compile(rf"({re.escape(prefix) or '.+/'}{_SHARD})(.+)").fullmatch
    folders: dict[str, list[str]] = defaultdict(list)
    for match in filter(None, map(path, store.list(prefix))):
        folder, file = match.groups()
        if number_of(file) is not None or file == END or hash_in(file):
            folders[folder].append(file)
    return dict(folders)


class SegmentInfo(BaseModel):
    """The contents of one segment, from its manifest."""

    bus: str
    shard: int
    first_seq: int
    last_seq: int
    first_at: datetime
    last_at: datetime
    events: int
    erased: int
    bytes: int
    file: str


def archived_segments(store: Store, bus: str | None = None) -> Iterator[SegmentInfo]:
    """Yield the segments of all logs in a store, or of one bus, in order.

    Raises ArchiveUnavailable or ArchiveDamaged.
    """
    for folder, names in archived_logs(store, bus).items():
        for name in filter(is_manifest, names):
            try:
                chain, files = Manifest.parse(store.get(folder + name) or b"")
            except ValueError as problem:
                raise ArchiveDamaged(
                    f"{store.where}/{folder}{name}: {problem}; see `scratchbus log-archive verify`"
                ) from None
            yield SegmentInfo(
                bus=chain.bus,
                shard=chain.shard,
                first_seq=chain.first.seq,
                last_seq=chain.last.seq,
                first_at=chain.first.position.at,
                last_at=chain.last.position.at,
                events=chain.count,
                erased=len(files.erased),
                bytes=files.segment.size + files.index.size,
                file=folder + files.segment.name,
            )
