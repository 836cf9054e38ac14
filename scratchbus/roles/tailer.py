"""Reading what a program logs at a path, through rotation, truncation and restarts.

Between two looks, and between two runs, the file at the path may have become another:

- **grown**: the bytes before the place are still those that were read, and reading goes on;
- **truncated** (copytruncate): the same inode, other bytes; it is read from its start;
- **rotated** (renamed, and a new one created): as soon as the new one has bytes, the old one is read to its end and
  then the new one from its start. After a restart the old one is found by its inode in the same directory. When there
  were several rotations, the files between follow in their order, if they are called `LOG.1`, `LOG.2`, …;
- **replaced by a copy** (an editor, rsync): another inode, the same bytes; reading goes on;
- **gone**: the open file is read on, and the path looked at again.

Each line comes with the identity of its file and its offset, which together name it for ever: reading the same file
again from its start, even when the place was lost, gives the same names. A device number is no part of the identity,
since it can change when a machine restarts. The hash of the first line is, since inodes are used again; where both
come back, the files read at this path are told apart by a turn. A copy at another path is another file.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from scratchbus.errors import FileGone, InvalidInput
from scratchbus.roles.log_file import Line, LogFile, Place


class Tailer:
    """Reads the lines logged at a path, from a remembered place on, or from the start of that file."""

    def __init__(self, path: Path, remembered: Place | None = None, from_start: bool = False) -> None:
        self._path = path
        self._remembered = remembered
        self._from_start = from_start
        self._file: LogFile | None = None

    @property
    def place(self) -> Place | None:
        """What to remember: the place behind the lines yielded so far but the last, and behind that once resumed."""
        return self._file.place if self._file else self._remembered

    def close(self) -> None:
        """Close the file; the place stays."""
        if self._file:
            self._remembered = self._file.place
            self._file.close()
            self._file = None

    def lines(self, final: bool = False) -> Iterator[Line]:
        """Yield the whole lines that are there now; with `final`, also a last one without its line end.

        Raises FileGone when there is no file at the path and none is open, InvalidInput for what cannot be read.
        """
        file = self._current()
        while True:
            with contextlib.ExitStack() as if_left:
                successor = self._successor(file)
                if successor:
                    if_left.callback(successor.close)
                yield from file.whole_lines()
                if final or successor:
                    yield from file.unfinished_line()
                if_left.pop_all()
            if successor is None:
                return
            file.close()
            successor.move_to(file.place.followed_by(successor.inode))
            self._file = file = successor

    def _current(self) -> LogFile:
        """Return the file to read, at the place to read on from."""
        if self._file is None:
            self._file = self._resume()
        elif not self._file.has(self._file.place):
            self._file.move_to(self._file.place.followed_by(self._file.inode))
        return self._file

    def _resume(self) -> LogFile:
        file, place = LogFile(self._path), self._remembered
        if place is None:
            return file
        if file.inode != place.inode and (renamed := self._renamed(place)):
            file.close()
            file = renamed
        if file.has(place) and (file.inode == place.inode or place.offset):
            same = replace(place, inode=file.inode)
            file.move_to(same.at_start() if self._from_start else same)
        else:
            file.move_to(place.followed_by(file.inode))
        return file

    def _renamed(self, place: Place) -> LogFile | None:
        """Return the file that was read before, if it is still in the directory under another name."""
        with os.scandir(self._path.parent) as entries:
            candidates = [Path(entry.path) for entry in entries if entry.inode() == place.inode]
        for path in candidates:
            try:
                file = LogFile(path)
            except (FileGone, InvalidInput):
                continue
            if file.has(place):
                return file
            file.close()
        return None

    def _successor(self, file: LogFile) -> LogFile | None:
        """Return the file that came after this one, if there is one and it has bytes.

        Until it has, whoever writes the log may still hold the old one.
        """
        try:
            found = LogFile(self._path_after(file))
        except FileGone:
            return None
        if found.inode != file.inode and not found.is_empty():
            return found
        found.close()
        return None

    def _path_after(self, file: LogFile) -> Path:
        """Return the path, or that of the file that was rotated next after this one and has bytes."""
        newer = self._path
        for number in itertools.count(1):
            path = Path(f"{self._path}.{number}")
            try:
                status = path.stat()
            except OSError:
                break
            if status.st_ino == file.inode:
                return newer
            if status.st_size:
                newer = path
        return self._path
