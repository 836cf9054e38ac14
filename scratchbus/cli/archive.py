"""The archive of the log: `log-archive run`, `list` and `verify`."""

from __future__ import annotations

from collections.abc import Sequence

import click

import scratchbus
from scratchbus.cli.commands import OUTPUT, BusGroup
from scratchbus.cli.invocation import Invocation, pass_session
from scratchbus.cli.output import WIDE, Cell, Column, Columns, progress_bar
from scratchbus.cli.text import plural
from scratchbus.daemon import INTERNAL, NOT_FOUND

_SEGMENTS: Columns[scratchbus.SegmentInfo] = (
    Column("log", lambda each: Cell(f"{each.bus}/{each.shard}", "cyan"), 12),
    Column("events", lambda each: Cell(f"{each.first_seq}–{each.last_seq}"), 17, right=True),
    Column("count", lambda each: Cell(f"{each.events:,}"), 8, right=True),
    Column("bytes", lambda each: Cell(f"{each.bytes:,}"), 10, right=True),
    Column("from", lambda each: Cell(f"{each.first_at:%Y-%m-%d %H:%M:%S}"), 19),
    Column("to", lambda each: Cell(f"{each.last_at:%Y-%m-%d %H:%M:%S}"), 19),
    Column("erased", lambda each: Cell(f"{each.erased:,}" if each.erased else "", "yellow"), right=True, least=WIDE),
)


@click.group(
    "log-archive",
    cls=BusGroup,
    examples=("scratchbus log-archive run", "scratchbus log-archive verify s3://bucket/prefix"),
)
def log_archive() -> None:
    """Move old events to the archive, and check it.

    The setting archive_url says where the archive is.
    """


@log_archive.command(examples=("scratchbus log-archive run", "SCRATCHBUS_RETAIN=1d scratchbus log-archive run"))
@pass_session
def run(session: Invocation) -> None:
    """Move old events to the archive, once.

    Events that are older than `retain`, and not among the last `retain_events`, are written to segments. They then
    leave the log, unless a projection, subscription or expirer still has to read them.
    """
    with session.connect() as bus, progress_bar("Archiving") as show:
        seen: dict[int, scratchbus.ArchiveProgress] = {}

        def report(progress: scratchbus.ArchiveProgress) -> None:
            seen[progress.shard] = progress
            if show is not None:
                show(sum(each.archived for each in seen.values()), sum(each.wanted for each in seen.values()))

        done = scratchbus.archive_bus(bus, report=report)
    if session.as_json:
        for each in done:
            session.out.document(each.model_dump())
    else:
        _say_done(session, done)


def _say_done(session: Invocation, done: Sequence[scratchbus.Archived]) -> None:
    events, segments = sum(each.events for each in done), sum(each.segments for each in done)
    trimmed = sum(each.trimmed for each in done)
    if not events and not trimmed:
        session.out.sentence(Cell("Nothing to archive: all events are recent, or a reader still needs them"))
        return
    text = f"{plural(events, 'event')} in {plural(segments, 'segment')}; {plural(trimmed, 'event')} left the log"
    session.out.sentence(Cell("archived", "green"), Cell(text))


@log_archive.command(
    "list",
    examples=("scratchbus log-archive list", "scratchbus log-archive list /var/lib/scratchbus/archive"),
    shared=(*OUTPUT, "config"),
)
@click.argument("url", required=False, metavar="[URL]")
@pass_session
def list_segments(session: Invocation, url: str | None) -> None:
    """Show the segments of an archive with their events, sizes and dates. This needs no engine."""
    found = list(scratchbus.archived_segments(_store(session, url)))
    empty = "There are no segments yet; `scratchbus log-archive run` writes them"
    session.out.listing(_SEGMENTS, found, empty=empty, document=lambda each: each.model_dump(mode="json"))


@log_archive.command(
    "verify",
    examples=("scratchbus log-archive verify", "scratchbus log-archive verify /var/lib/scratchbus/archive"),
    shared=(*OUTPUT, "config"),
)
@click.argument("url", required=False, metavar="[URL]")
@pass_session
@click.pass_context
def verify_archive(context: click.Context, session: Invocation, url: str | None) -> None:
    """Check every file, event and hash of an archive.

    This needs no engine. Prints one problem per line and exits with 1 if there are any, with 3 if there is no archive.
    """
    with progress_bar("Verifying") as show:
        store = _store(session, url)
        found = scratchbus.verify_archive(store, *([show] if show else []))
    if not found:
        session.out.note(f"There is no archive at {store.where}; name another URL, or set archive_url")
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


def _store(session: Invocation, url: str | None) -> scratchbus.ArchiveStore:
    """Return the archive at a URL, or the one in the settings. Raises InvalidURL or SettingsError."""
    return scratchbus.open_archive(url or session.settings().archive_url)
