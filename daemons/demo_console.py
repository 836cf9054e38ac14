"""The demo in a browser: a server of its page, and a pace that people can follow."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import scratchbus

from .demo_crew import Crew

Serve = Callable[[Any], "AbstractContextManager[scratchbus.HttpServing]"]  # as text: it needs the extra `http`
"""A context manager that serves over HTTP: `scratchbus.serving_http`."""

PAUSE = 4.0
"""The seconds between two steps, so that people can follow."""

PORTIONS = 12
"""The number of steps in which the log is read."""


@contextmanager
def console(serve: Serve, settings: dict[str, Any]) -> Iterator[str]:
    """Serve the console while the `with` lasts, and open it if this is a terminal; return its URL."""
    with serve(scratchbus.HttpOptions(where="0", settings=settings, source="demo")) as serving:
        if sys.stdout.isatty():
            webbrowser.open(serving.to_open)
        yield serving.to_open


def portions(log: Path, copy: Path, crew: Crew, seconds: float) -> Iterator[None]:
    """Copy a log in portions, with a pause after each; readers of the copy run concurrently."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    size = max(1, -(-len(lines) // PORTIONS))
    with copy.open("a", encoding="utf-8") as file:
        for start in range(0, len(lines), size):
            file.writelines(lines[start : start + size])
            file.flush()
            yield
            crew.pause(seconds)
