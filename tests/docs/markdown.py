"""Parse fenced blocks and tables of the project's documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`]+)`")
_CELL = re.compile(r"(?<!\\)\|")


class Block(NamedTuple):
    """A fenced block: its language, its text, and the number of its first line in the file."""

    language: str
    text: str
    line: int


def blocks(text: str, language: str) -> list[Block]:
    """Return the fenced blocks of a language, in order."""
    found = (Block(match[1], match[2], text.count("\n", 0, match.start(2)) + 1) for match in _FENCE.finditer(text))
    return [block for block in found if block.language == language]


def rows(text: str, heading: str | None = None) -> Iterator[list[str]]:
    """Yield the rows of all tables, or of those below a heading, without the header rows."""
    if heading is not None:
        text = text.split(f"\n{heading}\n", 1)[1].split("\n## ", 1)[0]
    before: list[list[str]] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            before.append([cell.strip() for cell in _CELL.split(line)[1:-1]])
        else:
            yield from before[2:]  # after the header row and its separator
            before = []


def codes(cell: str) -> list[str]:
    """Return the inline code in a cell."""
    return _CODE.findall(cell)
