"""Reads what a program logs at a path, through rotation, truncation and restarts.

Between two looks, and between two runs, the file at the path may have changed in these ways:

- **grown**: the bytes before the position are still those that were read; reading continues;
- **truncated** (copytruncate): the same inode, other bytes; the file is read from its start, with a warning;
- **rotated** (renamed, and a new file created): once the new file has bytes, the old one is read to its end, then the
  new one from its start. After a restart the old file is found by its inode in the same directory; behind a symbolic
  link that is the directory of its target. After several rotations the files in between follow in their order, if they
  are named `LOG.1`, `LOG.2`, …;
- **replaced by a copy** (an editor, rsync): another inode, the same bytes; reading continues;
- **gone**: the open file is read further, and the path is checked again later.

Each line comes with the identity of its file and its offset, which together name it forever: a file that is read again
from its start, even after the position was lost, gives the same names. The identity has no device number, since that
may change when a machine restarts. It has a hash of the first line, since inodes are reused; when both recur, a turn
tells the files at this path apart. A copy at another path is another file.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import structlog

from scratchbus.errors import FileGone, InvalidInput

from .log_file import FilePosition, Line, LogFile

logger = structlog.get_logger(__name__)


class Tailer:
    """Reads the lines logged at a path, from a stored position, or from the start of that file."""

    def __init__(self, path: Path, stored: FilePosition | None = None, from_start: bool = False) -> None:
        self._path = path
        self._stored = stored
        self._from_start = from_start
        self._file: LogFile | None = None
        self._problem = ""  # of the file that is waited for

    @property
    def position(self) -> FilePosition | None:
        """The position to store. It moves past a line when the next one is requested."""
        return self._file.position if self._file else self._stored

    def close(self) -> None:
        """Close the file; the position stays."""
        if self._file:
            self._stored = self._file.position
            self._file.close()
            self._file = None

    def lines(self, final: bool = False) -> Iterator[Line]:
        """Yield the whole lines that are there now; with `final`, also a last line without its line end.

        Raises FileGone when no file is at the path and none is open, InvalidInput when the file cannot be read. Without
        `final`, a next file that cannot be read is waited for: some are made readable a moment after they are created.
        """
        file = self._current()
        while True:
            with contextlib.ExitStack() as if_left:
                successor = self._successor(file, final)
                if successor:
                    if_left.callback(successor.close)
                yield from file.whole_lines()
                if final or successor:
                    yield from file.unfinished_line()
                if_left.pop_all()
            if successor is None:
                return
            file.close()
            successor.move_to(file.position.followed_by(successor.inode))
            self._file = file = successor

    def _current(self) -> LogFile:
        """Return the file to read, at the position to continue from."""
        if self._file is None:
            self._file = self._resume()
        elif not self._file.has(self._file.position):
            self._start_again(self._file, self._file.position)
        return self._file

    def _resume(self) -> LogFile:
        file, position = LogFile(self._path), self._stored
        if position is None:
            return file
        if file.inode != position.inode and (renamed := self._renamed(position)):
            file.close()
            file = renamed
        if file.has(position) and (file.inode == position.inode or position.offset):
            moved = replace(position, inode=file.inode)
            file.move_to(moved.at_start() if self._from_start else moved)
        else:
            self._start_again(file, position)
        return file

    def _start_again(self, file: LogFile, position: FilePosition) -> None:
        logger.warning("the log was replaced or truncated; some lines may be missing", log=str(self._path))
        file.move_to(position.followed_by(file.inode))

    def _target(self) -> Path:
        """Return the path of the log itself, which a symbolic link may name: the target is what rotates."""
        return Path(os.path.realpath(self._path))

    def _renamed(self, position: FilePosition) -> LogFile | None:
        """Return the file that was read before, if the directory has it under another name, and may be listed."""
        try:
            with os.scandir(self._target().parent) as entries:
                candidates = [Path(entry.path) for entry in entries if entry.inode() == position.inode]
        except OSError as problem:
            logger.warning("cannot look for the rotated log", log=str(self._path), reason=problem.strerror)
            return None
        for path in candidates:
            try:
                file = LogFile(path)
            except (FileGone, InvalidInput):
                continue
            if file.has(position):
                return file
            file.close()
        return None

    def _successor(self, file: LogFile, final: bool) -> LogFile | None:
        """Return the file that follows this one, if it exists and has bytes.

        While it has none, the writer of the log may still write to the old file.
        """
        try:
            found = LogFile(self._path_after(file))
        except FileGone:
            return None
        except InvalidInput as problem:
            if final:
                raise
            if str(problem) != self._problem:
                logger.warning("cannot read the next log file; waiting for it", reason=str(problem))
            self._problem = str(problem)
            return None
        self._problem = ""
        if found.inode != file.inode and not found.is_empty():
            return found
        found.close()
        return None

    def _path_after(self, file: LogFile) -> Path:
        """Return the path of the next newer rotated file that has bytes, else the path of the log."""
        newer, target = self._path, self._target()
        for number in itertools.count(1):
            path = Path(f"{target}.{number}")
            try:
                status = path.stat()
            except OSError:
                break
            if status.st_ino == file.inode:
                return newer
            if status.st_size:
                newer = path
        return self._path
