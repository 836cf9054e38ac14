"""Maintenance of a bus: `rebuild`, `verify`, `repair`, `erase`, `import`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import BinaryIO

import click

import scratchbus
from scratchbus.cli.commands import command, event_id_option
from scratchbus.cli.invocation import Invocation, pass_session
from scratchbus.cli.output import Cell, progress_bar
from scratchbus.cli.text import one_line, plural
from scratchbus.daemon import INTERNAL


@command(examples=("scratchbus rebuild",))
@pass_session
def rebuild(session: Invocation) -> None:
    """Rebuild the state from the whole log.

    Readers and writers continue meanwhile; the new state replaces the old one at once when it is complete. Use it after
    an upgrade that says so, and when `status` shows rejected events that can be read by now.
    """
    with session.connect() as bus, progress_bar("Rebuilding") as progress:
        done = bus.rebuild(progress)
    document = {"events": done.events, "seconds": round(done.seconds, 3)}
    session.out.result(document, Cell("rebuilt", "green"), Cell(f"from {plural(done.events, 'event')}"))


@command(examples=("scratchbus verify", "scratchbus --json verify | jq -r .kind | sort | uniq -c"))
@pass_session
def verify(session: Invocation) -> None:
    """Compare all data in the engine with the log.

    Prints one finding per line: its kind, where it is, and what is wrong. Writers continue meanwhile. Exits with 1 if
    there is a finding. `scratchbus rebuild` repairs the state, `scratchbus repair` removes what is `foreign`. The log
    itself, and what the append script keeps beside it (heads, room, keys), can only be restored from a backup.
    """
    with session.connect() as bus, progress_bar("Verifying") as progress:
        verified = bus.verify(progress)
    for finding in verified.findings:
        cells = (Cell(finding.kind, "red"), Cell(one_line(finding.where)), Cell(one_line(finding.what)))
        session.out.result(finding._asdict(), *cells)
    looked = f"{plural(verified.events, 'event')}, {plural(verified.documents, 'document')}"
    looked += f" on {plural(verified.pages, 'page')}"
    if verified.is_sound:
        session.out.note(f"Everything is consistent: {looked}.")
        return
    session.out.note(f"{plural(verified.count, 'finding')} in {looked}.")
    raise click.exceptions.Exit(INTERNAL)


@command(examples=("scratchbus repair", "scratchbus repair --json"))
@pass_session
def repair(session: Invocation) -> None:
    """Remove entries that someone added to the log by hand.

    Use it when writes fail because of an entry behind the last event. Prints one line per entry that it removed: its
    shard, its stream id, and its fields. No event is removed. It may copy the log, so it can take some seconds per
    million events, and memory for two copies.
    """
    with session.connect() as bus:
        removed = bus.repair()
    for entry in removed:
        fields = ", ".join(f"{name}={value}" for name, value in entry.fields.items())
        cells = (Cell(f"shard {entry.shard}"), Cell(entry.stream_id), Cell(one_line(fields)))
        session.out.result(entry._asdict(), Cell("removed", "red"), *cells)
    if not removed:
        session.out.note("There is nothing to repair.")


@command(examples=('scratchbus erase 01M7ZG05XPKZK2CR4XCAZB2BQ8 --reason "the customer asked for it"',))
@click.argument("id")
@click.option("--reason", required=True, metavar="TEXT", help="The reason, which the tombstone keeps.")
@event_id_option
@pass_session
def erase(session: Invocation, id: str, reason: str, event_id: str | None) -> None:
    """Erase an observation from the log, for good.

    This removes its events and all data that was derived from them. A tombstone stays in the log: who erased it, why,
    when, and which positions are now empty. Backups still contain the observation, so delete it there too. Give the
    whole id.
    """
    with session.open() as opened:
        tombstone = opened.page.erase(opened.page.whole_id(id), reason=reason, event_id=event_id)
    count = plural(len(tombstone.positions), "event")
    session.out.result(scratchbus.document_of(tombstone), Cell("erased", "red"), Cell(id), Cell(count))


@command("import", examples=("scratchbus tail --format jsonl > all.jsonl", "scratchbus import all.jsonl --bus copy"))
@click.argument("file", type=click.File("rb"))
@pass_session
def import_(session: Invocation, file: BinaryIO) -> None:
    """Import an export into a new bus.

    FILE is the output of `scratchbus tail --format jsonl` from the first event on; `-` is standard input. All events
    keep their positions, times and ids. The whole file is checked first; then either all of it is written or nothing.
    If an import was interrupted, run it again to complete it.
    """
    with session.connect() as bus, progress_bar("Importing") as show:
        count = bus.import_events(file, _bytes_read(file, show))
    name = bus.settings.bus
    about = f"{plural(count, 'event')} into {name}"
    session.out.result({"events": count, "bus": name}, Cell("imported", "green"), Cell(about))


def _bytes_read(file: BinaryIO, show: Callable[[int, int], object] | None) -> Callable[[int], object] | None:
    """Return a callback that shows how much of a file is read; None without a bar, or for a pipe."""
    if show is None or not file.seekable():
        return None
    size = os.fstat(file.fileno()).st_size
    return lambda _: show(file.tell(), size)
