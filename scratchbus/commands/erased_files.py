"""The private file on this machine's disk whose record is erased."""

from __future__ import annotations

from functools import partial
from typing import IO

from scratchbus.commands import files
from scratchbus.commands.held_lock import WhileLocked
from scratchbus.commands.scratch_directory import ScratchDirectory, name_of, names_in
from scratchbus.domain.conversations import subject_of
from scratchbus.domain.values import SESSION_PAGES
from scratchbus.engine.steps import Fetch, Step
from scratchbus.projections.files import PREFIX
from scratchbus.readmodel.scope import Core


def lock_file(core: Core, page: str, subject: object) -> Step[IO[bytes] | None]:
    """Return the lock of a session's files if the subject is one of them, and they are on this machine.

    While it is held, no `sync` lists the file again. Raises FilesUnavailable.
    """
    if not (isinstance(subject, str) and subject.startswith(PREFIX) and page.startswith(SESSION_PAGES)):
        return None
    session = page.removeprefix(SESSION_PAGES)
    names = yield Fetch(partial(names_in, files.home_of(core.settings)))
    return (yield from files.take_lock(core, session)) if name_of(core.settings.bus, session) in names else None


def delete_file(core: Core, page: str, subject: str, lock: IO[bytes]) -> Step[None]:
    """Delete the file of an erased record, and what killed writers left. Raises FilesUnavailable."""
    scratch = files.directory(core, page.removeprefix(SESSION_PAGES))
    yield Fetch(WhileLocked(lock, partial(_delete, scratch, subject)))


def _delete(scratch: ScratchDirectory, subject: str) -> None:
    scratch.clear_incoming()
    for file in scratch.scan():
        if subject_of(PREFIX, file.path) == subject:
            scratch.remove(file.path)
