"""The report on the archive of one log."""

from __future__ import annotations

from pydantic import BaseModel

from scratchbus.archive.manifest import Manifest


class FileProblem(BaseModel):
    """A problem with a file of an archive, or between two of them."""

    file: str
    problem: str


class LogReport(BaseModel):
    """The contents of the archive of one log, and the problems found in it."""

    bus: str
    shard: int
    segments: int = 0
    events: int = 0
    erased: int = 0
    bytes: int = 0
    first: str | None = None
    last: str | None = None
    problems: list[FileProblem] = []

    def count(self, manifest: Manifest) -> None:
        """Add a segment."""
        self.segments += 1
        self.events += manifest.chain.count
        self.erased += len(manifest.files.erased)
        self.bytes += manifest.files.segment.size + manifest.files.index.size
        self.first = self.first or manifest.chain.first.at
        self.last = manifest.chain.last.at
