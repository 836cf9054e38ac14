"""How the results of commands look."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from scratchbus.cli.common import Session
from scratchbus.cli.output import Cell, Heading
from scratchbus.cli.text import ago, ahead, clock, compact, one_line, paragraphs
from scratchbus.telemetry.terminal import escaped

if TYPE_CHECKING:
    from scratchbus import Event, Observation
    from scratchbus.domain.trace import Branch, Trace


def show_change(session: Session, verb: str, observation: Observation) -> None:
    """Show an observation that has just been changed, in one line."""
    from scratchbus.cli import columns
    from scratchbus.cli.documents import observation_document

    out = session.out
    if out.as_json:
        out.document(observation_document(observation))
    elif out.is_terminal:
        out.sentence(
            Cell(one_line(verb), "green"),
            columns.id_cell(observation.id),
            columns.times_cell(observation),
            columns.type_cell(observation),
            columns.content_cell(observation),
        )
    else:
        out.row(columns.heads(columns.OBSERVATION), columns.row_of(columns.OBSERVATION, observation))


def show_list(session: Session, observations: Sequence[Observation], now: datetime | None = None) -> None:
    """Show observations, one a line, as old as they are now or were at a moment."""
    from scratchbus.cli import columns
    from scratchbus.cli.documents import observation_document

    if session.as_json:
        for observation in observations:
            session.out.document(observation_document(observation))
    elif observations:
        session.out.table(columns.heads(columns.OBSERVATION), columns.rows_of(columns.OBSERVATION, observations, now))


def show_history(session: Session, events: Sequence[Event]) -> None:
    """Show the events about one observation, oldest first."""
    from scratchbus.cli import columns
    from scratchbus.cli.documents import event_document

    if session.as_json:
        for event in events:
            session.out.document(event_document(event))
    else:
        rows = columns.rows_of(columns.HISTORY, events)
        session.out.table(columns.heads(columns.HISTORY), rows, empty="Nothing has happened yet")


def show_card(
    session: Session, observation: Observation, history: Sequence[Event] | None, refuted: Collection[str]
) -> None:
    """Show one observation with everything that is known of it, also which of its evidence was refuted."""
    from scratchbus.cli import columns
    from scratchbus.cli.documents import event_document, observation_document

    out = session.out
    if out.as_json:
        document = observation_document(observation)
        if history is not None:
            document["history"] = [event_document(event) for event in history]
        out.document(document)
        return
    title = (
        columns.id_cell(observation.id),
        columns.type_cell(observation),
        columns.status_cell(observation)._replace(short=None),
        columns.times_cell(observation),
    )
    out.block(title, paragraphs(observation.content), _details(observation, refuted))
    if history is not None:
        out.line("")
        show_history(session, history)


def show_gone(session: Session, page: str, id: str, history: Sequence[Event]) -> None:
    """Show the events about an observation that is no longer on its page."""
    from scratchbus.cli.documents import event_document

    if session.as_json:
        session.out.document({"id": id, "page": page, "history": [event_document(event) for event in history]})
    else:
        session.out.note(f"{id} is no longer on page {page!r}; what happened to it:")
        show_history(session, history)


def show_trace(session: Session, trace: Trace) -> None:
    """Show what led to an action: each observation with its evidence below it, one step further in."""
    from scratchbus.cli.documents import trace_document

    out, now = session.out, datetime.now(UTC)
    if out.as_json:
        out.document(trace_document(trace))
        return
    out.sentence(Cell(one_line(trace.action), "blue"))
    motives = iter(trace.motives)
    for branch in trace.tree():
        if branch.depth == 0:
            motive = next(motives)
            out.sentence(Cell("linked by"), Cell(motive.by, "cyan"), Cell(f"at {clock(motive.at, now)}", "dim"))
        out.sentence(*_branch(branch, trace.page, now))


def _branch(branch: Branch, page: str, now: datetime) -> Iterator[Cell]:
    """Yield what a line of a tree says of an observation: what it is, where when it is elsewhere, and who said so."""
    from scratchbus.cli import columns

    each = branch.observation
    yield Cell("  " * branch.depth + " └", "dim")
    yield columns.id_cell(branch.id)
    if each is None:
        yield Cell("is not there", "dim")
        return
    yield columns.type_cell(each)
    yield columns.status_cell(each)
    yield Cell("refuted" if each.reason_code == "refuted" else "", "bold red")
    yield Cell(f"on {each.page}" if each.page != page else "", "dim")
    yield Cell(each.source, "cyan")
    yield Cell(clock(each.created_at, now), "dim")
    yield Cell("as above", "dim") if branch.again else columns.content_cell(each)


def _details(observation: Observation, refuted: Collection[str]) -> Iterator[tuple[str, Cell]]:
    """Yield what there is to say of an observation besides its content, by name."""
    now = datetime.now(UTC)

    def past(then: datetime) -> Cell:
        return Cell(f"{ago(then, now)} ago, {clock(then, now)}".replace("now ago", "now"))

    yield "id", Cell(observation.id)
    yield "source", Cell(observation.source, "cyan")
    if observation.owner is not None:
        yield "owner", Cell(one_line(observation.owner), "cyan")
    yield "priority", Cell(str(observation.priority))
    yield "confidence", Cell(f"{observation.confidence:g}")
    if observation.tags:
        yield "tags", Cell(one_line(", ".join(observation.tags)))
    for name in ("context", "metadata"):
        if value := getattr(observation, name):
            yield name, Cell(compact(value))
    yield "added", past(observation.created_at)
    if observation.version > 1:
        yield "changed", past(observation.updated_at)
    if observation.is_open and observation.expires_at is not None:
        yield "expires", Cell(f"in {ahead(observation.expires_at, now)}, {clock(observation.expires_at, now)}")
    if observation.reason or observation.reason_code:
        code = (observation.reason_code or "").replace("_", " ")
        yield "why", Cell(one_line(": ".join(each for each in (code, observation.reason) if each)))
    if claim := observation.claim:
        held = f"by {claim.by} for {ahead(claim.until, now)} more, fence {claim.fence}"
        yield "claimed", Cell(held, "magenta")
    yield from _reminder(observation, now)
    if observation.evidence:
        yield "evidence", Cell(", ".join(id + " (refuted)" * (id in refuted) for id in observation.evidence))
    if observation.links:
        yield "links", Cell(one_line(", ".join(observation.links)))
    if observation.seen_by:
        yield "seen by", Cell(", ".join(observation.seen_by))
    if observation.followed:
        yield "followed", Cell(one_line(", ".join(observation.followed)))
    if observation.dedupe_key is not None:
        yield "dedupe key", Cell(one_line(observation.dedupe_key))
    if observation.damaged:
        yield "damaged", Cell("an event about it could not be read", "bold red")
    yield "version", Cell(f"{observation.version} at {observation.position}, page {observation.page}", "dim")


def _reminder(observation: Observation, now: datetime) -> Iterator[tuple[str, Cell]]:
    if observation.remind_at is not None:
        yield "due", Cell(f"in {ahead(observation.remind_at, now)}, {clock(observation.remind_at, now)}", "yellow")
    if observation.remind_on is not None:
        yield "due", Cell(f"when {compact(observation.remind_on)} happens", "yellow")
    if observation.due_at is not None:
        yield "due", Cell(f"since {clock(observation.due_at, now)}", "bold yellow")


def show_event(session: Session, event: Event) -> None:
    """Show one event of the log in one line."""
    from scratchbus.cli import columns
    from scratchbus.cli.documents import event_document

    if session.as_json:
        session.out.document(event_document(event))
    else:
        session.out.row(columns.heads(columns.LOG), columns.row_of(columns.LOG, event))


def exporter(session: Session, form: str) -> Callable[[Event], None]:
    """Return what prints events whole, as JSON Lines or as CSV; the names of the columns are printed first."""
    from scratchbus.archive.export import line_of
    from scratchbus.eventlog.codec import encode_body

    if form == "jsonl":
        return lambda event: session.out.json_line(line_of(event))
    names = ("position", "at", "id", "page", "subject", "kind", "type", "by", "batch", "event")
    session.out.csv_row(names)

    def write(event: Event) -> None:
        place = (str(event.position), event.at.isoformat())
        envelope = (getattr(event, name) for name in names[2:-1])
        session.out.csv_row([*place, *envelope, escaped(encode_body(event).decode())])

    return write


def show_watched(session: Session, change: str, id: str, observation: Observation | None) -> None:
    """Show in one line what happened to an observation, and how it is now; None when it is off the page."""
    from scratchbus.cli import columns
    from scratchbus.cli.documents import observation_document

    if session.as_json:
        session.out.document({"change": change, "id": id, **(observation_document(observation) if observation else {})})
        return
    heads = [Heading("change", 14), *columns.heads(columns.OBSERVATION)]
    if observation is None:
        session.out.line(f"{change:<14}  {id}")
    else:
        session.out.row(heads, [Cell(change), *columns.row_of(columns.OBSERVATION, observation)])
