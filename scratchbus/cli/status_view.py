"""How the state of a bus looks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scratchbus.cli.common import Session
from scratchbus.cli.output import Cell, Heading, Output, Row
from scratchbus.cli.text import clock, plural, span

if TYPE_CHECKING:
    from scratchbus.status import PageStatus, ShardStatus, Status
    from scratchbus.subscriptions import SubscriptionStatus

_PAGES = (Heading("open", 5, right=True), Heading("claimed", right=True), Heading("page"))
_SUBSCRIPTIONS = (
    Heading("subscription"),
    Heading("behind", right=True),
    Heading("oldest", right=True),
    Heading("dead letters", right=True),
    Heading("failed", right=True),
    Heading("consumer"),
)
_MOST = 20  # subscriptions
_MIB = 1 << 20
_NEARLY = 0.9  # of the memory that the engine may use


def where_it_is(status: Status) -> dict[str, Any]:
    """Return where the engine is, and what it is; the socket and process of an embedded one too."""
    from scratchbus.engine.embedded.server import find_running

    found: dict[str, Any] = {
        "url": status.url, "bus": status.bus, "engine": status.engine, "version": status.version,
        "directory": status.directory, "socket": None, "engine_pid": None,
    }  # fmt: skip
    running = find_running(Path(status.directory)) if status.directory else None
    if running is not None:
        found |= {"socket": str(running.socket), "engine_pid": running.pid}
    return found


def connection_hint(status: Status) -> Iterator[tuple[str, Cell]]:
    """Yield where the engine is and how a program comes to it, by name."""
    from scratchbus.engine.embedded.server import default_directory

    where = where_it_is(status)
    kind = "embedded, shared by all your processes" if status.directory else "a server"
    name = f"{status.engine} {status.version}" if status.version != status.engine else status.engine
    yield "engine", Cell(f"{name}, {kind}")
    yield "url", Cell(status.url, "bold")
    if where["socket"]:
        yield "socket", Cell(f"{where['socket']} (process {where['engine_pid']})", "dim")
    bus = "" if status.bus == _default_bus() else f", bus={status.bus!r}"
    is_default = status.directory is not None and Path(status.directory) == default_directory()
    address = "" if is_default and not bus else repr(None if is_default else status.url)
    yield "connect", Cell(f"Bus.connect({address}{bus})", "cyan")
    yield "", Cell("scratchbus active" if is_default else f"scratchbus --url {status.url} active", "cyan")


def _default_bus() -> str:
    from scratchbus.settings import Settings

    return str(Settings.model_fields["bus"].default)


def show_status(session: Session, status: Status) -> None:
    """Show a bus as a whole."""
    out = session.out
    if out.as_json:
        out.document({**status.model_dump(mode="json"), **where_it_is(status)})
        return
    name = "" if status.bus == _default_bus() else f"bus {status.bus}"
    out.block([Cell("scratchbus", "bold"), Cell(name)], "", [*connection_hint(status), *_state(status)])
    if status.subscriptions:
        now = datetime.now(UTC)
        worst = sorted(status.subscriptions, key=lambda each: (-each.dead_letters, -each.lag, each.name))
        _section(out, _SUBSCRIPTIONS, [_subscription(each, now) for each in worst[:_MOST]])
        _rest(out, len(worst) - _MOST, "subscription")
    if status.pages:
        _section(out, _PAGES, [_page(each) for each in status.pages])
        _rest(out, status.page_count - len(status.pages), "page")
    else:
        out.note("No page yet: add something with `scratchbus add TYPE CONTENT --source NAME`")


def _section(out: Output, headings: Sequence[Heading], rows: Sequence[Row]) -> None:
    """Show a table below others; in a pipe, too, its first line says what is in it."""
    out.line("")
    titles = [] if out.is_terminal else [[Cell(head.title) for head in headings]]
    out.table(headings, [*titles, *rows])


def _rest(out: Output, count: int, noun: str) -> None:
    if count > 0:
        out.sentence(Cell(f"and {count:,} more {noun}{'' if count == 1 else 's'}", "dim"))


def _state(status: Status) -> Iterator[tuple[str, Cell]]:
    if status.memory_bytes != 0:
        yield "memory", _memory(status)
    yield "keeps", Cell(status.persistence)
    for risk in status.risks:
        yield "", Cell(risk, "bold red")
    yield "types", Cell(f"{len(status.types)}, version {status.registry_version}")
    several = len(status.shards) > 1
    for shard in status.shards:
        yield f"log {shard.shard}" if several else "log", Cell(f"{plural(shard.events, 'event')}, ends at {shard.end}")
        if shard.floor:
            where = status.archive or "which archive_url does not name here"
            yield "", Cell(f"up to {shard.floor} in the archive, {where}")
        yield "", _projection(shard)
        if shard.rejected:
            yield "", Cell(f"{plural(shard.rejected, 'event')} could not be read and are set aside", "bold red")
        for gap in shard.gaps:
            text = f"missing before {gap.before}: {plural(gap.missing, 'event')}, which a backup may have"
            yield "", Cell(text, "bold red")
    if status.pages:
        yield "open", Cell(f"{plural(status.open, 'observation')} on {plural(status.page_count, 'page')}")


def _memory(status: Status) -> Cell:
    if status.memory_bytes is None:
        return Cell("unknown")
    used = f"{status.memory_bytes / _MIB:,.1f} MiB"
    if status.memory_limit_bytes is None:
        return Cell(used)
    is_short = status.memory_bytes > _NEARLY * status.memory_limit_bytes
    return Cell(f"{used} of {status.memory_limit_bytes / _MIB:,.1f} MiB", "bold red" if is_short else "")


def _projection(shard: ShardStatus) -> Cell:
    """Return how far the projection is; reading catches up with it in any case."""
    if shard.lag:
        behind = f"projection {plural(shard.lag, 'event')} behind, the oldest {_age(shard.lag_seconds)}"
        return Cell(f"{behind}; `scratchbus up` keeps it current", "yellow")
    return Cell("projection up to date", "green")


def _age(seconds: float) -> str:
    return f"{span(seconds)} old" if seconds >= 1 else "new"


def _page(page: PageStatus) -> list[Cell]:
    claimed = "?" if page.claimed is None else str(page.claimed or "")
    return [Cell(f"{page.open:,}"), Cell(claimed, "magenta"), Cell(page.page, "cyan")]


def _subscription(each: SubscriptionStatus, now: datetime) -> list[Cell]:
    """Return how far it is, what it failed at, and who has its lease."""
    holder = Cell("nobody", "yellow" if each.lag else "dim")
    if each.dropped is not None:
        holder = Cell(f"dropped {clock(each.dropped, now)}, unconsumed for too long", "yellow")
    if each.holder is not None and each.since is not None:
        holder = Cell(f"{each.holder}, since {clock(each.since, now)}")
    return [
        Cell(each.name, "cyan"),
        Cell(f"{each.lag:,}", "yellow" if each.lag else "green"),
        Cell(span(each.lag_seconds) if each.lag else "", "yellow"),
        Cell(f"{each.dead_letters:,}" if each.dead_letters else "", "bold red"),
        Cell(f"{each.attempts}×" if each.attempts else "", "yellow"),
        holder,
    ]
