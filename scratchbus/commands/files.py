"""Write, read and delete the private files of a session; the log lists the files, not their content.

A file is on disk before the log lists it. The next `sync` lists files of an interrupted write, and files that others
wrote into the directory.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from typing import IO, Annotated, Any, cast

from scratchbus.commands.execution import Occasion
from scratchbus.commands.held_lock import WhileLocked, take_lock
from scratchbus.commands.memory import edit
from scratchbus.commands.memory_edit import MemoryEdit, is_retry
from scratchbus.commands.memory_reads import read_memory
from scratchbus.commands.repeatable import repeatable
from scratchbus.commands.scratch_directory import FileOnDisk, ScratchDirectory, name_of, names_in, session_of
from scratchbus.commands.sessions import get_session, has_ended
from scratchbus.domain.checks import bytes_of
from scratchbus.domain.conversation_events import FileRemoved, FileWritten
from scratchbus.domain.conversations import ScratchFile, check_path, subject_of
from scratchbus.domain.document import Document
from scratchbus.domain.event import Event
from scratchbus.domain.models import CheckedBy
from scratchbus.domain.values import page_of_session
from scratchbus.engine.embedded.server import default_directory, directory_of
from scratchbus.engine.steps import Abandoned, Fetch, Step
from scratchbus.errors import (
    FilesUnavailable,
    InvalidField,
    NotFound,
    NotReplicated,
    ScratchbusError,
    SessionOver,
    TooLarge,
    shown,
)
from scratchbus.eventlog.retries import annotate
from scratchbus.projections.files import PREFIX
from scratchbus.projections.memory_index import Directory
from scratchbus.readmodel.page_query import query_page
from scratchbus.readmodel.scope import Core
from scratchbus.settings import Settings


class _FileEdit(MemoryEdit):
    path: Annotated[str, CheckedBy(check_path)]

    @property
    def about(self) -> str:
        """See `MemoryEdit`."""
        return subject_of(PREFIX, self.path)


class WriteFile(_FileEdit):
    """Record that a file was written."""

    verb = "write_file"
    size: int
    sha256: str

    def decide(self, occasion: Occasion, document: ScratchFile | None) -> Event | None:
        """See `MemoryEdit`."""
        return occasion.event(FileWritten, self.about, path=self.path, size=self.size, sha256=self.sha256)


class RemoveFile(_FileEdit):
    """Record that a file is gone, and why."""

    verb = "remove_file"
    why: str = "deleted"

    def decide(self, occasion: Occasion, document: ScratchFile | None) -> Event | None:
        """See `MemoryEdit`."""
        if document is None or document.deleted:
            return None
        return occasion.event(FileRemoved, self.about, path=self.path, why=self.why)


def root_of(core: Core, session: str) -> Step[str]:
    """Return the session whose files a session uses: the one it was spawned from, or itself.

    A fork has its own.
    """
    seen = {session}
    while True:
        record = yield from get_session(core, session)
        if record is None or record.parent is None or record.fork or record.parent in seen:
            return session
        session = record.parent
        seen.add(session)


def directory(core: Core, root: str) -> ScratchDirectory:
    """Return the directory with the files of a session."""
    return ScratchDirectory(home_of(core.settings), name_of(core.settings.bus, root))


def home_of(settings: Settings) -> Path:
    """Return the data directory: the embedded engine's, else the setting `home`, else the user's own."""
    home = directory_of(settings.url, settings.home) or settings.home or default_directory()
    return home.expanduser().absolute()


def write(core: Core, root: str, arguments: Mapping[str, Any]) -> Step[ScratchFile]:
    """Write a whole file; return it as it is listed."""
    page, content = page_of_session(root), _bytes(arguments["content"])
    limit = core.settings.max_files
    if len(content) > limit:
        raise TooLarge("content", len(content), limit, "bytes", "write less, or raise max_files")
    fields = {"path": arguments["path"], "size": len(content), "sha256": sha256(content).hexdigest()}
    command = WriteFile.parse({**fields, "event_id": arguments["event_id"]})
    if (yield from is_retry(core, command.on(core, page), command.about)):
        return cast(ScratchFile, (yield from edit(core, page, command)))
    yield from _check_open(core, root)
    with (yield from take_lock(directory(core, root))) as lock:
        if not (yield from is_retry(core, command.on(core, page), command.about)):  # else it is on disk, or newer
            yield Fetch(WhileLocked(lock, partial(directory(core, root).put, command.path, content)))
        written = yield from edit(core, page, command)
        with suppress(FilesUnavailable):  # it is written; the next eviction tries again
            yield from _evict(core, root, lock)
    return cast(ScratchFile, written)


def read(core: Core, root: str, path: str) -> Step[bytes]:
    """Return the content of a file."""
    content: bytes = yield Fetch(partial(directory(core, root).get, path, core.settings.max_files))
    return content


def delete(core: Core, root: str, arguments: Mapping[str, Any]) -> Step[None]:
    """Delete a file. Raises NotFound."""
    page = page_of_session(root)
    command = RemoveFile.parse({"path": arguments["path"], "event_id": arguments["event_id"]})
    if (yield from is_retry(core, command.on(core, page), command.about)):
        return
    yield from _check_open(core, root)
    with (yield from take_lock(directory(core, root))) as lock:
        if (yield from is_retry(core, command.on(core, page), command.about)):
            return
        listed = yield from read_memory(core, core.directories, page, lambda entries: entries.get(command.about))
        is_listed, scratch = listed is not None and not listed.deleted, directory(core, root)
        if not is_listed and command.event_id is not None:
            found: FileOnDisk | None = yield Fetch(partial(scratch.describe, command.path))
            if found is not None:  # list it, so that the log can have the event that a retry looks for
                try:
                    yield from edit(core, page, WriteFile.parse(found._asdict()))
                except ScratchbusError as error:
                    annotate(error, command.event_id, is_in_doubt=bool(error.advice))
                    raise
                yield Abandoned()  # an error later names the id of the deletion, too
        existed = yield Fetch(WhileLocked(lock, partial(scratch.remove, command.path)))
        if not existed and not is_listed:
            raise NotFound(f"there is no file {shown(command.path)}; list the files of session {root!r}")
        yield from edit(core, page, command)


def present(core: Core, root: str) -> Step[list[ScratchFile]]:
    """Return the files that the log lists, by path."""
    entries = yield from read_memory(core, core.directories, page_of_session(root), Directory.present)
    return [entry for entry in entries if isinstance(entry, ScratchFile)]


def listed(documents: Mapping[str, Document]) -> list[ScratchFile]:
    """Return the files among the documents of a session, by path."""
    found = [each for each in documents.values() if isinstance(each, ScratchFile) and not each.deleted]
    return sorted(found, key=attrgetter("path"))


def sync(core: Core, root: str) -> Step[list[ScratchFile]]:
    """List the files on disk: append events for files that others wrote or deleted, then evict."""
    return (yield from repeatable(core, [core.log.shard(page_of_session(root))], _sync(core, root)))


def _sync(core: Core, root: str) -> Step[list[ScratchFile]]:
    page = page_of_session(root)
    yield from _check_open(core, root)
    with (yield from take_lock(directory(core, root))) as lock:
        found = {each.path: each for each in (yield Fetch(directory(core, root).scan))}
        listed = {file.path: file.sha256 for file in (yield from present(core, root))}
        for path, each in found.items():
            if listed.get(path) != each.sha256:
                yield from edit(core, page, WriteFile.parse(each._asdict()))
        for path in listed.keys() - found:
            yield from edit(core, page, RemoveFile.parse({"path": path, "why": "missing"}))
        yield from _evict(core, root, lock)
    return (yield from present(core, root))


def make_path(core: Core, root: str, path: str | None) -> Step[Path]:
    """Create the directory; return its path, or that of a file in it."""
    relative = check_path(path) if path is not None else ""
    scratch = directory(core, root)
    yield Fetch(scratch.make)
    return scratch.path / relative


def evict_all(core: Core) -> Step[dict[str, int]]:
    """Evict files in all sessions of the bus; return how many, by session.

    The files of an ended session are deleted by when they were last written to disk; the log listed them as archived
    when it ended. Raises FilesUnavailable for the first directory that cannot be used, after all others, and
    NotReplicated likewise.
    """
    return (yield from repeatable(core, range(core.log.shards), _evict_all(core)))


def _evict_all(core: Core) -> Step[dict[str, int]]:
    evicted, failures = dict[str, int](), list[ScratchbusError]()
    for name in (yield Fetch(partial(names_in, home_of(core.settings)))):
        session = session_of(core.settings.bus, name)
        if session is None:
            continue
        try:
            evicted[session] = yield from _evict_session(core, session)
        except (FilesUnavailable, NotReplicated) as failure:
            failures.append(failure)
    if failures:
        raise failures[0]
    return {session: count for session, count in evicted.items() if count}


def _evict_session(core: Core, session: str) -> Step[int]:
    keep_ms = core.settings.ms("keep_files")
    is_over = yield from has_ended(core, session)
    try:
        with (yield from take_lock(directory(core, session))) as lock:
            if not is_over:
                return (yield from _evict(core, session, lock))
            if keep_ms is None:
                return 0
            discard = partial(directory(core, session).discard, time.time() - keep_ms / 1000)
            count: int = yield Fetch(WhileLocked(lock, discard))
            return count
    except SessionOver:  # it ended meanwhile; its files have their time
        return 0


def _evict(core: Core, root: str, lock: IO[bytes]) -> Step[int]:
    """Evict files that are too old, then the oldest ones while the total is too large; return how many.

    Raises FilesUnavailable for the first file that cannot be deleted, after all others.
    """
    page, scratch = page_of_session(root), directory(core, root)
    files = sorted((yield from present(core, root)), key=lambda file: file.seq)
    total, oldest_ms, count = sum(file.size for file in files), 0, 0
    failures: list[FilesUnavailable] = []
    keep_ms = core.settings.ms("keep_files")
    if keep_ms is not None and files:
        oldest_ms = (yield from query_page(core.log, page, core.fresh, "get", page)).now - keep_ms
    for file in files:
        reason = "age" if file.ms < oldest_ms else "size" if total > core.settings.max_files else ""
        if reason:
            try:
                yield Fetch(WhileLocked(lock, partial(scratch.remove, file.path)))
            except InvalidField:  # something else is at its path, or above it
                reason = "missing"
            except FilesUnavailable as error:
                failures.append(error)
                total -= file.size  # newer files must not go in its place
                continue
            yield from edit(core, page, RemoveFile.parse({"path": file.path, "why": reason}))
            total -= file.size
            count += 1
    if failures:
        raise failures[0]
    return count


def _check_open(core: Core, root: str) -> Step[None]:
    if (yield from has_ended(core, root)):
        raise SessionOver(root)


def _bytes(content: object) -> bytes:
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    if isinstance(content, str):
        bytes_of("content", content)
        return content.encode()
    raise InvalidField("content", f"{shown(content)} is neither text nor bytes")
