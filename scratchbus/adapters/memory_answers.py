"""The answers of Anthropic's memory tool, word for word from its documentation.

https://platform.claude.com/docs/en/agents-and-tools/tool-use/memory-tool
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import scratchbus
from scratchbus.errors import InvalidField, ScratchbusError, shown

ROOT: Final = "/memories"
"""The root directory of all paths."""

MAX_LINES: Final = 999_999
"""The most lines of a file that can be viewed."""

_BEGIN_WITH_ROOT: Final = f", and begin it with {ROOT}/ here"
_DEEP: Final = 2  # levels of directories that a listing shows
_CONTEXT_LINES: Final = 2  # lines around an edit that are shown with it
_HIDDEN: Final = "node_modules"
_FIELDS: Final[dict[str, dict[str, type]]] = {
    "view": {"path": str},
    "create": {"path": str, "file_text": str},
    "str_replace": {"path": str, "old_str": str, "new_str": str},
    "insert": {"path": str, "insert_line": int, "insert_text": str},
    "delete": {"path": str},
    "rename": {"old_path": str, "new_path": str},
}
"""The fields of each command."""


class Answer(NamedTuple):
    """The content of a tool result, and whether it is an error (`is_error`)."""

    text: str
    is_error: bool = False


class MemoryToolError(Exception):
    """The tool answers with an error: its text."""


def wrong_bus(bus: object) -> InvalidField:
    """Return the error for a tool that is made with anything but the bus it needs."""
    return InvalidField("bus", f"{shown(bus)} does not fit; MemoryTool needs a Bus, AsyncMemoryTool an AsyncBus")


def parse(arguments: object) -> Mapping[str, Any]:
    """Return the input of the tool if it is a command with all its fields. Raises MemoryToolError."""
    if not isinstance(arguments, Mapping):
        raise MemoryToolError(
            f"Error: {shown(arguments)} is not an input of the memory tool; give an object with a command"
        )
    command = arguments.get("command")
    if not isinstance(command, str) or command not in _FIELDS:
        raise MemoryToolError(f"Error: Unknown command {shown(command)}; use one of: {', '.join(_FIELDS)}")
    for name, kind in _FIELDS[command].items():
        value = arguments.get(name, "" if name == "new_str" else None)  # to replace by nothing is to delete
        if not isinstance(value, kind) or isinstance(value, bool):
            raise MemoryToolError(f"Error: Invalid `{name}` parameter: {shown(value)}. {command} needs {_NAMES[kind]}.")
    return arguments


_NAMES: Final = {str: "a text", int: "a whole number"}


def relative(path: str) -> str:
    """Return a path relative to the memory directory, "" for the directory itself. Raises MemoryToolError."""
    if path.rstrip("/") == ROOT:
        return ""
    if not path.startswith(f"{ROOT}/"):
        raise MemoryToolError(f"Error: Path must start with {ROOT}, got: {path}")
    relative_path = path.removeprefix(f"{ROOT}/")
    return relative_path.removesuffix("/")


def refused(error: ScratchbusError) -> Answer:
    """Return the answer for an error of the texts, whose paths are relative to the memory directory."""
    is_about_path = isinstance(error, InvalidField) and error.field in ("path", "to")
    return Answer(f"Error: {error}{_BEGIN_WITH_ROOT if is_about_path else ''}", is_error=True)


def listing(path: str, texts: Sequence[scratchbus.Text]) -> str:
    """Return the listing of a directory: two levels, with sizes, without hidden entries."""
    at = relative(path)
    prefix = f"{at}/" if at else ""
    sizes: dict[str, int] = {}
    total = 0
    for text in texts:
        names = text.path.removeprefix(prefix).split("/")
        size = len(text.content.encode())
        total += size
        if any(name.startswith(".") or name == _HIDDEN for name in names):
            continue
        for depth in range(1, min(len(names), _DEEP) + 1):
            entry = "/".join(names[:depth]) + ("/" if depth < len(names) else "")
            sizes[entry] = sizes.get(entry, 0) + size
    where = path.rstrip("/")
    head = f"Here're the files and directories up to 2 levels deep in {where}, excluding hidden items and node_modules:"
    lines = [f"{_size(total)}\t{where}", *(f"{_size(sizes[entry])}\t{where}/{entry}" for entry in sorted(sizes))]
    return "\n".join([head, *lines])


def _size(count: int) -> str:
    """Return a number of bytes as people write it: 512B, 1.5K, 2M."""
    size, unit = float(count), "B"
    for unit in "BKMG":
        if size < 1024 or unit == "G":
            break
        size /= 1024
    return f"{size:.0f}{unit}" if size == int(size) else f"{size:.1f}{unit}"


def content(path: str, text: str, view_range: object = None) -> str:
    """Return a file with line numbers, or some of its lines. Raises MemoryToolError."""
    lines = text.split("\n")
    if len(lines) > MAX_LINES:
        raise MemoryToolError(f"File {path} exceeds maximum line limit of 999,999 lines.")
    first, last = _range(view_range, len(lines))
    return f"Here's the content of {path} with line numbers:\n{_numbered(lines, first, last)}"


def _range(view_range: object, count: int) -> tuple[int, int]:
    """Return the first and last line to show, from 1."""
    if view_range is None:
        return 1, count
    if not (
        isinstance(view_range, list | tuple) and len(view_range) == 2 and all(type(each) is int for each in view_range)
    ):
        raise MemoryToolError(
            f"Error: Invalid `view_range` parameter: {shown(view_range)}. It should be two whole numbers."
        )
    first, last = max(1, view_range[0]), count if view_range[1] == -1 else view_range[1]
    if not first <= last or first > count:
        raise MemoryToolError(
            f"Error: Invalid `view_range` parameter: {list(view_range)}. It should be within the range of lines of the"
            f" file: [1, {count}]"
        )
    return first, min(last, count)


def _numbered(lines: Sequence[str], first: int, last: int) -> str:
    return "\n".join(f"{number:6}\t{lines[number - 1]}" for number in range(first, last + 1))


def missing(path: str) -> str:
    """Return the answer of `view` for a missing path."""
    return f"The path {path} does not exist. Please provide a valid path."


def replaced(before: str, text: str, old: str, new: str) -> str:
    """Return the answer of `str_replace`: the lines around the edit, in their new form."""
    index = before.find(old) if old else -1
    if index < 0 or not text.startswith(new, index):  # others have edited it meanwhile
        index = max(0, text.find(new))
    lines = text.split("\n")
    first = text.count("\n", 0, index) + 1
    last = first + new.count("\n")
    excerpt = _numbered(lines, max(1, first - _CONTEXT_LINES), min(len(lines), last + _CONTEXT_LINES))
    return f"The memory file has been edited.\n{excerpt}"


def check_once(path: str, text: str, old: str) -> None:
    """Raise MemoryToolError, as `str_replace` does, unless a part occurs exactly once."""
    count = text.count(old) if old else 0
    if count == 0:
        raise MemoryToolError(f"No replacement was performed, old_str `{old}` did not appear verbatim in {path}.")
    if count > 1:
        lines = ", ".join(map(str, dict.fromkeys(_lines_with(text, old))))
        raise MemoryToolError(
            f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: {lines}."
            " Please ensure it is unique"
        )


def _lines_with(text: str, old: str) -> list[int]:
    found, at, line, before = [], text.find(old), 1, 0
    while at >= 0:
        line += text.count("\n", before, at)
        found.append(line)
        before, at = at, text.find(old, at + 1)
    return found


def check_line(line: int, text: str) -> None:
    """Raise MemoryToolError, as `insert` does, for a line outside the text."""
    count = len(text.removesuffix("\n").split("\n")) if text else 0
    if not 0 <= line <= count:
        raise MemoryToolError(
            f"Error: Invalid `insert_line` parameter: {line}. It should be within the range of lines of the file:"
            f" [0, {count}]"
        )
