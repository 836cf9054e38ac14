"""The events of conversations, of files and of texts.

Their subjects are `turn_<ms>`, and `file_` or `text_` and a hash of the path.
"""

# no `from __future__ import annotations`: pydantic evaluates strings again for every class that inherits them

from typing import Literal

from scratchbus.domain.event import Event
from scratchbus.domain.values import Whole


class TurnAppended(Event):
    """A turn was appended to the session's conversation; `tokens` is its length, if known.

    `task` is the subject of the task that it belongs to, if the caller named one.
    """

    kind: Literal["turn_appended"] = "turn_appended"
    role: str
    content: str
    tokens: Whole | None = None
    task: str | None = None


class TurnsCompacted(Event):
    """A summary replaced the turns with these ids, which may include summaries."""

    kind: Literal["turns_compacted"] = "turns_compacted"
    turns: list[str]
    content: str
    tokens: Whole | None = None


class FileWritten(Event):
    """A file was written; its content is only on disk."""

    kind: Literal["file_written"] = "file_written"
    path: str
    size: Whole
    sha256: str


class FileRemoved(Event):
    """A file was deleted, or found missing, or evicted because of its age or the size of all files."""

    kind: Literal["file_removed"] = "file_removed"
    path: str
    why: Literal["deleted", "missing", "age", "size"] = "deleted"


class TextWritten(Event):
    """A text was written as a whole; `source` is its previous path, if it was moved."""

    kind: Literal["text_written"] = "text_written"
    path: str
    content: str
    source: str | None = None


class TextEdited(Event):
    """A part of a text was edited: `find`, which occurs once, was replaced by `content`, or `content` was inserted.

    `line` is the number of lines before the insertion.
    """

    kind: Literal["text_edited"] = "text_edited"
    find: str | None = None
    line: Whole | None = None
    content: str = ""


class TextDeleted(Event):
    """A text was deleted; `target` is its new path, if it was moved."""

    kind: Literal["text_deleted"] = "text_deleted"
    target: str | None = None
