"""The log watcher: publishes what its rules find in a log file."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from scratchbus.errors import EventIdReused, FileGone, InvalidField, NotFound, UnknownType
from scratchbus.roles.log_file import Line
from scratchbus.roles.memory import Memory, MemoryFile
from scratchbus.roles.rules import Rule
from scratchbus.roles.tailer import Tailer

if TYPE_CHECKING:
    from scratchbus import Bus, Page

_LOOK = 0.2  # seconds between two looks at the file
_REMEMBER = 0.5  # seconds of reading between two writes of the memory

logger = structlog.get_logger(__name__)


class Logwatch:
    """Publishes an observation for each line that a rule matches, and then remembers how far it read.

    A line's event ids derive from its file's identity, its offset and the rule, so what is published again after a
    crash, or since the file is read again, is counted once. A bus that does not know what was published last is
    another one, or was emptied: it gets the file from the start.
    """

    def __init__(
        self, page: str, rules: Sequence[Rule], log: Path, memory: MemoryFile, from_start: bool = False
    ) -> None:
        self._name = page
        self._rules = rules
        self._log = log
        self._memory = memory
        self._remembered = memory.load()
        self._last_id = self._remembered.last_id
        self._tailer = Tailer(log, self._remembered.place, from_start)
        self._remembered_at = time.monotonic()

    def run(self, bus: Bus, stop: threading.Event, follow: bool) -> None:
        """Publish what the log holds and, when following, whatever is written to it until stopped.

        Raises FileGone when there is no log and it is not followed; else the log is waited for. Raises UnknownType
        when a rule names a type that the bus does not know. What was published before an error is remembered, so that
        running again, on another connection, goes on from there.
        """
        page = bus.page(self._name)
        self._check_types(bus)
        if not self._is_known(page):
            self._tailer.close()
            self._tailer = Tailer(self._log, self._tailer.place, from_start=True)
        is_awaited = False
        try:
            while not stop.is_set():
                try:
                    self._publish_lines(page, stop, final=not follow)
                except FileGone:
                    if not follow:
                        raise
                    if not is_awaited:
                        logger.warning("there is no log yet; waiting for it", log=str(self._log))
                    is_awaited = True
                if not follow:
                    return
                stop.wait(_LOOK)
        finally:
            self._tailer.close()

    def _check_types(self, bus: Bus) -> None:
        bus.refresh_types()
        for rule in self._rules:
            if rule.type is not None:
                bus.types.get(rule.type)

    def _publish_lines(self, page: Page, stop: threading.Event, final: bool) -> None:
        published = 0
        try:
            for line in self._tailer.lines(final):
                for rule in self._rules:
                    published += self._publish(page, line, rule)
                if stop.is_set():
                    break
                if time.monotonic() - self._remembered_at >= _REMEMBER:
                    self._remember()
        finally:
            self._remember()
        if published:
            logger.info("published", sightings=published, log=str(self._log))

    def _publish(self, page: Page, line: Line, rule: Rule) -> bool:
        """Publish what a rule finds in a line, if anything. One that the bus refuses is logged and left out."""
        seen = rule.sighting(line.text)
        if seen is None:
            return False
        try:
            observation = page.add(**seen, event_id=f"logwatch:{line.identity}:{line.offset}:{rule.name}")
        except EventIdReused:
            return False  # counted before the rule was changed, or before the line was whole
        except (InvalidField, UnknownType) as problem:
            if isinstance(problem, UnknownType) and rule.type is not None:
                raise  # the type was taken away meanwhile, which is no fault of the line
            logger.warning("left out", rule=rule.name, log=str(self._log), offset=line.offset, reason=str(problem))
            return False
        self._last_id = observation.id
        return True

    def _remember(self) -> None:
        now = Memory(self._tailer.place, self._last_id)
        if now != self._remembered:
            self._memory.save(now)
            self._remembered = now
        self._remembered_at = time.monotonic()

    def _is_known(self, page: Page) -> bool:
        """Say whether the page knows what was published last, if anything was."""
        if self._last_id is None or page.get(self._last_id) is not None:
            return True
        try:
            return bool(page.history(self._last_id))  # of what has left the page
        except NotFound:
            return False
