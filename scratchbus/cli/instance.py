"""The instance that the commands of a terminal share, so that a claim holds from one command to the next."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_KEY = re.compile("[0-9a-f]{64}")


def terminal_instance(directory: Path) -> str:
    """Return the instance of all commands of this user in one login session.

    It is a secret: part of it is a random key, which the directory keeps for this user alone. Where none can be kept,
    each command has an instance of its own, as has each login session. A script that starts every command in a session
    of its own sets `--instance`.
    """
    try:
        key = _kept_key(directory)
    except OSError:
        key = os.urandom(32).hex()
    return f"{key} {os.uname().nodename} user {os.getuid()} session {os.getsid(0)}"


def _kept_key(directory: Path) -> str:
    """Return this user's key; create it if there is none, or if others may have read it."""
    path = directory / f"terminal-{os.getuid()}.key"
    if (key := _read(path)) is not None:
        return key
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not any(directory.iterdir()):
        directory.chmod(0o700)  # like the embedded engine, which refuses a directory in use that is open to others
    path.unlink(missing_ok=True)
    temporary = directory / f"{path.name}.{os.urandom(8).hex()}"
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(os.urandom(32).hex())
        try:
            os.link(temporary, path)
        except FileExistsError:
            pass  # another command was faster
        except OSError:
            temporary.replace(path)  # a file system without hard links
    finally:
        temporary.unlink(missing_ok=True)
    return _read(path) or os.urandom(32).hex()


def _read(path: Path) -> str | None:
    """Return the key in a file that belongs to this user alone, None for any other file, or none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            return None
        text = file.read(100).decode("ascii", "replace")
    return text if _KEY.fullmatch(text) else None
