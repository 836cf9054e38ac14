"""Files that are replaced as a whole, and only if nobody else has changed them since they were read."""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import Final

_NEW_MODE: Final = 0o666
_MAX_AGE: Final = 3600  # seconds; a temporary file is in use for a moment
_MAX_NAME: Final = 100  # characters of a file's name in the names of its temporary files


def replace_file(path: Path, data: bytes, new_mode: int = _NEW_MODE) -> None:
    """Write a file whole or not at all; one that is there keeps its mode. Raises OSError."""
    mode = _mode(path)
    with _written_beside(path, data, mode, new_mode) as temporary:
        temporary.replace(path)


def replace_unchanged_file(path: Path, data: bytes, seen: bytes | None, is_as_seen: Callable[[], bool]) -> bool:
    """Write a file whole; return False, and leave it alone, if someone else has changed it. Raises OSError.

    `seen` is its content when it was read, None if it did not exist; `is_as_seen` reads it again. It keeps its mode. If
    someone writes into it just as it is replaced, it is put back.
    """
    _delete_leftovers(path)
    mode = _mode(path)
    if (mode is None) is not (seen is None):
        return False
    with _written_beside(path, data, mode, _NEW_MODE) as temporary:
        former = temporary.with_suffix(".old")  # another name of the file that is replaced
        try:
            if seen is not None:
                with suppress(OSError):  # not every file system has hard links
                    os.link(path, former, follow_symlinks=False)
            if not is_as_seen() or not _has(former, seen):
                return False
            if seen is not None:
                temporary.replace(path)
            elif not _is_created(path, temporary):
                return False
            if not _has(former, seen):
                former.replace(path)
                return False
        finally:
            with suppress(OSError):
                former.unlink()
    return True


def _mode(path: Path) -> int | None:
    """Return the permissions of a file; None if it does not exist."""
    try:
        return stat.S_IMODE(path.lstat().st_mode)
    except FileNotFoundError:
        return None


@contextmanager
def _written_beside(path: Path, data: bytes, mode: int | None, new_mode: int) -> Iterator[Path]:
    """Write a temporary file beside another, with its permissions, to be renamed while the `with` lasts."""
    temporary = path.with_name(f".{path.name[:_MAX_NAME]}.{secrets.token_hex(6)}.part")
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, new_mode if mode is None else mode)
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(data)
            stream.flush()
            if mode is not None:
                os.fchmod(stream.fileno(), mode)  # whatever the umask
            os.fsync(stream.fileno())
        yield temporary
    finally:
        with suppress(OSError):
            temporary.unlink()


def _has(former: Path, data: bytes | None) -> bool:
    """Return whether a file still has these bytes, as far as one can tell: there may be no such name."""
    return not former.exists() or former.read_bytes() == data


def _is_created(path: Path, temporary: Path) -> bool:
    """Give a new file its name; return False if another file has it."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError:  # not every file system has hard links
        temporary.replace(path)
    return True


def _delete_leftovers(path: Path) -> None:
    """Delete the temporary files that killed writers left an hour ago or earlier."""
    for each in path.parent.glob(f".{escape(path.name[:_MAX_NAME])}.{'[0-9a-f]' * 12}.*"):
        with suppress(OSError):
            status = each.stat()
            named = {".part": status.st_mtime, ".old": status.st_ctime}.get(each.suffix)  # a link keeps its mtime
            if named is not None and time.time() - named > _MAX_AGE:
                each.unlink()
