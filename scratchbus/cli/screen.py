"""The live screen of `watch`: a page, and the last events below it."""

from __future__ import annotations

import signal
import sys
import threading
from collections import deque
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

import scratchbus
from scratchbus.cli.event_view import RECENT, columns_of
from scratchbus.cli.follow import list_open
from scratchbus.cli.invocation import Invocation, OpenPage
from scratchbus.cli.observation_view import columns_at
from scratchbus.cli.text import plural
from scratchbus.errors import ScratchbusError

_PER_SECOND = 5  # how often the screen is drawn
_EVENT_ROWS = 5  # events shown below the page


class Screen:
    """The open observations of a page by priority, and below them the last events."""

    def __init__(self, opened: OpenPage, invocation: Invocation) -> None:
        self._page = opened.page
        self._out = invocation.out
        self._whole = invocation.hint("active")
        self._events: deque[scratchbus.Event] = deque(maxlen=_EVENT_ROWS)
        self._open = list_open(self._page, self._out.console.height)
        self._is_stale = False

    def add(self, event: scratchbus.Event) -> None:
        """Show an event, and the page after it, when the screen is next drawn."""
        self._events.append(event)
        self._is_stale = True

    def draw(self) -> RenderableType:
        """Return the screen, as high as the terminal is. The bus is asked only after an event."""
        height = self._out.console.height
        if self._is_stale:
            self._is_stale = False
            try:
                self._open = list_open(self._page, height)
            except ScratchbusError:
                self._is_stale = True  # the thread that reads the events gets the error too, and reports it
        events = list(self._events)
        max_rows = max(1, height - len(events) - 6)
        shown, is_cut = self._open[:max_rows], len(self._open) > max_rows
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
            parts.append(self._out.rich_table(columns_at(), shown))
        else:
            parts.append(Text("Nothing is open; new observations appear here", style="dim"))
        if is_cut:
            parts.append(Text(f"… and more: see {self._whole}", style="dim"))
        if events:
            parts += [Text(), self._out.rich_table(columns_of(*RECENT), events)]
        return Group(*parts)


def run_screen(opened: OpenPage, invocation: Invocation) -> None:
    """Draw the page until interrupted or terminated."""
    start, stop = opened.bus.position(), threading.Event()
    screen = Screen(opened, invocation)
    signal.signal(signal.SIGTERM, lambda *_: stop.set())  # so that the terminal is restored
    console = invocation.out.console
    with Live(console=console, screen=True, refresh_per_second=_PER_SECOND, get_renderable=screen.draw):
        for event in opened.bus.events(start, follow=True, pages=[opened.page.name], stop=stop):
            screen.add(event)
    sys.exit(128 + signal.SIGTERM)  # the exit code that shells give a signal
