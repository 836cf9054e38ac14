"""The live picture of a page on a terminal."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import deque
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from scratchbus import Event, Observation
from scratchbus.cli import columns
from scratchbus.cli.common import Place
from scratchbus.cli.follow import open_ones
from scratchbus.cli.output import Output
from scratchbus.cli.pacing import follow
from scratchbus.cli.text import plural

_TICK = 0.1  # seconds within which what happens at once is drawn at once
_AGES = 1.0  # seconds after which ages are drawn anew
_LAST = 5  # events shown below the page


class Picture:
    """What is drawn: the open observations by priority, and below them the last events."""

    def __init__(self, place: Place, out: Output) -> None:
        self._page = place.page
        self._out = out
        self._events: deque[Event] = deque(maxlen=_LAST)
        self._open: list[Observation] = []

    def look(self) -> None:
        """Ask the bus how the page is, as far as there is room for it."""
        self._open = open_ones(self._page, self._out.console.height)

    def happened(self, event: Event) -> None:
        """Take note of an event."""
        self._events.append(event)

    def drawn(self) -> RenderableType:
        """Return the picture, as high as the terminal is."""
        room = max(1, self._out.console.height - len(self._events) - 6)
        shown, is_cut = self._open[:room], len(self._open) > room
        count = "the most urgent ones" if is_cut else f"{plural(len(shown), 'observation')} open"
        title = Text.assemble(
            ("scratchbus ", "bold"),
            (self._page.name, "bold cyan"),
            f"  {count}  ",
            (f"{datetime.now(UTC).astimezone():%H:%M:%S}, Ctrl-C ends", "dim"),
            no_wrap=True,
            overflow="ellipsis",
        )
        parts: list[RenderableType] = [title, Text()]
        if shown:
            rows = columns.rows_of(columns.OBSERVATION, shown)
            parts.append(self._out.rich_table(columns.heads(columns.OBSERVATION), rows))
        else:
            parts.append(Text("Nothing is open; what is added shows up here", style="dim"))
        if is_cut:
            parts.append(Text("… and more: see `scratchbus active`", style="dim"))
        if self._events:
            rows = columns.rows_of(columns.HAPPENED, self._events)
            parts += [Text(), self._out.rich_table(columns.heads(columns.HAPPENED), rows)]
        return Group(*parts)


def run_live(place: Place, out: Output) -> None:
    """Draw the page until interrupted or terminated. The bus is asked only when something has happened."""
    picture, stop = Picture(place, out), threading.Event()
    begun = place.bus.position()
    picture.look()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())  # so that the terminal is given back
    with Live(console=out.console, screen=True, auto_refresh=False) as live:
        live.update(picture.drawn(), refresh=True)
        is_stale, drawn_at = False, time.monotonic()
        for event in follow(place.bus, stop, after=begun, page=place.page.name, every=_TICK):
            if event is not None:
                picture.happened(event)
                is_stale = True
                continue
            if is_stale:
                picture.look()
            if is_stale or time.monotonic() - drawn_at >= _AGES:
                live.update(picture.drawn(), refresh=True)
                is_stale, drawn_at = False, time.monotonic()
    sys.exit(128 + signal.SIGTERM)  # as shells have it
