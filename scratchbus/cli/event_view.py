"""The display of events: in the log, in the history of an observation, and in exports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import chain, repeat

import scratchbus
from scratchbus.cli.invocation import Invocation
from scratchbus.cli.json_text import escaped_json
from scratchbus.cli.output import IN_PIPES, Cell, Column, Columns
from scratchbus.cli.text import STATUS_STYLES, TODO_MARKS, ago, clock, compact, id_cell, one_line, plural
from scratchbus.cli.truncation import SPARE, WIDER, WIDEST

KIND_STYLES = {
    "added": "bold", "updated": "cyan", "repeated": "yellow", "status_changed": "green", "claimed": "magenta",
    "released": "magenta", "lapsed": "magenta", "linked": "blue", "due": "bold yellow", "cleared": "dim",
    "erased": "bold red", "types_changed": "cyan", "relations_changed": "cyan", "context_rendered": "dim",
}  # fmt: skip
"""The colours of the kinds of events; the others have none."""

_SHOWN_REASONS = {"expired", "auto_archived", "displaced", "refuted", "reopened"}  # the others repeat the status


def columns_of(*titles: str, at: datetime | None = None) -> Columns[scratchbus.Event]:
    """Return these columns of events, with ages and times as of a time, by default now."""
    now = at or datetime.now(UTC)
    columns: Columns[scratchbus.Event] = (
        Column("position", lambda event: Cell(str(event.position)), 18, min_terminal=IN_PIPES),
        Column("when", lambda event: Cell(ago(event.at, now)), 5, right=True),
        Column(
            "time",
            lambda event: Cell(event.at.isoformat(timespec="milliseconds"), "dim", clock(event.at, now)),
            29,
        ),
        Column("page", lambda event: Cell(event.page, "dim"), 8, min_terminal=WIDEST),
        Column("kind", _kind_cell, max(map(len, scratchbus.events.EVENTS))),
        Column("id", lambda event: id_cell(event.subject), 27, wide_width=18),  # as "preference_…"; as "note_…"
        Column("type", lambda event: Cell(event.type), 20, min_terminal=WIDER),
        Column("by", lambda event: Cell(event.by, "cyan"), 16, min_terminal=SPARE),
        Column("what", lambda event: Cell(summary(event))),
    )
    return [column for column in columns if column.title in titles]


LOG = ("position", "time", "page", "kind", "id", "type", "by", "what")
"""The columns of the log."""

HISTORY = ("position", "when", "time", "kind", "by", "what")
"""The columns of the history of an observation."""

RECENT = ("time", "kind", "id", "by", "what")
"""The columns of the last events of a page."""


def summary(event: scratchbus.Event) -> str:
    """Return what an event says beyond its kind, on one line."""
    return one_line(_summary(event))


def _summary(event: scratchbus.Event) -> str:
    events = scratchbus.events
    match event:
        case events.Added() | events.NoteAdded() | events.TextWritten():
            return event.content
        case events.Updated():
            return ", ".join(
                f"{name}: {value if isinstance(value, str) else compact(value)}"
                for name, value in event.changes.items()
            )
        case events.Repeated():
            return f"×{event.times}"
        case events.StatusChanged():
            reason_text = f" ({event.reason_code.replace('_', ' ')})" if event.reason_code in _SHOWN_REASONS else ""
            return f"→ {event.status}{reason_text}" + (f": {event.reason}" if event.reason else "")
        case events.Claimed():
            more = " more" if event.fence is not None else ""
            return f"for {event.holder}, {scratchbus.duration_text(event.ttl)}{more}"
        case events.Linked():
            return f"to {event.action}"
        case events.Due():
            return f"by event {event.trigger}" if event.trigger else "its time has come"
        case events.Erased():
            return f"{plural(len(event.positions), 'position')}: {event.reason}"
        case events.ContextRendered():
            shown = plural(len(event.observations), "observation")
            shown += f" and {plural(len(event.files), 'file')}" if event.files else ""
            use = f"{event.tokens:,} tokens, for" if event.tokens else "read by"
            return f"{shown}, {use} {event.subject.removeprefix('context_')}"
        case events.TypesChanged():
            return "the observation types; see `scratchbus types list`"
        case events.RelationsChanged():
            return "the relations of facts; see `scratchbus facts relations`"
    return _summary_of_session(event) or _summary_of_knowledge(event)


def _summary_of_session(event: scratchbus.Event) -> str:
    """Return what an event of a session or an agent says."""
    events = scratchbus.events
    match event:
        case events.NotepadWritten() | events.ScratchpadWritten():
            return event.content or "cleared"
        case events.NotepadEdited():
            edit = f"{event.find} → {event.replace}" if event.find else event.content
            return f"{event.operation.replace('_', ' ')}: {edit}"
        case events.NoteUpdated():
            tags = None if event.tags is None else f"tags: {', '.join(event.tags) or 'none'}"
            return ", ".join(part for part in (event.content, tags) if part is not None)
        case events.SessionSpawned():
            return f"{'fork' if event.fork else 'spawn'} {event.session}"
        case events.SessionStarted():
            return f"from {event.parent}"
        case events.TodoWritten():
            items = " · ".join(f"{TODO_MARKS[item.status]} {item.id} {item.content}" for item in event.todos)
            return f"changed: {items}" if event.merge else items or "cleared"
        case events.TaskBegun():
            return event.title
        case events.TaskEnded():
            return event.summary
        case events.TurnAppended():
            return f"{event.role}: {event.content}"
        case events.TurnsCompacted():
            return f"for {plural(len(event.turns), 'turn')}: {event.content}"
        case events.RunEnded():
            return f"{event.outcome} after {plural(len(event.steps), 'step')}: {event.task}"
    return ""


def _summary_of_knowledge(event: scratchbus.Event) -> str:
    """Return what an event of a scope, a store or a directory says."""
    events = scratchbus.events
    match event:
        case events.FactAsserted():
            return f"{event.about} -> {event.relation} -> {event.object}"
        case events.FactRetracted():
            return event.reason
        case events.PreferenceRemembered():
            said_by = f" (said by {event.said_by})" if event.said_by not in (None, event.by) else ""
            return f"{event.key}: {event.text}{said_by}"
        case events.ItemPut():
            return f"{'/'.join(event.namespace)}/{event.key}: {compact(event.value)}"
        case events.FileWritten():
            return f"{event.path}, {plural(event.size, 'byte')}"
        case events.FileRemoved():
            return f"{event.path}: {event.why}"
        case events.TextEdited():
            return f"{event.find} → {event.content}" if event.line is None else event.content
        case events.TextDeleted():
            return f"now {event.target}" if event.target else ""
    return ""


def _kind_cell(event: scratchbus.Event) -> Cell:
    style = KIND_STYLES.get(event.kind, "")
    if isinstance(event, scratchbus.events.StatusChanged):
        style = STATUS_STYLES.get(event.status, style)
    return Cell(event.kind, style)


def show_history(invocation: Invocation, events: Sequence[scratchbus.Event], *, is_of_many: bool = False) -> None:
    """Show the events about one thing, or about many with the id of each on a terminal, oldest first."""
    titles = (*HISTORY, "id") if is_of_many and invocation.out.is_terminal else HISTORY
    keys = {event.subject: event.key for event in events if isinstance(event, scratchbus.events.PreferenceRemembered)}

    def what_cell(event: scratchbus.Event) -> Cell:
        return Cell(summary(event) or one_line(keys.get(event.subject, "")))  # forgetting a preference names its key

    columns = [each._replace(cell=what_cell) if each.title == "what" else each for each in columns_of(*titles)]
    invocation.out.listing(columns, events, empty="Nothing has happened yet")


def log_printer(invocation: Invocation) -> Callable[[scratchbus.Event], None]:
    """Return a function that prints an event of the log on one line; a terminal gets a heading for each new day."""
    out, day = invocation.out, datetime.now(UTC).astimezone().date()

    def show(event: scratchbus.Event) -> None:
        nonlocal day
        if out.is_terminal and day != (day := event.at.astimezone().date()):
            out.sentence(Cell(f"{day:%A, %Y-%m-%d}", "dim"))
        out.row(columns_of(*LOG, at=event.at), event)

    return show


def exporter(
    invocation: Invocation, form: str, until: scratchbus.BusPosition | None
) -> Callable[[scratchbus.Event], None]:
    """Return a function that prints an event whole, as JSON Lines, CloudEvents or CSV; print the heading of CSV.

    The first of the JSON Lines says the position `until` which the export goes, if it is that of the whole bus.
    """
    if form == "cloudevents":
        bus = invocation.settings().bus
        return lambda event: invocation.out.document(scratchbus.cloud_event(event, bus))
    if form == "jsonl":
        ends = chain([until], repeat(None))
        return lambda event: invocation.out.json_line(scratchbus.export_line(event, next(ends)))
    names = ("position", "at", "id", "page", "subject", "kind", "type", "by", "batch", "event")
    invocation.out.csv_row(names)

    def write(event: scratchbus.Event) -> None:
        row = scratchbus.export_row(event)
        row["event"] = escaped_json(row["event"])
        invocation.out.csv_row([row[name] for name in names])

    return write
