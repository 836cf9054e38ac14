"""`archive`: with ids it puts observations away; `archive run`, `ls` and `verify` are about the archive of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scratchbus.cli.change import archive_ids
from scratchbus.cli.common import BusGroup, Session, pass_session
from scratchbus.cli.output import WIDE, Cell, Heading
from scratchbus.cli.text import plural
from scratchbus.daemon.exit_codes import INTERNAL, NOT_FOUND

if TYPE_CHECKING:
    from scratchbus.archive.archiver import Archived
    from scratchbus.archive.stores import Store

_SEGMENTS = (
    Heading("log", 12),
    Heading("events", 17, right=True),
    Heading("count", 8, right=True),
    Heading("bytes", 10, right=True),
    Heading("from", 19),
    Heading("to", 19),
    Heading("erased", right=True, least=WIDE),
)


class _IdsOrCommand(BusGroup):
    """A command with commands of its own, which with anything else is the one that takes ids."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the arguments for whichever of the two they are."""
        own = {name for parameter in archive_ids.params for name in parameter.opts} - {
            name for parameter in self.params for name in parameter.opts
        }
        first = args[0] if args else ""
        is_about_log = first in ("", "--help", "-h", *self.commands) or (
            first.startswith("-") and first.partition("=")[0] not in own and any(arg in self.commands for arg in args)
        )
        if is_about_log:
            return super().make_context(info_name, args, parent, **extra)
        return archive_ids.make_context(info_name, args, parent, **extra)


@click.group(
    "archive",
    cls=_IdsOrCommand,
    examples=(
        "scratchbus archive 8F3K2M9Q --reason TEXT",
        "scratchbus archive run",
        "scratchbus archive verify s3://bucket/prefix",
    ),
)
def archive() -> None:
    """Put observations away for good, or deal with the archive of the log.

    With ids it is about observations: see `scratchbus archive ID --help`. The commands below are about the archive, at
    the setting archive_url, to which old events are moved.
    """


@archive.command(examples=("scratchbus archive run", "SCRATCHBUS_RETAIN=1d scratchbus archive run"))
@pass_session
def run(session: Session) -> None:
    """Move what is old to the archive, once.

    What is older than `retain`, and not among the last `retain_events`, is written to segments, and then taken out of
    the log as far as no projection, subscription or expirer has still to read it.
    """
    from scratchbus.archive.archiver import Progress, archive_bus
    from scratchbus.cli.progress import progress_bar

    with session.connect() as bus, progress_bar("Archiving") as show:
        seen: dict[int, Progress] = {}

        def report(progress: Progress) -> None:
            seen[progress.shard] = progress
            if show is not None:
                show(sum(each.archived for each in seen.values()), sum(each.wanted for each in seen.values()))

        done = archive_bus(bus, report=report)
    if session.as_json:
        for each in done:
            session.out.document(each.model_dump())
    else:
        _say_done(session, done)


def _say_done(session: Session, done: list[Archived]) -> None:
    events, segments = sum(each.events for each in done), sum(each.segments for each in done)
    trimmed = sum(each.trimmed for each in done)
    if not events and not trimmed:
        session.out.sentence(Cell("Nothing to archive: all of it is to be kept live, or is still to be read"))
        return
    text = f"{plural(events, 'event')} in {plural(segments, 'segment')}; {plural(trimmed, 'event')} left the log"
    session.out.sentence(Cell("archived", "green"), Cell(text))


@archive.command("ls", examples=("scratchbus archive ls", "scratchbus archive ls /var/lib/scratchbus/archive"))
@click.argument("url", required=False, metavar="[URL]")
@pass_session
def list_segments(session: Session, url: str | None) -> None:
    """Show the segments of an archive: their events, sizes and dates. It needs no engine."""
    from scratchbus.archive.contents import archived_segments

    found = list(archived_segments(_store(session, url)))
    if session.as_json:
        for each in found:
            session.out.document(each.model_dump(mode="json"))
    elif not found:
        session.out.note("There are no segments yet; `scratchbus archive run` writes them.")
    else:
        rows = [
            [
                Cell(f"{each.bus}/{each.shard}", "cyan"),
                Cell(f"{each.first_seq}–{each.last_seq}"),
                Cell(f"{each.events:,}"),
                Cell(f"{each.bytes:,}"),
                Cell(f"{each.first_at:%Y-%m-%d %H:%M:%S}"),
                Cell(f"{each.last_at:%Y-%m-%d %H:%M:%S}"),
                Cell(f"{each.erased:,}" if each.erased else "", "yellow"),
            ]
            for each in found
        ]
        session.out.table(_SEGMENTS, rows)


@archive.command(
    "verify", examples=("scratchbus archive verify", "scratchbus archive verify /var/lib/scratchbus/archive")
)
@click.argument("url", required=False, metavar="[URL]")
@pass_session
@click.pass_context
def verify_archive(context: click.Context, session: Session, url: str | None) -> None:
    """Check an archive: every file, every event, every link of the chain.

    It needs no engine. What is wrong is said line by line, and then it exits with 1; with 3 where there is no archive.
    """
    from scratchbus.archive.check import verify
    from scratchbus.cli.progress import progress_bar

    with progress_bar("Verifying") as show:
        store = _store(session, url)
        found = verify(store, show) if show else verify(store)
    if not found:
        session.out.note(f"There is no archive at {store.where}; name the place, or set archive_url to it")
        context.exit(NOT_FOUND)
    problems = [problem for each in found for problem in each.problems]
    if session.as_json:
        for each in found:
            session.out.document(each.model_dump())
    else:
        for problem in problems:
            session.out.sentence(Cell(problem.file, "bold red"), Cell(problem.problem))
        events, segments = sum(each.events for each in found), sum(each.segments for each in found)
        about = f"{plural(events, 'event')} in {plural(segments, 'segment')} of {plural(len(found), 'log')}"
        verdict = Cell(plural(len(problems), "problem"), "bold red") if problems else Cell("sound", "green")
        session.out.sentence(verdict, Cell(about))
    if problems:
        context.exit(INTERNAL)


def _store(session: Session, url: str | None) -> Store:
    """Return the store that is named, or that of the settings. Raises InvalidURL or SettingsError."""
    from scratchbus.archive.stores import open_store
    from scratchbus.errors import SettingsError

    url = url or session.settings().archive_url
    if not url:
        raise SettingsError("archive_url: it is not set; set it, or name the archive: scratchbus archive verify URL")
    return open_store(url)
