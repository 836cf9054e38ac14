"""Observations and events as rows of cells: what each column says, and how it is coloured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Generic, NamedTuple, TypeVar

from scratchbus.cli.memory_events import remembered
from scratchbus.cli.output import IN_PIPES, WIDE, WIDER, WIDEST, Cell, Heading, Row
from scratchbus.cli.text import ago, ahead, clock, compact, one_line, plural, short
from scratchbus.domain.events import (
    Added,
    Claimed,
    ContextRendered,
    Due,
    Erased,
    Event,
    Linked,
    Repeated,
    StatusChanged,
    TypesChanged,
    Updated,
)
from scratchbus.domain.lifecycle import DEFAULT
from scratchbus.domain.observation import Observation
from scratchbus.domain.registry import ObservationType
from scratchbus.domain.values import duration_text
from scratchbus.projections.table import is_remembered

T = TypeVar("T")


class Column(NamedTuple, Generic[T]):
    """A column: its head, and what it says of a thing at a moment."""

    head: Heading
    cell: Callable[[T, datetime], Cell]


Columns = Sequence[Column[T]]


def heads(columns: Columns[T]) -> list[Heading]:
    """Return the heads of columns."""
    return [column.head for column in columns]


def row_of(columns: Columns[T], item: T, now: datetime | None = None) -> Row:
    """Return what the columns say of one thing."""
    now = now or datetime.now(UTC)
    return [column.cell(item, now) for column in columns]


def rows_of(columns: Columns[T], items: Iterable[T], now: datetime | None = None) -> list[Row]:
    """Return what the columns say of many things, all at one moment."""
    now = now or datetime.now(UTC)
    return [row_of(columns, item, now) for item in items]


# -- observations ----------------------------------------------------------------------------------------------------

STATUS_STYLES = {"pending_review": "yellow", "resolved": "green", "archived": "dim"}
"""The colours of statuses; others are as they are."""


def type_style(priority: int) -> str:
    """Return the colour of a type: the more urgent, the warmer."""
    for least, style in ((80, "bold red"), (60, "yellow"), (40, "cyan")):
        if priority >= least:
            return style
    return "blue"


def id_cell(id: str) -> Cell:
    """Return an id: whole in a pipe, its end on a terminal, unless it is a word."""
    return Cell(id, "bold", None if is_remembered(id) else short(id))


def type_cell(observation: Observation) -> Cell:
    """Return the type of an observation."""
    return Cell(observation.type, type_style(observation.priority))


def status_cell(observation: Observation) -> Cell:
    """Return the status of an observation; a terminal shows it when it is not the usual one."""
    status = observation.status
    return Cell(status, STATUS_STYLES.get(status, ""), "" if status == "active" else None)


def times_cell(observation: Observation) -> Cell:
    """Return how often it was seen, when that is more than once."""
    return Cell(f"×{observation.occurrences}" if observation.occurrences > 1 else "", "bold")


def content_cell(observation: Observation) -> Cell:
    """Return the content of an observation on one line."""
    return Cell(one_line(observation.content), "dim" if observation.status_class == "final" else "")


OBSERVATION: Columns[Observation] = (
    Column(Heading("id", 26), lambda each, now: id_cell(each.id)),
    Column(Heading("pri", 3, right=True), lambda each, now: Cell(str(each.priority), "dim")),
    Column(Heading("type", 20), lambda each, now: type_cell(each)),
    Column(Heading("status", 14), lambda each, now: status_cell(each)),
    Column(Heading("times", 5, right=True), lambda each, now: times_cell(each)),
    Column(Heading("age", 4, right=True), lambda each, now: Cell(ago(each.created_at, now), "dim")),
    Column(
        Heading("expires", 4, right=True, least=WIDE),
        lambda each, now: Cell(ahead(each.expires_at, now) if each.is_open else "", "dim"),
    ),
    Column(Heading("source", 16, least=WIDE), lambda each, now: Cell(each.source, "cyan")),
    Column(Heading("claim", 12), lambda each, now: Cell(each.claim.by if each.claim else "", "magenta")),
    Column(Heading("content"), lambda each, now: content_cell(each)),
)
"""What a list says of an observation."""


# -- events ----------------------------------------------------------------------------------------------------------

KIND_STYLES = {
    "added": "bold", "updated": "cyan", "repeated": "yellow", "status_changed": "green", "claimed": "magenta",
    "released": "magenta", "lapsed": "magenta", "linked": "blue", "due": "bold yellow", "cleared": "dim",
    "erased": "bold red", "types_changed": "cyan", "context_rendered": "dim",
}  # fmt: skip
"""The colours of the kinds of events; others are as they are."""

_TELLING = {"expired", "auto_archived", "displaced", "refuted", "reopened"}  # the rest follows from the status


def happened(event: Event) -> str:
    """Return what an event says beyond its kind, on one line."""
    match event:
        case Added():
            text = event.content
        case Updated():
            text = ", ".join(f"{name}: {_shown(value)}" for name, value in event.changes.items())
        case Repeated():
            text = f"×{event.times}"
        case StatusChanged():
            why = f" ({event.reason_code.replace('_', ' ')})" if event.reason_code in _TELLING else ""
            text = f"→ {event.status}{why}" + (f": {event.reason}" if event.reason else "")
        case Claimed():
            more = " more" if event.fence is not None else ""
            text = f"for {event.holder}, {duration_text(event.ttl)}{more}"
        case Linked():
            text = f"to {event.action}"
        case Due():
            text = f"by event {event.trigger}" if event.trigger else "its time has come"
        case Erased():
            text = f"{plural(len(event.positions), 'event')}: {event.reason}"
        case ContextRendered():
            seen = plural(len(event.observations), "observation")
            text = f"{seen}, {event.tokens:,} tokens, for {event.subject.removeprefix('context_')}"
        case TypesChanged():
            text = "the observation types; see `scratchbus types list`"
        case _:
            text = remembered(event)
    return one_line(text)


def _shown(value: object) -> str:
    return value if isinstance(value, str) else compact(value)


def _kind(event: Event) -> Cell:
    style = KIND_STYLES.get(event.kind, "")
    return Cell(event.kind, STATUS_STYLES.get(event.status, style) if isinstance(event, StatusChanged) else style)


def _time(event: Event, now: datetime) -> Cell:
    return Cell(event.at.isoformat(timespec="milliseconds"), "dim", clock(event.at, now))


_POSITION: Column[Event] = Column(Heading("position", 18, least=IN_PIPES), lambda each, now: Cell(str(each.position)))
_TIME: Column[Event] = Column(Heading("time", 29), _time)
_PAGE: Column[Event] = Column(Heading("page", 8, least=WIDEST), lambda each, now: Cell(each.page, "dim"))
_KIND: Column[Event] = Column(Heading("kind", 18), lambda each, now: _kind(each))
_BY: Column[Event] = Column(Heading("by", 16), lambda each, now: Cell(each.by, "cyan"))
_WHAT: Column[Event] = Column(Heading("what"), lambda each, now: Cell(happened(each)))

HISTORY: Columns[Event] = (
    _POSITION,
    Column(Heading("when", 5, right=True), lambda each, now: Cell(ago(each.at, now))),
    _TIME,
    _KIND,
    _BY,
    _WHAT,
)
"""What the history of one observation says of an event."""

LOG: Columns[Event] = (
    _POSITION,
    _TIME,
    _PAGE,
    _KIND,
    Column(Heading("id", 26), lambda each, now: id_cell(each.subject)),
    Column(Heading("type", 20, least=WIDER), lambda each, now: Cell(each.type)),
    _BY,
    _WHAT,
)
"""What the log says of an event."""

HAPPENED: Columns[Event] = (
    _TIME,
    _KIND,
    Column(Heading("id", 26), lambda each, now: id_cell(each.subject)),
    _BY,
    _WHAT,
)
"""What is said of the last events of a page."""


# -- types -----------------------------------------------------------------------------------------------------------


def _lasting(own: int | str | None) -> Cell:
    """Return a length of time; nothing where the settings say."""
    return Cell("" if own is None else own if isinstance(own, str) else duration_text(own), "dim")


def _unless_default(kind: ObservationType) -> str | None:
    return "" if kind.lifecycle.name == DEFAULT.name else None


TYPE: Columns[ObservationType] = (
    Column(Heading("type", 20), lambda each, now: Cell(each.name, type_style(each.priority))),
    Column(Heading("pri", 3, right=True), lambda each, now: Cell(str(each.priority))),
    Column(Heading("ttl", 5, right=True), lambda each, now: _lasting(each.default_ttl_ms)),
    Column(Heading("owner", 8), lambda each, now: Cell(each.default_owner or "", "cyan")),
    Column(Heading("lifecycle", 10), lambda each, now: Cell(each.lifecycle.name, "dim", _unless_default(each))),
    Column(Heading("description"), lambda each, now: Cell(one_line(each.description))),
)
"""What the list of types says of one."""
