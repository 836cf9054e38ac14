"""Keeping what is stored in order: `rebuild`."""

from __future__ import annotations

from scratchbus.edges.cli.common import Session, command, pass_session
from scratchbus.edges.cli.output import Cell
from scratchbus.edges.cli.words import plural


@command(examples=("scratchbus rebuild",))
@pass_session
def rebuild(session: Session) -> None:
    """Fold the state anew from the whole log.

    It is made beside the one that is in use, and takes its place at once when it is done; readers and writers go on
    meanwhile. For after an upgrade that says so, and for when `status` shows rejected events that are none any more.
    """
    from scratchbus.edges.cli.progress import progress_bar

    with session.connect() as bus, progress_bar("Rebuilding") as progress:
        done = bus.rebuild(progress)
    if session.as_json:
        session.out.document({"events": done.events, "seconds": round(done.seconds, 3)})
    else:
        session.out.sentence(Cell("rebuilt", "green"), Cell(f"from {plural(done.events, 'event')}"))
