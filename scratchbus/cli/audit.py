"""Looking back: `replay` and `diff`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from scratchbus.cli.common import Place, Session, command, pass_session
from scratchbus.cli.output import Cell
from scratchbus.cli.render import show_list
from scratchbus.cli.text import clock, compact, one_line
from scratchbus.cli.values import when

if TYPE_CHECKING:
    from scratchbus import Difference, PastPage
    from scratchbus.timetravel import When

_WHEN = "a position, or a time: 10m ago, 14:02, yesterday 14:02, ISO 8601"
_SIGNS = {"added": ("+", "green"), "changed": ("~", "yellow"), "gone": ("-", "red")}
_FOLLOWS = {"status_class"}  # from another field that changed


@command(
    examples=(
        "scratchbus replay --until 14:02",
        "scratchbus replay --until '10m ago' --active",
        "scratchbus replay --without-source fraud_detector",
    )
)
@click.option("--until", metavar="WHEN", help=f"When: {_WHEN}.  [default: now]")
@click.option(
    "--without-source", "sources", multiple=True, metavar="NAME", help="Show what would differ; may be repeated."
)
@click.option("--active", "only_active", is_flag=True, help="Only what was active, by priority.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most so many.  [default: all]")
@pass_session
def replay(session: Session, until: str | None, sources: tuple[str, ...], only_active: bool, limit: int | None) -> None:
    """Show the page as it was.

    All that was on it, newest first. A time without a day is the last one that there was, by the clock of this machine;
    one in ISO 8601 without a zone is UTC.

    With --without-source it shows what would differ had these been silent: without what they published, and all that
    rested on it. That reads the whole log up to then, on all pages.
    """
    if sources and (only_active or limit is not None):
        raise click.UsageError("--without-source shows what would differ, and takes no --active or --limit")
    with session.open() as place:
        moment = _moment(place, "until", until)
        past = _past(place, moment)
        if sources:
            _show_differences(session, past.diff(_past(place, moment, sources)), "Nothing would be different")
            return
        found = past.active(limit) if only_active else past.list(limit=limit)
        _say_when(session, past)
    show_list(session, found, past.at)
    if not found:
        session.out.note("Nothing was there" if not only_active else "Nothing was active")


@command(
    examples=(
        "scratchbus diff --from 1h --to '30m ago'",
        "scratchbus --json diff --from yesterday\\ 14:02 | jq .fields",
    )
)
@click.option("--from", "start", required=True, metavar="WHEN", help=f"Before: {_WHEN}.")
@click.option("--to", "end", metavar="WHEN", help="After: the same.  [default: now]")
@pass_session
def diff(session: Session, start: str, end: str | None) -> None:
    """Show how the page changed between two moments.

    What was added, what changed field by field, and what is gone. With --json one document for each difference.
    """
    with session.open() as place:
        before, after = (_past(place, _moment(place, *each)) for each in (("from", start), ("to", end)))
        _show_differences(session, before.diff(after), "Nothing is different")


def _moment(place: Place, option: str, text: str | None) -> When:
    return place.bus.position() if text in (None, "now") else when(option, str(text))


def _past(place: Place, moment: When, sources: Sequence[str] = ()) -> PastPage:
    from scratchbus.cli.progress import progress_bar

    with progress_bar("Replaying") as progress:
        return place.page.as_of(moment, sources, progress=progress)


def _say_when(session: Session, past: PastPage) -> None:
    if session.out.is_terminal:
        session.out.note(f"{past.name} as of {clock(past.at, datetime.now(UTC))}, position {past.position}")


def _show_differences(session: Session, differences: Sequence[Difference], nothing: str) -> None:
    from scratchbus.cli.documents import difference_document

    out = session.out
    if out.as_json:
        for each in differences:
            out.document(difference_document(each))
        return
    for each in differences:
        out.sentence(*_headline(each))
        for cells in _changes(each):
            out.sentence(*cells)
    counts: Counter[str] = Counter(each.kind for each in differences)
    out.note(", ".join(f"{counts[kind]:,} {kind}" for kind in _SIGNS if counts[kind]) or nothing)


def _headline(difference: Difference) -> Iterator[Cell]:
    from scratchbus.cli import columns

    sign, style = _SIGNS[difference.kind]
    yield Cell(sign, f"bold {style}")
    if each := difference.after or difference.before:
        yield columns.id_cell(each.id)
        yield columns.type_cell(each)
        if difference.kind != "changed":
            yield columns.status_cell(each)
        yield Cell(one_line(each.content), "" if difference.kind == "changed" else style)


def _changes(difference: Difference) -> Iterator[tuple[Cell, ...]]:
    for name, (before, after) in difference.changes().items():
        if name not in _FOLLOWS:
            yield Cell(f"    {name + ':':<13}"), Cell(_value(before), "red"), Cell("→"), Cell(_value(after), "green")


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
