"""The archive of the log: `log-archive run`, `list` and `verify`."""

from __future__ import annotations

from collections.abc import Sequence

import click

import scratchbus
from scratchbus.cli.commands import OUTPUT, BusGroup
from scratchbus.cli.invocation import Invocation, pass_invocation
from scratchbus.cli.output import Cell, Column, Columns, progress_bar
from scratchbus.cli.text import plural
from scratchbus.cli.truncation import WIDE
from scratchbus.daemon import INTERNAL
from scratchbus.errors import NotFound

_SEGMENTS: Columns[scratchbus.SegmentInfo] = (
    Column("log", lambda each: Cell(f"{each.bus}/{each.shard}", "cyan"), 12),
    Column("events", lambda each: Cell(f"{each.first_seq}–{each.last_seq}"), 17, right=True),
    Column("count", lambda each: Cell(f"{each.events:,}"), 8, right=True),
    Column("bytes", lambda each: Cell(f"{each.bytes:,}"), 10, right=True),
    Column("from", lambda each: Cell(f"{each.first_at:%Y-%m-%d %H:%M:%S}"), 19),
    Column("to", lambda each: Cell(f"{each.last_at:%Y-%m-%d %H:%M:%S}"), 19),
    Column(
        "erased", lambda each: Cell(f"{each.erased:,}" if each.erased else "", "yellow"), right=True, min_terminal=WIDE
    ),
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
@pass_invocation
def run(invocation: Invocation) -> None:
    """Move old events to the archive, once.

    Events that are older than `retain`, and not among the last `retain_events`, are written to segments. They then
    leave the log, unless a projection, subscription or expirer still has to read them.
    """
    with invocation.connect() as bus, progress_bar("Archiving") as update_bar:
        progress_by_shard: dict[int, scratchbus.ArchiveProgress] = {}

        def report(progress: scratchbus.ArchiveProgress) -> None:
            progress_by_shard[progress.shard] = progress
            if update_bar is not None:
                update_bar(
                    sum(each.archived for each in progress_by_shard.values()),
                    sum(each.wanted for each in progress_by_shard.values()),
                )

        results = scratchbus.archive_bus(bus, report=report)
    if invocation.as_json:
        for each in results:
            invocation.out.document(each.model_dump())
    else:
        _show_results(invocation, results)


def _show_results(invocation: Invocation, results: Sequence[scratchbus.Archived]) -> None:
    events, segments = sum(each.events for each in results), sum(each.segments for each in results)
    trimmed = sum(each.trimmed for each in results)
    if not events and not trimmed:
        invocation.out.sentence(Cell("Nothing to archive: all events are recent, or a reader still needs them"))
        return
    text = f"{plural(events, 'event')} in {plural(segments, 'segment')}; {plural(trimmed, 'event')} left the log"
    invocation.out.sentence(Cell("archived", "green"), Cell(text))


@log_archive.command(
    "list",
    examples=("scratchbus log-archive list", "scratchbus log-archive list /var/lib/scratchbus/archive"),
    shared=(*OUTPUT, "config"),
)
@click.argument("url", required=False, metavar="[URL]")
@pass_invocation
def list_segments(invocation: Invocation, url: str | None) -> None:
    """Show the segments of an archive with their events, sizes and dates. This needs no engine."""
    found = list(scratchbus.archived_segments(_store(invocation, url)))
    empty = "There are no segments yet; `scratchbus log-archive run` writes them"
    invocation.out.listing(_SEGMENTS, found, empty=empty, document=lambda each: each.model_dump(mode="json"))


@log_archive.command(
    "verify",
    examples=("scratchbus log-archive verify", "scratchbus log-archive verify /var/lib/scratchbus/archive"),
    shared=(*OUTPUT, "config"),
)
@click.argument("url", required=False, metavar="[URL]")
@pass_invocation
@click.pass_context
def verify_archive(context: click.Context, invocation: Invocation, url: str | None) -> None:
    """Check every file, event and hash of an archive.

    This needs no engine. Prints one problem per line and exits with 1 if there are any, with 3 if there is no archive.
    """
    with progress_bar("Verifying") as update_bar:
        store = _store(invocation, url)
        found = scratchbus.verify_archive(store, *([update_bar] if update_bar else []))
    if not found:
        raise NotFound(f"There is no archive at {store.where}; name another URL, or set archive_url")
    problems = [problem for each in found for problem in each.problems]
    if invocation.as_json:
        for each in found:
            invocation.out.document(each.model_dump())
    else:
        for problem in problems:
            invocation.out.sentence(Cell(problem.file, "bold red"), Cell(problem.problem), is_whole=True)
        events, segments = sum(each.events for each in found), sum(each.segments for each in found)
        extent = f"{plural(events, 'event')} in {plural(segments, 'segment')} of {plural(len(found), 'log')}"
        verdict = Cell(plural(len(problems), "problem"), "bold red") if problems else Cell("sound", "green")
        invocation.out.sentence(verdict, Cell(extent))
    if problems:
        context.exit(INTERNAL)


def _store(invocation: Invocation, url: str | None) -> scratchbus.ArchiveStore:
    """Return the archive at a URL, or the one in the settings. Raises InvalidURL or SettingsError."""
    return scratchbus.open_archive(url or invocation.settings().archive_url)
