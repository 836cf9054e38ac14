"""Maintenance of a bus: `rebuild`, `verify`, `repair`, `erase`, `import`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import BinaryIO

import click

import scratchbus
from scratchbus.cli.commands import PAGE, command, event_id_option
from scratchbus.cli.invocation import Invocation, OpenPage, pass_invocation, without_source
from scratchbus.cli.output import Cell, progress_bar
from scratchbus.cli.text import one_line, plural
from scratchbus.daemon import INTERNAL
from scratchbus.errors import InvalidField


@command(examples=("scratchbus rebuild",))
@click.option("--over-gaps", is_flag=True, help="Go on without events that the log has lost and the state contains.")
@pass_invocation
def rebuild(invocation: Invocation, over_gaps: bool) -> None:
    """Rebuild the state from the whole log.

    Readers and writers continue meanwhile; the new state replaces the old one atomically when it is complete. Use it
    after an upgrade that says so, and when `status` shows rejected events that can be read by now.

    It refuses if the log has lost events that the state contains, since the new state would be without them. Restore
    the engine from a backup; if there is none, --over-gaps gives them up.
    """
    with invocation.connect() as bus, progress_bar("Rebuilding") as progress:
        rebuilt = bus.rebuild(progress, over_gaps=over_gaps)
    document = {"events": rebuilt.events, "seconds": round(rebuilt.seconds, 3)}
    invocation.out.result(document, Cell("rebuilt", "green"), Cell(f"from {plural(rebuilt.events, 'event')}"))


@command(examples=("scratchbus verify", "scratchbus --json verify | jq -r .kind | sort | uniq -c"))
@pass_invocation
def verify(invocation: Invocation) -> None:
    """Compare all data in the engine with the log.

    Prints one finding per line: its kind, where it is, and what is wrong. Writers continue meanwhile. Exits with 1 if
    there is a finding, and says on standard error what to do about each kind; if there is none, --json prints one
    document of the kind `sound` that says how much was compared. `scratchbus rebuild` repairs the state, `scratchbus
    repair` removes what is `foreign`. The log itself, and what the append script keeps beside it (heads, room, keys),
    can only be restored from a backup.
    """
    with invocation.connect() as bus, progress_bar("Verifying") as progress:
        verified = bus.verify(progress)
    for finding in verified.findings:
        cells = (Cell(finding.kind, "red"), Cell(one_line(finding.where)), Cell(one_line(finding.what)))
        invocation.out.result(finding._asdict(), *cells, is_whole=True)
    looked = f"{plural(verified.events, 'event')}, {plural(verified.documents, 'document')}"
    looked += f" on {plural(verified.pages, 'page')}"
    if verified.is_sound:
        invocation.out.note(f"Everything is consistent: {looked}.")
        if invocation.as_json:
            compared = {"events": verified.events, "documents": verified.documents, "pages": verified.pages}
            invocation.out.document({"kind": "sound", **compared})
        return
    invocation.out.note(f"{plural(verified.count, 'finding')} in {looked}.")
    kinds: dict[str, dict[str, None]] = {}
    for finding in verified.findings:
        kinds.setdefault(finding.advice, {})[finding.kind] = None
    for advice, named in kinds.items():
        invocation.out.note(f"{', '.join(named)}: {advice}")
    raise click.exceptions.Exit(INTERNAL)


@command(examples=("scratchbus repair", "scratchbus repair --json"))
@pass_invocation
def repair(invocation: Invocation) -> None:
    """Remove entries that someone added to the log by hand.

    Use it when writes fail because of an entry behind the last event. Prints one line per entry that it removed: its
    shard, its stream id, and its fields. No event is removed. It may copy the log, so it can take some seconds per
    million events, and memory for two copies.
    """
    with invocation.connect() as bus:
        removed = bus.repair()
    for entry in removed:
        fields = ", ".join(f"{name}={value}" for name, value in entry.fields.items())
        cells = (Cell(f"shard {entry.shard}"), Cell(entry.stream_id), Cell(one_line(fields)))
        invocation.out.result(entry._asdict(), Cell("removed", "red"), *cells, is_whole=True)
    if not removed:
        invocation.out.note("There is nothing to repair.")


@command(examples=('scratchbus erase 01M7ZG05XPKZK2CR4XCAZB2BQ8 --source ada --reason "Ada asked"',), shared=PAGE)
@click.argument("id", metavar="ID")
@click.option("--reason", required=True, metavar="TEXT", help="The reason, which the tombstone keeps.")
@click.option("-y", "--yes", "is_sure", is_flag=True, help="Do not ask; needed where there is no terminal.")
@event_id_option
@pass_invocation
def erase(invocation: Invocation, id: str, reason: str, is_sure: bool, event_id: str | None) -> None:
    """Erase an observation from the log, for good.

    This removes its events and all data derived from them. A tombstone stays in the log: who erased it, why,
    when, and which positions are now empty. Backups still contain the observation, so delete it there too.

    ID is the whole id. It needs a --source, and asks on a terminal before it erases.
    """
    if invocation.settings().source is None:
        raise without_source("erase needs a source")
    with invocation.open() as opened:
        if not is_sure:
            _ask_to_erase(opened, id)
        tombstone = opened.page.erase(id, reason=reason, event_id=event_id)
    count = plural(len(tombstone.positions), "event")
    invocation.out.result(scratchbus.document_of(tombstone), Cell("erased", "red"), Cell(id), Cell(count))


def _ask_to_erase(opened: OpenPage, id: str) -> None:
    """Ask whether to erase an observation. Raises UsageError without a terminal, Abort for a no."""
    if not sys.stdin.isatty():
        raise click.UsageError("erase cannot be undone, and there is no terminal to ask on; add --yes")
    found = opened.page.get(id)
    description = "its remaining data" if found is None else f"{found.type}: {one_line(found.content)[:60]}"
    click.confirm(f"Erase {id} for good ({description})?", abort=True, err=True)


@command(
    "import",
    examples=(
        "scratchbus tail --format jsonl > all.jsonl",
        "scratchbus import all.jsonl --bus copy",
        "scratchbus import events.json --format cloudevents --type risk_alert",
    ),
    shared=(*PAGE, "source"),
)
@click.argument("file", type=click.File("rb"))
@click.option(
    "--format", "form", type=click.Choice(["jsonl", "cloudevents"]), default="jsonl", help="The format of FILE."
)
@click.option(
    "--type", "kind", metavar="TYPE", help="The type of observations made from CloudEvents.  [default: observation]"
)
@pass_invocation
def import_(invocation: Invocation, file: BinaryIO, form: str, kind: str | None) -> None:
    """Import an export into a new bus, or CloudEvents into any.

    FILE is the output of `scratchbus tail --format jsonl` from the first event on; `-` is standard input. All events
    keep their positions, times and ids. The whole file is checked first; then either all of it is written or nothing.
    If an import was interrupted, run it again to complete it.

    With --format cloudevents, FILE has CloudEvents 1.0 in JSON: one, a list, or one per line. Each becomes an
    observation on the page, once, however often it comes.
    """
    if form == "cloudevents":
        _import_cloud_events(invocation, file, kind or "observation")
        return
    if kind is not None:
        raise click.UsageError("--type is for --format cloudevents; the events of an export keep their types")
    with invocation.connect() as bus, progress_bar("Importing") as update_bar:
        before = bus.position()
        count = bus.import_events(file, _bytes_read(file, update_bar))
        if not count:
            invocation.out.note(f"{file.name} is empty: it is the export of an empty bus, or the export failed")
        is_new = all(end.seq == 0 for end in before.shards)
        added = count if is_new else min(count, sum(1 for _ in bus.events(before)))
    name = bus.settings.bus
    count_text = f"{plural(added, 'event')} into {name}"
    if added < count:
        count_text += f"; {count - added:,} {'were' if count - added > 1 else 'was'} there already"
    document = {"events": count, "new": added, "bus": name}
    invocation.out.result(document, Cell("imported", "green"), Cell(count_text))


def _import_cloud_events(invocation: Invocation, file: BinaryIO, kind: str) -> None:
    try:
        text = file.read().decode()
    except UnicodeDecodeError:
        raise InvalidField("FILE", "is not UTF-8; CloudEvents in JSON are") from None
    additions = scratchbus.read_cloud_events(text, kind)
    with invocation.open() as opened:
        before = opened.bus.position()
        kinds = {arguments["type"] for arguments in additions}
        if not kinds <= opened.bus.types.types.keys():
            opened.bus.refresh_types()
        for name in kinds:
            opened.bus.types.get(name)  # raises UnknownType, before anything is written
        for arguments in additions:
            if opened.page.name != "main":  # an event id is for one page, and each may get the same CloudEvent
                arguments["event_id"] += f"@{opened.page.name}"
            with scratchbus.within_trace(arguments.pop("traceparent", None)):
                opened.page.add(**arguments)
        ids = {arguments["event_id"] for arguments in additions}
        added = sum(event.id in ids for event in opened.bus.events(before, pages=[opened.page.name]))
    count_text = f"{plural(added, 'observation')} of {plural(len(additions), 'CloudEvent')}"
    invocation.out.result(
        {"observations": added, "events": len(additions)}, Cell("imported", "green"), Cell(count_text)
    )


def _bytes_read(file: BinaryIO, update_bar: Callable[[int, int], object] | None) -> Callable[[int], object] | None:
    """Return a callback that shows how much of a file is read; None without a bar, or for a pipe."""
    if update_bar is None or not file.seekable():
        return None
    size = os.fstat(file.fileno()).st_size
    return lambda _: update_bar(file.tell(), size)
