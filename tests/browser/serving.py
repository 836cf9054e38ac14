"""A `scratchbus serve` process."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Served:
    """A server: the URL of its bus, the URL that people open, its origin, and its process."""

    url: str
    to_open: str
    origin: str
    process: subprocess.Popen[str]


@contextmanager
def serve(url: str, port: int = 0, tokens: Path | None = None) -> Iterator[Served]:
    """Serve a bus while the block runs; port 0 means any free port. With `tokens`, callers need a token of it."""
    command = [sys.executable, "-m", "scratchbus.cli", "--url", url, "serve", "--listen", str(port), "--no-open"]
    command += [] if tokens is None else ["--tokens", str(tokens)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = ""
            while (found := re.search(r"console: +(http://\S+)", said)) is None:
                line = process.stdout.readline()
                assert line, f"the server ended: {said}"
                said += line
            yield Served(url, found[1], found[1].partition("/?")[0].rstrip("/"), process)
        finally:
            process.terminate()
