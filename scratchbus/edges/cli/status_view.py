"""How the state of a bus looks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scratchbus.edges.cli.common import Session
from scratchbus.edges.cli.output import Cell, Heading
from scratchbus.edges.cli.words import plural, span

if TYPE_CHECKING:
    from scratchbus.status import ShardStatus, Status

_PAGES = (Heading("open", 5, right=True), Heading("page"))
_MIB = 1 << 20


def where_it_is(status: Status) -> dict[str, Any]:
    """Return where the engine is, and what it is; the socket and process of an embedded one too."""
    from scratchbus.log.embedded import find_running

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
    from scratchbus.log.embedded import default_directory

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
    if status.pages:
        rows = [[Cell(str(each.open)), Cell(each.page, "cyan")] for each in status.pages]
        out.line("")
        out.table(_PAGES, rows)
    else:
        out.note("No page yet: add something with `scratchbus add TYPE CONTENT --source NAME`")


def _state(status: Status) -> Iterator[tuple[str, Cell]]:
    if status.memory_bytes != 0:
        yield "memory", Cell("unknown" if status.memory_bytes is None else f"{status.memory_bytes / _MIB:.1f} MiB")
    yield "keeps", Cell(status.persistence)
    for risk in status.risks:
        yield "", Cell(risk, "bold red")
    yield "types", Cell(f"{len(status.types)}, version {status.registry_version}")
    several = len(status.shards) > 1
    for shard in status.shards:
        yield f"log {shard.shard}" if several else "log", Cell(f"{plural(shard.events, 'event')}, ends at {shard.end}")
        yield "", _projection(shard)


def _projection(shard: ShardStatus) -> Cell:
    """Return how far the projection is; reading catches up with it in any case."""
    if shard.rejected:
        return Cell(f"{plural(shard.rejected, 'event')} could not be read and are set aside", "bold red")
    if shard.lag:
        behind = f"projection {plural(shard.lag, 'event')}, {span(shard.lag_seconds)} behind"
        return Cell(f"{behind}; `scratchbus up` keeps it current", "yellow")
    return Cell("projection up to date", "green")
