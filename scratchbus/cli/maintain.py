"""Keeping what is stored in order: `rebuild`, `verify`, `erase`, `import`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import BinaryIO

import click

from scratchbus.cli.common import Session, command, event_id_option, pass_session
from scratchbus.cli.output import Cell
from scratchbus.cli.text import one_line, plural
from scratchbus.daemon.exit_codes import INTERNAL


@command(examples=("scratchbus rebuild",))
@pass_session
def rebuild(session: Session) -> None:
    """Fold the state anew from the whole log.

    It is made beside the one that is in use, and takes its place at once when it is done; readers and writers go on
    meanwhile. For after an upgrade that says so, and for when `status` shows rejected events that are none any more.
    """
    from scratchbus.cli.progress import progress_bar

    with session.connect() as bus, progress_bar("Rebuilding") as progress:
        done = bus.rebuild(progress)
    if session.as_json:
        session.out.document({"events": done.events, "seconds": round(done.seconds, 3)})
    else:
        session.out.sentence(Cell("rebuilt", "green"), Cell(f"from {plural(done.events, 'event')}"))


@command(examples=("scratchbus verify", "scratchbus --json verify | jq -r .kind | sort | uniq -c"))
@pass_session
def verify(session: Session) -> None:
    """Compare all that the engine holds with what follows from the log.

    Prints what is wrong, one finding a line: its kind, where it is, and what is wrong there. Writers go on meanwhile.
    The exit code is 1 when anything is wrong. `scratchbus rebuild` mends what is folded; the log itself, and what the
    append script keeps beside it (heads, room, keys), come back from a backup.
    """
    from scratchbus.cli.progress import progress_bar

    with session.connect() as bus, progress_bar("Verifying") as progress:
        verified = bus.verify(progress)
    for finding in verified.findings:
        if session.as_json:
            session.out.document(finding._asdict())
        else:
            session.out.sentence(Cell(finding.kind, "red"), Cell(one_line(finding.where)), Cell(one_line(finding.what)))
    looked = f"{plural(verified.events, 'event')}, {plural(verified.documents, 'document')}"
    looked += f" on {plural(verified.pages, 'page')}"
    if verified.is_sound:
        session.out.note(f"Everything is as it should be: {looked}.")
        return
    session.out.note(f"{plural(verified.count, 'finding')} in {looked}.")
    raise click.exceptions.Exit(INTERNAL)


@command(examples=('scratchbus erase 01M7ZG05XPKZK2CR4XCAZB2BQ8 --reason "asked for by whom it was about"',))
@click.argument("id")
@click.option("--reason", required=True, metavar="TEXT", help="Why: the tombstone keeps it.")
@event_id_option
@pass_session
def erase(session: Session, id: str, reason: str, event_id: str | None) -> None:
    """Take all that was said about an observation out of the log, for good.

    Its events go, and everything that was made of them. A tombstone stays in the log: who erased it, why, when, and
    which positions are empty since. Nothing brings it back but a backup, so see to those too. Give the whole id.
    """
    from scratchbus.cli.documents import event_document

    with session.open() as place:
        tombstone = place.page.erase(place.id(id), reason=reason, event_id=event_id)
    if session.as_json:
        session.out.document(event_document(tombstone))
    else:
        count = len(tombstone.positions)
        session.out.sentence(Cell("erased", "red"), Cell(id), Cell(f"{plural(count, 'event')}"))


@command("import", examples=("scratchbus tail --format jsonl > all.jsonl", "scratchbus import all.jsonl --bus copy"))
@click.argument("file", type=click.File("rb"))
@pass_session
def import_(session: Session, file: BinaryIO) -> None:
    """Make an equal bus of an export.

    FILE is what `scratchbus tail --format jsonl` printed, from the first event on; `-` is standard input. The bus has
    to be a new one. All events keep their places, times and ids. The whole file is checked first; then all of it is
    written or nothing. What was cut short is completed when it is called again.
    """
    from scratchbus.cli.progress import progress_bar

    with session.connect() as bus, progress_bar("Importing") as show:
        count = bus.import_events(file, _bytes_read(file, show))
    if session.as_json:
        session.out.document({"events": count, "bus": bus.core.log.bus})
    else:
        session.out.sentence(Cell("imported", "green"), Cell(f"{plural(count, 'event')} into {bus.core.log.bus}"))


def _bytes_read(file: BinaryIO, show: Callable[[int, int], object] | None) -> Callable[[int], object] | None:
    """Return what shows how much of a file is read; None where nobody looks, or nobody knows how much there is."""
    if show is None or not file.seekable():
        return None
    size = os.fstat(file.fileno()).st_size
    return lambda _: show(file.tell(), size)
