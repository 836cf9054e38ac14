"""The display of observations: rows, a card, a trace, differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import scratchbus
from scratchbus.cli.event_view import show_history
from scratchbus.cli.invocation import Invocation
from scratchbus.cli.output import Cell, Column, Columns, paragraphs
from scratchbus.cli.text import STATUS_STYLES, ago, ahead, clock, compact, id_cell, one_line, type_style
from scratchbus.cli.truncation import SPARE, WIDE


def type_cell(observation: scratchbus.Observation) -> Cell:
    """Return the type of an observation."""
    return Cell(observation.type, type_style(observation.priority))


def blocked_in(page: scratchbus.Page, found: Iterable[scratchbus.Observation]) -> frozenset[str]:
    """Return the ids of those that something open blocks. The bus is asked only if something may."""
    candidates = {each.id for each in found if each.blocked_by and each.status == "active"}
    return frozenset(candidates and candidates - {each.id for each in page.active()})


def status_cell(observation: scratchbus.Observation, blocked: Collection[str] = ()) -> Cell:
    """Return the status of an observation; a terminal hides `active` and shows what the observation waits for."""
    status = observation.status
    if status != "active":
        return Cell(status, STATUS_STYLES.get(status, ""))
    is_scheduled = observation.not_before is not None and observation.not_before == observation.remind_at
    waits = "scheduled" if is_scheduled else "blocked" if observation.id in blocked else ""
    waits = "recurs" if observation.every else waits
    return Cell(status, "dim" if waits else STATUS_STYLES.get(status, ""), waits)


def times_cell(observation: scratchbus.Observation) -> Cell:
    """Return how often an observation was seen, if that is more than once."""
    return Cell(f"×{observation.occurrences}" if observation.occurrences > 1 else "", "bold")


def content_cell(observation: scratchbus.Observation) -> Cell:
    """Return the content of an observation on one line."""
    return Cell(one_line(observation.content), "dim" if observation.status_class == "final" else "")


def columns_at(now: datetime | None = None, blocked: Collection[str] = ()) -> Columns[scratchbus.Observation]:
    """Return the columns of observations, with ages as of a time, and the ids of those that are blocked."""
    reference = now or datetime.now(UTC)
    return (
        Column("id", lambda each: id_cell(each.id), 26),
        Column("pri", lambda each: Cell(str(each.priority), "dim"), 3, right=True),
        Column("type", type_cell, 20, min_terminal=SPARE),
        Column("status", lambda each: status_cell(each, blocked), 14),
        Column("times", times_cell, 5, right=True),
        Column("age", lambda each: Cell(ago(each.created_at, reference), "dim"), 4, right=True, min_terminal=SPARE),
        Column(
            "expires",
            lambda each: Cell(ahead(each.expires_at, reference) if each.is_open else "", "dim"),
            4,
            right=True,
            min_terminal=WIDE,
        ),
        Column("source", lambda each: Cell(each.source, "cyan"), 16, min_terminal=WIDE),
        Column("claim", lambda each: Cell(each.claim.by if each.claim else "", "magenta"), 12),
        Column("content", content_cell),
    )


def show_change(invocation: Invocation, verb: str, observation: scratchbus.Observation) -> None:
    """Show an observation that was just changed, on one line."""
    cells = (id_cell(observation.id), times_cell(observation), type_cell(observation), content_cell(observation))
    invocation.out.row(columns_at(), observation, brief=(Cell(one_line(verb), "green"), *cells))


def show_watched(invocation: Invocation, change: str, id: str, observation: scratchbus.Observation | None) -> None:
    """Show what happened to a subject, and the observation as it is now, if it is one on the page, on one line."""
    change_column, id_column = Column[Any]("change", lambda _: Cell(change), 14), Column[Any]("id", lambda _: Cell(id))
    state = scratchbus.document_of(observation) if observation else {}
    columns = [change_column, *columns_at()] if observation else [change_column, id_column]
    invocation.out.row(columns, observation, {"change": change, "id": id, **state})


def show_card(
    invocation: Invocation,
    observation: scratchbus.Observation,
    history: Sequence[scratchbus.Event] | None,
    evidence: Mapping[str, scratchbus.Observation],
    blocked: Collection[str],
) -> None:
    """Show all fields of an observation, and its history if that is given.

    Of its evidence it says which was refuted, and which is on another page.
    """
    out, document = invocation.out, scratchbus.document_of(observation)
    if history is not None:
        document["history"] = list(map(scratchbus.document_of, history))
    status = status_cell(observation, blocked)
    status = status._replace(text="blocked" if observation.id in blocked else status.text, short=None)
    title = (id_cell(observation.id), type_cell(observation), status, times_cell(observation))
    out.block(document, title, paragraphs(observation.content), _details(observation, evidence))
    if history is not None and not out.as_json:
        out.line("")
        show_history(invocation, history)


def show_gone(invocation: Invocation, page: str, id: str, history: Sequence[scratchbus.Event]) -> None:
    """Show the events about an observation that is no longer on its page."""
    if invocation.as_json:
        documents = [scratchbus.document_of(event) for event in history]
        invocation.out.document({"id": id, "page": page, "history": documents})
    else:
        invocation.out.note(f"{id} is no longer on page {page!r}. Its history:")
        show_history(invocation, history)


def _as_evidence(id: str, found: scratchbus.Observation | None, page: str) -> str:
    """Return the id of evidence with its known peculiarities."""
    notes = []
    if found is not None and found.reason_code == "refuted":
        notes.append("refuted")
    if found is not None and found.page != page:
        notes.append(f"on page {found.page}")
    return f"{id} ({', '.join(notes)})" if notes else id


def _details(
    observation: scratchbus.Observation, evidence: Mapping[str, scratchbus.Observation]
) -> Iterator[tuple[str, Cell]]:
    """Yield the fields of an observation besides its content, by name."""
    now = datetime.now(UTC)

    def past(time: datetime) -> Cell:
        return Cell(f"{ago(time, now)} ago, {clock(time, now)}".replace("now ago", "now"))

    def future(time: datetime, style: str = "") -> Cell:
        return Cell(f"in {ahead(time, now)}, {clock(time, now)}", style)

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
        yield "expires", future(observation.expires_at)
    if observation.reason or observation.reason_code:
        code = (observation.reason_code or "").replace("_", " ")
        yield "why", Cell(one_line(": ".join(each for each in (code, observation.reason) if each)))
    if claim := observation.claim:
        claim_text = f"by {claim.by} for {ahead(claim.until, now)} more, fence {claim.fence}"
        yield "claimed", Cell(claim_text, "magenta")
    if observation.every is not None:
        yield "every", Cell(one_line(observation.every), "yellow")
    if observation.remind_at is not None:
        is_start = observation.remind_at == observation.not_before
        yield ("not before" if is_start else "due"), future(observation.remind_at, "yellow")
    if observation.remind_on is not None:
        yield "due", Cell(f"when {compact(observation.remind_on)} happens", "yellow")
    if observation.due_at is not None:
        yield "due", Cell(f"since {clock(observation.due_at, now)}", "bold yellow")
    if observation.evidence:
        named = (_as_evidence(id, evidence.get(id), observation.page) for id in observation.evidence)
        yield "evidence", Cell(one_line(", ".join(named)))
    for name in ("blocked_by", "links", "seen_by", "followed"):
        if texts := getattr(observation, name):
            yield name.replace("_", " "), Cell(one_line(", ".join(texts)))
    if observation.dedupe_key is not None:
        yield "dedupe key", Cell(one_line(observation.dedupe_key))
    if observation.damaged:
        yield "damaged", Cell("an event about it could not be read", "bold red")
    yield "version", Cell(f"{observation.version} at {observation.position}, page {observation.page}", "dim")


# -- traces ----------------------------------------------------------------------------------------------------------


def show_trace(invocation: Invocation, trace: scratchbus.Trace) -> None:
    """Show what led to an action: each observation, with its evidence indented below it."""
    out, now = invocation.out, datetime.now(UTC)
    if out.as_json:
        out.document(scratchbus.document_of(trace))
        return
    out.sentence(Cell(one_line(trace.action), "blue"))
    motives = iter(trace.motives)
    for branch in trace.tree():
        if branch.depth == 0:
            motive = next(motives)
            out.sentence(Cell("linked by"), Cell(motive.by, "cyan"), Cell(f"at {clock(motive.at, now)}", "dim"))
        out.sentence(*_branch(branch, trace.page, now))


def _branch(branch: scratchbus.Branch, page: str, now: datetime) -> Iterator[Cell]:
    """Yield the cells of an observation in a trace; its page only if that is another one."""
    each = branch.observation
    yield Cell("  " * branch.depth + " └", "dim")
    yield id_cell(branch.id)
    if each is None:
        yield Cell("is not there", "dim")
        return
    yield type_cell(each)
    yield status_cell(each)
    yield Cell("refuted" if each.reason_code == "refuted" else "", "bold red")
    yield Cell(f"on {each.page}" if each.page != page else "", "dim")
    yield Cell(each.source, "cyan")
    yield Cell(clock(each.created_at, now), "dim")
    yield Cell("as above", "dim") if branch.again else content_cell(each)


# -- differences -----------------------------------------------------------------------------------------------------

_SIGNS = {"added": ("+", "green"), "changed": ("~", "yellow"), "gone": ("-", "red")}
_DERIVED = {"status_class"}  # follows from another field that changed


def show_differences(invocation: Invocation, differences: Sequence[scratchbus.Difference], nothing: str) -> None:
    """Show how a page differs from another, and how many differences of each kind there are; note `nothing` if none."""
    out = invocation.out
    for each in differences:
        out.result(scratchbus.document_of(each), *_headline(each))
        for name, values in each.changes().items():
            if name not in _DERIVED and not out.as_json:
                before, after = map(_value, values)
                out.sentence(Cell(f"    {name + ':':<13}"), Cell(before, "red"), Cell("→"), Cell(after, "green"))
    counts: Counter[str] = Counter(each.kind for each in differences)
    out.note(", ".join(f"{counts[kind]:,} {kind}" for kind in _SIGNS if counts[kind]) or nothing)


def _headline(difference: scratchbus.Difference) -> Iterator[Cell]:
    sign, style = _SIGNS[difference.kind]
    yield Cell(sign, f"bold {style}")
    if each := difference.after or difference.before:
        yield id_cell(each.id)
        yield type_cell(each)
        if difference.kind != "changed":
            yield status_cell(each)
        yield Cell(one_line(each.content), "" if difference.kind == "changed" else style)


def _value(value: object) -> str:
    """Return the value of a field on one line."""
    match value:
        case None:
            return "none"
        case str():
            return one_line(value) or '""'
        case datetime():
            return value.isoformat(timespec="seconds")
        case _ if hasattr(value, "model_dump"):
            return compact(value.model_dump(mode="json"))
    return compact(value)
