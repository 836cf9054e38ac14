"""One open log file, read line by line from a place on."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from scratchbus.errors import FileGone, InvalidInput

MAX_LINE = 1 << 20
"""How many bytes a line may have; one that is much longer comes in pieces of this size."""

_BLOCK = 1 << 16
_HEAD = 1024  # bytes of the first line that count for the identity
_TAIL = 256  # bytes before the place that tell whether the file is still the one that was read
_EARLIER = 64  # files that were read before are remembered


@dataclass(frozen=True)
class Place:
    """How far a log file was read: `offset` bytes, the last `tail` of which hash to `tail_digest`.

    `identity` names the file, once it has a line: its inode and a hash of its first line; a turn follows where files
    that were read at this path before had both. `earlier` has the last turn of those. `unfinished` is the length of
    the last line when that was taken without its line end; `offset` then still points to its start.
    """

    inode: int
    identity: str = ""
    offset: int = 0
    tail: int = 0
    tail_digest: str = ""
    unfinished: int = 0
    earlier: Mapping[str, int] = field(default_factory=dict)

    def at_start(self) -> Place:
        """Return the place at the first byte of the same file."""
        return Place(self.inode, self.identity, earlier=self.earlier)

    def followed_by(self, inode: int) -> Place:
        """Return the place at the first byte of the file that comes after this one."""
        name, _, turn = self.identity.partition(".")
        read = [(name, int(turn or 0))] if name else []
        return Place(inode, earlier=dict([*self.earlier.items(), *read][-_EARLIER:]))


class Line(NamedTuple):
    """A line without its line end, the identity of its file and the offset of its first byte."""

    text: str
    identity: str
    offset: int


class LogFile:
    """An open log file. `place` moves on behind each line that was taken, once the next one is asked for."""

    def __init__(self, path: Path) -> None:
        """Open a regular file at its first byte. Raises FileGone, or InvalidInput for what cannot be read."""
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise FileGone(str(path)) from None
        except OSError as problem:
            raise InvalidInput(f"{path}: cannot be read: {problem.strerror}; check its permissions") from None
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise InvalidInput(f"{path}: is not a regular file; give --log the path of a log file")
        self.inode = status.st_ino
        self.place = Place(self.inode)
        self._last = b""

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def is_empty(self) -> bool:
        """Say whether nothing has been written to the file."""
        return os.fstat(self._descriptor).st_size == 0

    def has(self, place: Place) -> bool:
        """Say whether the bytes before the place are those that were read when it was taken."""
        return not place.tail or _digest(self._before(place)) == place.tail_digest

    def move_to(self, place: Place) -> None:
        """Read on from a place that the file has."""
        self.place = place
        self._last = self._before(place)

    def whole_lines(self) -> Iterator[Line]:
        """Yield the lines after the place that have their line end."""
        rest = b""
        while block := os.pread(self._descriptor, _BLOCK, self.place.offset + len(rest)):
            *whole, rest = (rest + block).split(b"\n")
            for body in whole:
                yield from self._take(body + b"\n")
            while len(rest) >= MAX_LINE:
                yield from self._take(rest[:MAX_LINE])
                rest = rest[MAX_LINE:]

    def unfinished_line(self) -> Iterator[Line]:
        """Yield what is after the last line end, once, and leave the place before it: it may still grow."""
        raw = os.pread(self._descriptor, MAX_LINE, self.place.offset)
        if raw:
            line, length = self._line(raw)
            if length != self.place.unfinished:
                yield line
            self.place = replace(self.place, identity=line.identity, unfinished=length)

    def _take(self, raw: bytes) -> Iterator[Line]:
        """Yield the line, unless it was taken before it had its line end, and move behind it."""
        line, length = self._line(raw)
        if not length or length != self.place.unfinished:
            yield line
        self._last = (self._last + raw)[-_TAIL:]
        self.place = Place(
            self.inode,
            line.identity,
            line.offset + len(raw),
            len(self._last),
            _digest(self._last),
            earlier=self.place.earlier,
        )

    def _line(self, raw: bytes) -> tuple[Line, int]:
        """Return the line that these bytes make, and how many they are without the line end.

        Bytes that are not UTF-8 are replaced; the NULs are dropped that a truncation can leave at the front.
        """
        body = raw.removesuffix(b"\n").removesuffix(b"\r")
        text = body.lstrip(b"\0").decode("utf-8", "replace")
        return Line(text, self.place.identity or self._identity(), self.place.offset), len(body)

    def _identity(self) -> str:
        head = os.pread(self._descriptor, _HEAD, 0).split(b"\n", 1)[0]
        name = f"{self.inode:x}-{_digest(head)}"
        last_turn = self.place.earlier.get(name)
        return name if last_turn is None else f"{name}.{last_turn + 1}"

    def _before(self, place: Place) -> bytes:
        return os.pread(self._descriptor, place.tail, place.offset - place.tail)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
