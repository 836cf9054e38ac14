"""The bus as tools for agents: `mcp`."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

import click

from scratchbus.edges.cli.common import BusGroup, Session, pass_session
from scratchbus.edges.measuring import metrics_options, start_exporter
from scratchbus.errors import SettingsError

if TYPE_CHECKING:
    from scratchbus.settings import Settings


@click.group(
    "mcp",
    cls=BusGroup,
    invoke_without_command=True,
    examples=(
        "scratchbus mcp --agent analyst",
        "scratchbus mcp --agent analyst --session s1 --tools observations,notepad,todo",
    ),
)
@click.option("--agent", metavar="NAME", help="Who speaks: the source of all it does.  [--source]")
@click.option("--kind", default="subagent", show_default=True, help="What it is: subagent, person or daemon.")
@click.option("--session", "session_id", metavar="ID", help="The session whose notes, notepad and todo it has.")
@click.option("--tools", metavar="GROUPS", help="The groups of tools it has, with commas between.  [default: all]")
@metrics_options
@pass_session
@click.pass_context
def mcp(
    context: click.Context,
    session: Session,
    agent: str | None,
    kind: str,
    session_id: str | None,
    tools: str | None,
    metrics_host: str,
    metrics_port: int | None,
) -> None:
    """Serve the bus to an agent, as an MCP server.

    It speaks over standard input and output. Who the agent is, and where it works, is said here; its tools have no
    argument for that.
    """
    if context.invoked_subcommand is not None:
        return
    from scratchbus.edges.mcp.identity import Identity

    settings = session.settings()
    name = agent or settings.source
    if name is None:
        raise click.UsageError("say who speaks: --agent NAME")
    groups = None if tools is None else [group.strip() for group in tools.split(",") if group.strip()]
    identity = Identity.of(name, kind=kind, page=session.page or "main", session=session_id, tools=groups)
    _configure(settings)
    start_exporter(metrics_host, metrics_port)
    _main().run_stdio(identity, {"url": session.url, "config": session.config, "bus": session.bus})


def _configure(settings: Settings) -> None:
    from scratchbus.runtime import configure_logging

    configure_logging(settings.log_level)


def _main() -> ModuleType:
    """Return the module that needs the SDK. Raises SettingsError where that is not installed."""
    try:
        return import_module("scratchbus.edges.mcp.main")
    except ImportError as problem:
        raise SettingsError(f"an MCP server needs: pip install 'scratchbus[mcp]' ({problem})") from None
