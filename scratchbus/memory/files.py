"""The private files of a session."""

# Generated from files_async.py by tools/generate_blocking.py. Edit that file, then run `make generate`.

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Concatenate

from scratchbus.commands import files
from scratchbus.domain.conversations import ScratchFile, check_path, subject_of
from scratchbus.domain.values import page_of_session
from scratchbus.engine.steps import Step
from scratchbus.memory.page_memory import Events, P, T, timetravel
from scratchbus.projections.files import PREFIX
from scratchbus.readmodel.history import history
from scratchbus.readmodel.scope import Core, Host

FileList = list[ScratchFile]  # inside a class with a method `list`, that name is taken


class Files:
    """The private files of a session, outside of every workspace. Get them from `Bus.files`.

    They are on the disk of this machine, in `<data directory>/brain/<session>/scratch/`; the log lists them with size
    and SHA-256. A spawned session shares the files of its parent; a fork has its own. A path is relative, with names
    between slashes, and stays in the directory: no `..`, no symbolic links. An invalid path or content raises
    InvalidField or TooLarge and changes nothing. Writes raise SessionOver once the session has ended, and
    FilesUnavailable without space or permission.
    """

    def __init__(self, bus: Host, session: str) -> None:
        self._bus = bus
        page_of_session(session)
        self._session = session

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of session {self._session!r} of {self._bus!r}>"

    def write(self, path: str, content: str | bytes, *, event_id: str | None = None) -> ScratchFile:
        """Write a whole file, creating its directories; return its entry in the log.

        The file is replaced only once all of it is on disk. Files that are too old are evicted, and the oldest ones
        while all together are larger than `max_files` bytes.
        """
        return self._do(files.write, locals())

    def read(self, path: str) -> bytes:
        """Return the content of a file. Raises NotFound."""
        return self._do(files.read, path)

    def list(self) -> FileList:
        """Return the files that the log lists, by path."""
        return self._do(files.present)

    def as_of(self, when: timetravel.When) -> FileList:
        """Return the files listed at a position or a time. Raises InvalidPosition."""
        page = page_of_session(self._root())
        return files.listed((self._bus.converse(timetravel.documents_as_of(self._bus.core, page, when)))[1])

    def delete(self, path: str, *, event_id: str | None = None) -> None:
        """Delete a file, and directories that become empty. Raises NotFound."""
        self._do(files.delete, locals())

    def sync(self) -> FileList:
        """Record what programs have written to the directory or deleted from it, evict the excess; return `list`.

        Symbolic links, devices and files with invalid names are left out.
        """
        return self._do(files.sync)

    def path(self, path: str | None = None) -> Path:
        """Return the path of the directory on this machine, or of a file in it, for programs to use.

        Creates the directory. Call `sync` to record what such programs write.
        """
        return self._do(files.make_path, path)

    def history(self, path: str) -> Events:
        """Return the events about a path, oldest first. Raises PositionLost when some of them have left the log."""
        page = page_of_session(self._root())
        return self._bus.converse(history(self._bus.core.log, page, subject_of(PREFIX, check_path(path))))

    def _root(self) -> str:
        return self._bus.converse(files.root_of(self._bus.core, self._session))

    def _do(self, operation: Callable[Concatenate[Core, str, P], Step[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation on the files of this session, or of the parent that it shares them with."""
        return self._bus.converse(operation(self._bus.core, self._root(), *args, **kwargs))
