"""The display of the status of a bus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import scratchbus
from scratchbus.cli.invocation import Invocation, command_line
from scratchbus.cli.output import Cell, Column, Columns, Output
from scratchbus.cli.text import clock, plural, span

T = TypeVar("T")

_MAX_SHOWN = 20  # subscriptions
_MIB = 1 << 20
_NEARLY = 0.9  # of the memory limit of the engine


def engine_document(status: scratchbus.Status) -> dict[str, Any]:
    """Return the engine as a JSON document, with the socket and process of an embedded one."""
    from pathlib import Path  # late, as all that `--help` does not need

    found: dict[str, Any] = {
        "url": status.url, "bus": status.bus, "engine": status.engine, "version": status.version,
        "directory": status.directory, "socket": None, "engine_pid": None,
    }  # fmt: skip
    running = scratchbus.find_engine(Path(status.directory)) if status.directory else None
    if running is not None:
        found |= {"socket": str(running.socket), "engine_pid": running.pid}
    return found


def connection_hint(status: scratchbus.Status) -> Iterator[tuple[str, Cell]]:
    """Yield the engine and how to connect to it, by name."""
    engine = engine_document(status)
    kind = "embedded, shared by all your processes" if status.directory else "a server"
    name = f"{status.engine} {status.version}" if status.version != status.engine else status.engine
    yield "engine", Cell(f"{name}, {kind}")
    yield "url", Cell(status.url, "bold")
    if engine["socket"]:
        yield "socket", Cell(f"{engine['socket']} (process {engine['engine_pid']})", "dim")
    url = None if status.directory == str(scratchbus.embedded_directory()) else status.url
    bus = None if status.bus == default_bus() else status.bus
    arguments = [*([] if url is None else [repr(url)]), *([] if bus is None else [f"bus={bus!r}"])]
    yield "connect", Cell(f"Bus.connect({', '.join(arguments)})", "cyan")
    yield "", Cell(command_line("active", {"--url": url, "--bus": bus}), "cyan")


def default_bus() -> str:
    """Return the name of the bus where none is given."""
    from scratchbus.settings import Settings  # late: it imports pydantic, which `--help` does not need

    return str(Settings.model_fields["bus"].default)


def show_status(invocation: Invocation, status: scratchbus.Status) -> None:
    """Show the status of a bus."""
    out = invocation.out
    name = "" if status.bus == default_bus() else f"bus {status.bus}"
    title, pairs = [Cell("scratchbus", "bold"), Cell(name)], [*connection_hint(status), *_state(status)]
    out.block({**status.model_dump(mode="json"), **engine_document(status)}, title, "", pairs)
    if out.as_json:
        return
    if status.subscriptions:
        worst = sorted(status.subscriptions, key=lambda each: (-each.dead_letters, -each.lag, each.name))
        _section(out, _subscription_columns(), worst[:_MAX_SHOWN], len(worst), "subscription")
    if status.pages:
        _section(out, _PAGE, status.pages, status.page_count, "page")
    else:
        missing = f"Bus {status.bus} has no page yet; check its name, or" if name else "There is no page yet;"
        out.note(f"{missing} add an observation with {invocation.hint('add TYPE CONTENT --source NAME')}")


def _section(out: Output, columns: Columns[T], items: Sequence[T], total: int, noun: str) -> None:
    """Print a table with a heading, and how many items it leaves out."""
    out.line("")
    out.table(columns, items, titled=True)
    if total > len(items):
        out.sentence(Cell(f"and {plural(total - len(items), f'more {noun}')}", "dim"))


def _state(status: scratchbus.Status) -> Iterator[tuple[str, Cell]]:
    if status.memory_bytes != 0:
        yield "memory", _memory(status)
    yield "keeps", Cell(status.persistence)
    for risk in status.risks:
        yield "", Cell(risk, "bold red")
    yield "types", Cell(f"{len(status.types)}, version {status.registry_version}")
    is_sharded = len(status.shards) > 1
    for shard in status.shards:
        yield (
            f"log {shard.shard}" if is_sharded else "log",
            Cell(f"{plural(shard.events, 'event')}, ends at {shard.end}"),
        )
        if shard.floor:
            archive = status.archive or "which archive_url does not name here"
            yield "", Cell(f"up to {shard.floor} in the archive, {archive}")
        yield "", _projection(shard)
        if shard.rejected:
            yield "", Cell(f"{plural(shard.rejected, 'event')} could not be read and are set aside", "bold red")
        if shard.foreign:
            count = f"{shard.foreign:,} {'entry' if shard.foreign == 1 else 'entries'}"
            text = f"{count} behind the end, added by hand: nothing can be written"
            yield "", Cell(f"{text}; run `scratchbus repair`", "bold red")
        for gap in shard.gaps:
            text = f"missing before {gap.before}: {plural(gap.missing, 'event')}, which a backup may have"
            yield "", Cell(text, "bold red")
    if status.pages:
        yield "open", Cell(f"{plural(status.open, 'observation')} on {plural(status.page_count, 'page')}")


def _memory(status: scratchbus.Status) -> Cell:
    if status.memory_bytes is None:
        return Cell("unknown")
    used = f"{status.memory_bytes / _MIB:,.1f} MiB"
    if status.memory_limit_bytes is None:
        return Cell(used)
    is_short = status.memory_bytes > _NEARLY * status.memory_limit_bytes
    return Cell(f"{used} of {status.memory_limit_bytes / _MIB:,.1f} MiB", "bold red" if is_short else "")


def _projection(shard: scratchbus.ShardStatus) -> Cell:
    """Return how far the projection is behind the log; readers catch up themselves."""
    if shard.lag:
        age = f"{span(shard.lag_seconds)} old" if shard.lag_seconds >= 1 else "new"
        behind = f"projection {plural(shard.lag, 'event')} behind, the oldest {age}"
        return Cell(f"{behind}; `scratchbus up` keeps it current", "yellow")
    return Cell("projection up to date", "green")


_PAGE: Columns[scratchbus.PageStatus] = (
    Column("open", lambda each: Cell(f"{each.open:,}"), 5, right=True),
    Column(
        "claimed", lambda each: Cell("?" if each.claimed is None else str(each.claimed or ""), "magenta"), right=True
    ),
    Column("page", lambda each: Cell(each.page, "cyan")),
)


def _subscription_columns() -> Columns[scratchbus.SubscriptionStatus]:
    now = datetime.now(UTC)

    def consumer(each: scratchbus.SubscriptionStatus) -> Cell:
        if each.holder is not None and each.since is not None:
            return Cell(f"{each.holder}, since {clock(each.since, now)}")
        if each.dropped is not None:
            return Cell(f"dropped {clock(each.dropped, now)}, unconsumed for too long", "yellow")
        return Cell("nobody", "yellow" if each.lag else "dim")

    return (
        Column("subscription", lambda each: Cell(each.name, "cyan")),
        Column("behind", lambda each: Cell(f"{each.lag:,}", "yellow" if each.lag else "green"), right=True),
        Column("oldest", lambda each: Cell(span(each.lag_seconds) if each.lag else "", "yellow"), right=True),
        Column(
            "dead letters",
            lambda each: Cell(f"{each.dead_letters:,}" if each.dead_letters else "", "bold red"),
            right=True,
        ),
        Column("failed", lambda each: Cell(f"{each.attempts}×" if each.attempts else "", "yellow"), right=True),
        Column("consumer", consumer),
    )
