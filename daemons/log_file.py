"""One open log file, read line by line from a position."""

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
"""The most bytes of a line; a longer one comes in pieces of this size."""

_BLOCK = 1 << 16
_HEAD = 1024  # bytes of the first line that the identity depends on
_TAIL = 256  # bytes before the position that identify the file
_EARLIER = 64  # earlier files that are remembered
_COMPRESSED = (b"\x1f\x8b", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", *(b"BZh%d1A" % level for level in range(1, 10)))
"""How files of gzip, xz, zstd and bzip2 begin."""


@dataclass(frozen=True)
class FilePosition:
    """How far a log file was read: `offset` bytes, the last `tail` of which hash to `tail_digest`.

    `identity` names the file once it has a line: its inode and a hash of its first line, then a turn if earlier files
    at this path had the same two. `earlier` maps each earlier identity to its last turn. `unfinished` is the length of
    the last line if that was read without its line end; `offset` is then still the start of that line.
    """

    inode: int
    identity: str = ""
    offset: int = 0
    tail: int = 0
    tail_digest: str = ""
    unfinished: int = 0
    earlier: Mapping[str, int] = field(default_factory=dict)

    def at_start(self) -> FilePosition:
        """Return the position of the first byte of the same file."""
        return FilePosition(self.inode, self.identity, earlier=self.earlier)

    def followed_by(self, inode: int) -> FilePosition:
        """Return the position of the first byte of the file that follows this one."""
        name, _, turn = self.identity.partition(".")
        current = [(name, int(turn or 0))] if name else []
        return FilePosition(inode, earlier=dict([*self.earlier.items(), *current][-_EARLIER:]))


class Line(NamedTuple):
    """A line without its line end, the identity of its file, and the offset of its first byte."""

    text: str
    identity: str
    offset: int


class LogFile:
    """An open log file. `position` moves past a line when the next one is requested."""

    def __init__(self, path: Path) -> None:
        """Open a regular file at its first byte. Raises FileGone, or InvalidInput when it cannot be read."""
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
        if os.pread(self._descriptor, 6, 0).startswith(_COMPRESSED):
            self.close()
            raise InvalidInput(f"{path}: is compressed; unpack it, and give --log the path of the text")
        self.inode = status.st_ino
        self.position = FilePosition(self.inode)
        self._last = b""

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def is_empty(self) -> bool:
        """Return whether the file has no bytes."""
        return os.fstat(self._descriptor).st_size == 0

    def has(self, position: FilePosition) -> bool:
        """Return whether the bytes before the position are still those that were read."""
        return not position.tail or _digest(self._before(position)) == position.tail_digest

    def move_to(self, position: FilePosition) -> None:
        """Continue from a position that the file has."""
        self.position = position
        self._last = self._before(position)

    def whole_lines(self) -> Iterator[Line]:
        """Yield the lines after the position that have a line end; none of a file that was overwritten meanwhile."""
        rest = b""
        while block := self._following(rest, _BLOCK):
            *complete, rest = (rest + block).split(b"\n")
            for body in complete:
                yield from self._take(body + b"\n")
            while len(rest) >= MAX_LINE:
                yield from self._take(rest[:MAX_LINE])
                rest = rest[MAX_LINE:]

    def unfinished_line(self) -> Iterator[Line]:
        """Yield what follows the last line end, once; the position stays before it, since it may still grow."""
        raw = self._following(b"", MAX_LINE)
        if raw:
            line, length = self._line(raw)
            if length != self.position.unfinished:
                yield line
            self.position = replace(self.position, identity=line.identity, unfinished=length)

    def _following(self, rest: bytes, size: int) -> bytes:
        """Return what follows `rest`, the bytes after the position; nothing if those before have changed.

        One system call reads both: the file may be truncated and written again at any time.
        """
        before = (self._last + rest)[-_TAIL:]
        data = os.pread(self._descriptor, len(before) + size, self.position.offset + len(rest) - len(before))
        return data.removeprefix(before) if data.startswith(before) else b""

    def _take(self, raw: bytes) -> Iterator[Line]:
        """Move past the line and yield it, unless it was already yielded without its line end."""
        line, length = self._line(raw)
        if not length or length != self.position.unfinished:
            yield line
        self._last = (self._last + raw)[-_TAIL:]
        self.position = FilePosition(
            self.inode,
            line.identity,
            line.offset + len(raw),
            len(self._last),
            _digest(self._last),
            earlier=self.position.earlier,
        )

    def _line(self, raw: bytes) -> tuple[Line, int]:
        """Return the line in these bytes, and its length in bytes without the line end.

        Bytes that are not UTF-8 are replaced. Leading NULs, which a truncation may leave, are dropped.
        """
        body = raw.removesuffix(b"\n").removesuffix(b"\r")
        text = body.lstrip(b"\0").decode("utf-8", "replace")
        return Line(text, self.position.identity or self._identity(), self.position.offset), len(body)

    def _identity(self) -> str:
        head = os.pread(self._descriptor, _HEAD, 0).split(b"\n", 1)[0]
        name = f"{self.inode:x}-{_digest(head)}"
        last_turn = self.position.earlier.get(name)
        return name if last_turn is None else f"{name}.{last_turn + 1}"

    def _before(self, position: FilePosition) -> bytes:
        return os.pread(self._descriptor, position.tail, position.offset - position.tail)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
