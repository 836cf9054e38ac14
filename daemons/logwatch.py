"""The log watcher: publishes the matches of its rules in a log file, or in the journal of a systemd unit."""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import structlog

from scratchbus import Bus, Page
from scratchbus.daemon import Daemon, daemon, file_option
from scratchbus.errors import (
    ArchiveDamaged,
    ArchiveForeign,
    EventIdReused,
    FileGone,
    InvalidField,
    InvalidInput,
    NotFound,
    PositionLost,
    UnknownType,
)
from scratchbus.settings import shipped

if __name__ == "__main__" and not __package__:  # `python daemons/logwatch.py`: name the package (PEP 366)
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    __package__ = "daemons"

from .bookmark import Bookmark, BookmarkFile, default_path
from .fail2ban import FilterRule, read_filter
from .journal import Journal, JournalPosition, JournalUnit
from .log_file import FilePosition, Line
from .rules import Rule, read_rules
from .tailer import Tailer

_LOOK_INTERVAL = 0.2  # seconds between two looks at the file
_SAVE_INTERVAL = 0.5  # seconds of reading between two writes of the bookmark

logger = structlog.get_logger(__name__)


class Logwatch:
    """Publishes an observation for each line that a rule matches, then stores how far it read.

    The event id of a line derives from the page, the identity of its file, its offset and the rule. A line that is
    published again, after a crash or because the file is read again, is therefore counted once. If the bus does not
    know the last published observation, it is another bus or was emptied, and the file is read from its start.
    """

    def __init__(
        self,
        page: str,
        rules: Sequence[Rule | FilterRule],
        log: Path | JournalUnit,
        file: BookmarkFile,
        from_start: bool = False,
    ) -> None:
        self._name = page
        self._prefix = _prefix(page)
        self._rules = rules
        self._log = log
        self._file = file
        self._saved = file.load()
        self._saved_at = time.monotonic()
        self._is_save_failing = False
        self._line: Line | None = None
        self._sightings: list[dict[str, Any] | None] = []  # of the line
        self._last_id = self._saved.last_id
        self._tailer = self._reader(self._saved.position, from_start)

    def _reader(self, stored: FilePosition | JournalPosition | None, from_start: bool) -> Tailer | Journal:
        if isinstance(self._log, JournalUnit):
            return Journal(self._log, stored if isinstance(stored, JournalPosition) else None, from_start)
        return Tailer(self._log, stored if isinstance(stored, FilePosition) else None, from_start)

    def run(self, bus: Bus, stop: threading.Event, follow: bool) -> None:
        """Publish matches in the log and, with `follow`, in appended lines, until `stop` is set.

        With `follow`, a missing log is waited for; else raises FileGone. Raises UnknownType when a rule names a type
        that the bus does not know. The bookmark is stored before an error is raised, so that a second run, on another
        connection, continues from there. With `follow`, one that could be stored before and now cannot, as on a full
        disk, ends nothing.
        """
        page = bus.page(self._name)
        self._check_types(bus)
        if not self._is_known(page):
            self._tailer.close()
            self._tailer = self._reader(self._tailer.position, from_start=True)
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
                stop.wait(_LOOK_INTERVAL)
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
                if stop.is_set():
                    break  # here, the position is after the last published line
                if line != self._line:  # else it is read again after an error, and a filter has seen it already
                    self._line, self._sightings = line, [rule.sighting(line.text) for rule in self._rules]
                for rule, sighting in zip(self._rules, self._sightings, strict=True):
                    published += self._publish(page, line, rule, sighting)
                if time.monotonic() - self._saved_at >= _SAVE_INTERVAL:
                    self._save(final)
        finally:
            self._save(final)
        if published:
            logger.info("published", sightings=published, log=str(self._log))

    def _publish(self, page: Page, line: Line, rule: Rule | FilterRule, sighting: dict[str, Any] | None) -> bool:
        """Publish a rule's match in a line; return False without one. Refused observations are logged and skipped."""
        if sighting is None:
            return False
        try:
            observation = page.add(**sighting, event_id=f"{self._prefix}:{line.identity}:{line.offset}:{rule.name}")
        except EventIdReused:
            return False  # counted before the rule was changed, or before the line was whole
        except (InvalidField, UnknownType) as problem:
            if isinstance(problem, UnknownType) and rule.type is not None:
                raise  # someone removed the type; the line is valid
            logger.warning("left out", rule=rule.name, log=str(self._log), offset=line.offset, reason=str(problem))
            return False
        self._last_id = observation.id
        return True

    def _save(self, final: bool) -> None:
        bookmark = Bookmark(self._tailer.position, self._last_id)
        self._saved_at = time.monotonic()
        if bookmark == self._saved:
            return
        try:
            self._file.save(bookmark)
        except InvalidInput as problem:
            if final or self._saved.position is None:
                raise
            if not self._is_save_failing:
                logger.warning("cannot store the position in the log; going on", reason=str(problem))
            self._is_save_failing = True
        else:
            self._saved, self._is_save_failing = bookmark, False

    def _is_known(self, page: Page) -> bool:
        """Return whether the page knows the last published observation; True if nothing was published.

        One whose events are only in an archive that cannot be read here counts as known: the log goes back that far.
        """
        if self._last_id is None:
            return True
        try:
            return page.get(self._last_id) is not None or bool(page.history(self._last_id))  # it may have left the page
        except NotFound:
            return False
        except (PositionLost, ArchiveDamaged, ArchiveForeign):
            return True


def _prefix(page: str) -> str:
    """Return the prefix of event ids on a page: an id is for one page, and each page counts a line once."""
    return "logwatch" if page == "main" else f"logwatch.{hashlib.sha256(page.encode()).hexdigest()[:8]}"


@daemon("logwatch")
@file_option("--rules", help="The rules: patterns, and what to publish.  [default: the shipped rules, for SSH]")
@click.option(
    "--fail2ban", "filters", multiple=True, metavar="FILTER",
    help="A fail2ban filter to match, such as /etc/fail2ban/filter.d/sshd.conf or sshd.conf[mode=extra]; repeatable.",
)  # fmt: skip
@file_option("--log", help="The log file.")
@click.option("--journal", metavar="UNIT", help="Read the journal of this systemd unit instead of a file.")
@click.option("--follow", is_flag=True, help="Keep reading as the log grows, through rotation and truncation.")
@click.option("--from-start", is_flag=True, help="Read the log from its first line again; nothing is counted twice.")
@file_option("--state", help="The file for the position in the log.  [default: one file per log, bus and page]")
def main(
    daemon: Daemon,
    rules: Path | None,
    filters: tuple[str, ...],
    log: Path | None,
    journal: str | None,
    follow: bool,
    from_start: bool,
    state: Path | None,
) -> None:
    """Publish the matches of the rules in a log, and store the position read so far.

    The rules come from --rules or from fail2ban filters; by default they are the shipped ones.
    """
    source = log if journal is None else JournalUnit(journal)
    if source is None or (log is not None and journal is not None):
        raise click.UsageError("name either a file with --log, or a systemd unit with --journal")
    found: list[Rule | FilterRule] = [read_filter(each) for each in filters]
    if rules is not None or not filters:
        found = [*read_rules(rules or shipped("logwatch.yaml")), *found]
    location = source.absolute() if isinstance(source, Path) else source
    file = BookmarkFile(state or default_path(str(location), daemon.target))
    watch = Logwatch(daemon.page, found, source, file, from_start)
    daemon.serve(lambda bus, stop: watch.run(bus, stop, follow), patient=follow)


if __name__ == "__main__":
    main()
