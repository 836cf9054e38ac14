"""JSON that is safe to print, and that standard output can encode."""

from __future__ import annotations

import sys

import scratchbus


def escaped_json(document: str) -> str:
    """Return an equal JSON document with an escape for each character that cannot be printed."""
    document = scratchbus.escaped(document)
    if document.isascii() or (sys.stdout.encoding or "utf-8").lower().startswith("utf"):
        return document
    import json  # late, as all that `--help` does not need

    return "".join(char if char.isascii() else json.dumps(char)[1:-1] for char in document)
