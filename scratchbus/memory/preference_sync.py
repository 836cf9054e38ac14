"""Sync the preferences of a scope with a section of a text file."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from scratchbus.commands import preferences
from scratchbus.commands.repeatable import repeatable
from scratchbus.commands.replaced_files import replace_unchanged_file
from scratchbus.domain.memories import Preference
from scratchbus.domain.preference_file import FileChange, FileSection, SyncedAt, find_section, merge, replaced
from scratchbus.domain.values import SCOPE_PAGES
from scratchbus.engine.steps import Fetch, Step, ask
from scratchbus.errors import Conflict, InvalidField, InvalidPosition, LogError, RevisionConflict, shown
from scratchbus.eventlog.raw_entries import text_of
from scratchbus.projections.preferences import PREFIX
from scratchbus.readmodel.scope import Core
from scratchbus.telemetry.lazy import imported_on_first_use

with imported_on_first_use(__name__):
    from scratchbus import timetravel

_TRIES: Final = 5
_MAX_BYTES: Final = 4 * 1024 * 1024  # bytes of a file


class Synced(NamedTuple):
    """The result of a sync: the keys it remembered and forgot on the bus, and whether it wrote the file.

    `conflicts` are the keys that both the file and the bus had changed; the file won.
    """

    remembered: list[str]
    forgotten: list[str]
    conflicts: list[str]
    is_written: bool

    @property
    def wrote(self) -> bool:
        """Whether it changed anything on either side."""
        return bool(self.remembered or self.forgotten or self.is_written)


def sync(core: Core, page: str, file: Path | str) -> Step[Synced]:
    """See `AsyncPreferences.sync`."""
    return (yield from repeatable(core, [core.log.shard(page)], _sync(core, page, file)))


def _sync(core: Core, page: str, file: Path | str) -> Step[Synced]:
    if not isinstance(file, Path | str):
        raise InvalidField("file", f"{shown(file)} is not a path")
    path = Path(file)
    synced = Synced([], [], [], False)
    scope = page.removeprefix(SCOPE_PAGES)
    for _ in range(_TRIES):
        target, before = yield Fetch(partial(_read, path))
        text = _decoded(path, before or b"")
        try:
            section = find_section(text, PREFIX)
        except InvalidField as refused:
            raise _refusal(path, str(refused).removeprefix("file: ")) from None
        if section.scope not in ("", scope):
            advice = "sync it with that one, or remove the part first"
            raise _refusal(path, f"has the preferences of scope {section.scope!r}; {advice}")
        _check_writable(path, target)
        log = yield from _log_id(core, page)
        stored = {each.id: each for each in (yield from preferences.read_all(core, page))}
        base = yield from _base(core, page, section, log, stored)
        merged = merge(section.items, base, _remembered(stored))
        synced.conflicts.extend(key for key in merged.conflicts if key not in synced.conflicts)  # of earlier tries
        try:
            for change in merged.changes:
                yield from _write(core, page, change, stored.get(change.subject))
                keys = synced.forgotten if change.text is None else synced.remembered
                if change.key not in keys:  # of earlier tries
                    keys.append(change.key)
        except RevisionConflict:
            continue  # someone was faster: try again
        stored = {each.id: each for each in (yield from preferences.read_all(core, page))}
        last_position = max((each.position for each in stored.values()), default=None)
        sync_point = SyncedAt(log, last_position) if last_position is not None else None
        after = replaced(text, section, scope, sync_point, _remembered(stored)).encode()
        if after == before:
            return synced
        if (yield Fetch(partial(_replace, path, target, before, after))):
            return synced._replace(is_written=True)
    raise Conflict(f"{path} or the preferences keep changing; try again")


def _remembered(stored: Mapping[str, Preference]) -> dict[str, Preference]:
    return {subject: each for subject, each in stored.items() if not each.forgotten}


def _log_id(core: Core, page: str) -> Step[str]:
    """Return an identifier of a page's log; "none" before its first event."""
    shard = core.log.shard(page)
    origin = yield from ask(shard, "GET", core.log.keys(shard).origin)
    return text_of(origin)[:8] if origin else "none"


def _base(
    core: Core, page: str, section: FileSection, log: str, stored: Mapping[str, Preference]
) -> Step[dict[str, Preference] | None]:
    """Return the preferences at the last sync; None if unknown. One that was erased since counts as it is in the file.

    So it is removed from the file, and not remembered again.
    """
    if section.synced is None or section.synced.log != log:
        return None
    try:
        preferences_then = yield from timetravel.preferences_as_of(core, page, section.synced.position)
    except (InvalidPosition, LogError):
        return None
    base = {each.id: each for each in preferences_then}
    for subject, item in section.items.items():
        now = stored.get(subject)
        if now is not None and now.forgotten and not now.key and now.position > section.synced.position:
            base[subject] = now.model_copy(update=item._asdict())
    return base


def _write(core: Core, page: str, change: FileChange, stored: Preference | None) -> Step[None]:
    revision = stored.version if stored is not None else 0
    arguments = {"key": change.key, "revision": revision}
    if change.text is None:
        yield from preferences.forget(core, page, arguments)
    else:
        arguments |= {"text": change.text}
        yield from preferences.write(core, page, preferences.RememberPreference, arguments)


def _refusal(path: Path, problem: str) -> InvalidField:
    return InvalidField("file", f"{path}: {problem}")


def _read(path: Path) -> tuple[Path, bytes | None]:
    """Return the file that a path leads to, and its bytes; None if it does not exist.

    A link may lead to a file beside it, such as CLAUDE.md to AGENTS.md, but not elsewhere: that may be someone else's.
    """
    target = path
    try:
        target = path.resolve()
        if target.parent != path.parent.resolve():
            raise _refusal(path, f"is a link to {shown(str(target))}, in another directory; name that file")
        with open(target, "rb", opener=_open_at_once) as file:  # Path.open takes no opener
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise _refusal(path, "is not a regular file; name a text file")
            found = file.read(_MAX_BYTES + 1)
    except InvalidField:
        raise
    except FileNotFoundError:
        return target, None
    except (OSError, ValueError, RuntimeError) as problem:  # RuntimeError: a loop of links
        reason = getattr(problem, "strerror", None) or problem
        raise _refusal(path, f"cannot be read: {reason}; check the path") from None
    if len(found) > _MAX_BYTES:
        raise _refusal(path, f"is larger than {_MAX_BYTES // 1024**2} MiB; name a text file")
    return target, found


def _open_at_once(name: str, flags: int) -> int:
    """Open a file without waiting for the writer of a pipe."""
    return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))


def _decoded(path: Path, content: bytes) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        byte = f"the byte 0x{content[problem.start]:02x} in line {line}"
        raise _refusal(path, f"is not UTF-8 ({byte}); save it as UTF-8, then sync again") from None
    if "\0" in text:
        raise _refusal(path, "is not a text: it has null bytes; save it as UTF-8, then sync again")
    return text


def _check_writable(path: Path, target: Path) -> None:
    """Raise InvalidField if the file cannot be replaced, before anything is written to the bus."""
    if not os.access(target.parent, os.W_OK | os.X_OK):
        reason = "is not writable" if target.parent.is_dir() else "does not exist"
        raise _refusal(path, f"cannot be written: the directory {shown(str(target.parent))} {reason}")


def _replace(path: Path, target: Path, before: bytes | None, after: bytes) -> bool:
    """Replace a file; return False if someone else has changed it meanwhile. Raises InvalidField."""
    try:
        return replace_unchanged_file(target, after, before, lambda: _read(path) == (target, before))
    except OSError as problem:
        reason = f"cannot be written: {problem.strerror or problem}"
        raise _refusal(path, f"{reason}; it is unchanged, and the bus has its changes. Sync again") from None
