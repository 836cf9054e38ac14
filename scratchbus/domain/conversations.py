"""The documents of conversations, files and texts."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from scratchbus.domain.digest import short_hash
from scratchbus.domain.document import Remembered
from scratchbus.domain.values import is_type_name
from scratchbus.errors import InvalidField, shown

SUMMARY = "summary"
"""The role of a turn that replaces others."""

MAX_COMPACTED = 10_000
"""The most turns that one compaction may replace."""

MAX_PATH = 1_024
"""The most bytes in a path."""

_MAX_NAME = 255  # bytes in a file's name
_MAX_DEPTH = 32  # nested directories


class Turn(Remembered):
    """A turn of a session's conversation; with the role `summary`, the summary of the turns that it `replaces`.

    `source` is who appended it, `tokens` its length, if known, and `task` the task that it belongs to, if named.
    """

    id: str
    role: str
    content: str
    tokens: int | None = None
    task: str | None = None
    replaces: list[str] = Field(default_factory=list)
    source: str


class ScratchFile(Remembered):
    """A private file of a session: its path, its size in bytes, its SHA-256, and who wrote it."""

    id: str
    path: str
    size: int = 0
    sha256: str = ""
    source: str
    deleted: bool = False


class Text(Remembered):
    """A text of a scope, by its path; `source` is who wrote it last."""

    id: str
    path: str
    content: str = ""
    source: str
    deleted: bool = False


def check_role(role: object) -> str:
    """Return the role of a turn. Raises InvalidField."""
    if not isinstance(role, str) or not is_type_name(role):
        raise InvalidField("role", f"{shown(role)} is not a role; use a word such as user, assistant, system or tool")
    if role == SUMMARY:
        raise InvalidField("role", "summary is reserved for summaries that replace other turns; call compact")
    return role


_ALLOWED: Final = dict.fromkeys(
    map(ord, "\u00a0\u1680\u202f\u205f\u3000\u200c\u200d" + "".join(map(chr, range(0x2000, 0x200B))))
)
"""Spaces, and what joins or separates letters and emoji: not printable, but common in the names of files."""


def check_path(path: object, field: str = "path") -> str:
    """Return the path of a file or text: names between slashes, none empty, `.` or `..`. Raises InvalidField."""
    if not isinstance(path, str):
        raise InvalidField(field, f"{shown(path)} is not a path")
    if problem := _problem_of(path):
        raise InvalidField(field, f"{shown(path)} {problem}; use a relative path such as scripts/check.py")
    return path


def _problem_of(path: str) -> str:
    names = path.split("/")
    if path.startswith("/"):
        return "is absolute"
    if any(name.translate(_ALLOWED) in ("", ".", "..") for name in names):
        return "has an empty name, or the name . or .."
    if not path.translate(_ALLOWED).isprintable() or "\\" in path:
        return "has a backslash, or a character that is not printable"
    try:
        sizes = [len(name.encode()) for name in names]
    except UnicodeEncodeError:
        return "is not valid Unicode"
    if max(sizes) > _MAX_NAME or sum(sizes) + len(names) - 1 > MAX_PATH or len(names) > _MAX_DEPTH + 1:
        return f"is too long: a name has at most {_MAX_NAME} bytes, a path {MAX_PATH} and {_MAX_DEPTH} directories"
    return ""


def subject_of(prefix: str, path: str) -> str:
    """Return the subject of a path: the prefix, and a hash of the path."""
    return prefix + short_hash(path)
