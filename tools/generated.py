"""Writing generated files, or saying which are stale: what `make generate` and `make check` do."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]


def write_or_check(texts: Mapping[Path, str]) -> int:
    """Write the files whose text differs, or with `--check` say which those are; return the exit code."""
    stale = [file for file, text in texts.items() if not file.exists() or file.read_text("utf-8") != text]
    if "--check" not in sys.argv:
        for file in stale:
            file.write_text(texts[file], "utf-8")
        return 0
    if stale:
        names = ", ".join(str(file.relative_to(ROOT)) for file in stale)
        print(f"stale: {names}; run `make generate`", file=sys.stderr)
    return 1 if stale else 0
