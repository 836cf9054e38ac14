"""The rules of a project for an agent: `CLAUDE.md`, `AGENTS.md` and `.claude/rules/*.md`."""

from __future__ import annotations

import os
import stat
from codecs import BOM_UTF8
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

MAX_FILES: Final = 50
"""The most files of rules."""

MAX_BYTES: Final = 32 * 1024
"""The most bytes of one file that are shown."""

MAX_TOTAL: Final = 128 * 1024
"""The most bytes of all files together."""

_FILES: Final = ("CLAUDE.md", "AGENTS.md")
_FOLDER: Final = ".claude/rules"


class Rule(NamedTuple):
    """A file of rules: its path in the project, the text to show, and the SHA-256 of the whole file.

    `problem` says why the text is cut or empty.
    """

    path: str
    text: str
    sha256: str
    problem: str = ""

    @property
    def section(self) -> str:
        """The text as a section of a context."""
        problem = f" ({self.problem})" if self.problem else ""
        return f"## Rules: {self.path}{problem}\n{self.text}".rstrip("\n")


def read_rules(directory: str | Path) -> list[Rule]:
    """Return the rules of a project, in the order in which they are shown.

    A file is cut at 32 KiB, and all together at 128 KiB. Duplicates are left out, whether copies or links, as are links
    that lead outside the project, and files whose names are not printable. A file that cannot be read has a `problem`
    and no text.
    """
    root = Path(directory).resolve()
    rules: list[Rule] = []
    seen: set[str] = set()
    remaining = MAX_TOTAL
    for path in _paths(root):
        if len(rules) == MAX_FILES:
            break
        rule = _read(root, path, remaining)
        if rule is not None and (rule.sha256 not in seen or not rule.sha256):
            seen.add(rule.sha256)
            remaining -= len(rule.text.encode())
            rules.append(rule)
    return rules


def _paths(root: Path) -> Iterator[str]:
    yield from _FILES
    try:
        names = [path.name for path in (root / _FOLDER).iterdir() if path.suffix == ".md"]
    except OSError:
        return
    yield from (f"{_FOLDER}/{name}" for name in sorted(names) if name.isprintable())


def _read(root: Path, path: str, remaining: int) -> Rule | None:
    """Return a file as a rule; None if it does not exist, or is outside of the project."""
    try:
        target = (root / path).resolve()
        if not target.is_relative_to(root):
            return None
        file = os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except (OSError, RuntimeError) as problem:
        return Rule(path, "", "", f"cannot be read: {getattr(problem, 'strerror', None) or problem}")
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        return None
    with os.fdopen(file, "rb") as stream:
        digest, data = sha256(), b""
        while block := stream.read(1024 * 1024):
            digest.update(block)
            data = data or block[: MAX_BYTES + 1]
    limit = min(MAX_BYTES, max(remaining, 0))
    checksum, encoded = digest.hexdigest(), data.removeprefix(BOM_UTF8)
    try:
        text = encoded.decode()
    except UnicodeDecodeError as problem:
        if len(data) <= MAX_BYTES or problem.start < len(encoded) - 3:  # else the cut is within a character
            return Rule(path, "", checksum, "is not UTF-8 text; save it as UTF-8")
        text = encoded[: problem.start].decode()
    if "\0" in text:
        return Rule(path, "", checksum, "is binary")
    if len(data) <= limit:
        return Rule(path, text, checksum)
    return Rule(path, text.encode()[:limit].decode(errors="ignore"), checksum, f"cut after {limit:,} bytes")
