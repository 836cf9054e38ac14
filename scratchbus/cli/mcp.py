"""The bus as tools for agents: `mcp`, and the tokens of those who use it over HTTP."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from scratchbus.cli.common import BusGroup, Session, pass_session
from scratchbus.cli.output import Cell, Heading
from scratchbus.daemon.metrics_options import metrics_options, start_exporter
from scratchbus.errors import SettingsError

if TYPE_CHECKING:
    from scratchbus.mcp.identity import Identity
    from scratchbus.mcp.tokens import Tokens


def _identity_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say who an agent is, and give the function what they say instead."""
    agent = click.option("--agent", metavar="NAME", help="Who speaks: the source of all it does.  [--source]")
    kind = click.option("--kind", default="subagent", show_default=True, help="subagent, person or daemon.")
    help = "The session whose memory it has; a new one if none is said.  [$SCRATCHBUS_SESSION]"
    session = click.option("--session", "session_id", envvar="SCRATCHBUS_SESSION", metavar="ID", help=help)
    tools = click.option("--tools", metavar="GROUPS", help="Its groups of tools, with commas between.  [default: all]")

    @wraps(function)
    def command(
        *given: Any, agent: str | None, kind: str, session_id: str | None, tools: str | None, **more: Any
    ) -> Any:
        who = {"agent": agent, "kind": kind, "session": session_id}
        groups = None if tools is None else [group.strip() for group in tools.split(",") if group.strip()]
        return function(*given, who=who, groups=groups, **more)

    for option in (tools, session, kind, agent):
        command = option(command)
    return command


_tokens_option = click.option(
    "--tokens",
    envvar="SCRATCHBUS_MCP_TOKENS",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The file of tokens.  [$SCRATCHBUS_MCP_TOKENS]",
)


@click.group(
    "mcp",
    cls=BusGroup,
    invoke_without_command=True,
    examples=(
        "scratchbus mcp --agent analyst",
        "scratchbus mcp --agent analyst --session s1 --tools observations,notepad,todo",
        "scratchbus mcp --http 8000 --tokens tokens.yaml",
    ),
)
@_identity_options
@click.option("--http", metavar="[HOST:]PORT", help="Serve over HTTP instead, to all who have a token.")
@_tokens_option
@metrics_options
@pass_session
@click.pass_context
def mcp(
    context: click.Context,
    session: Session,
    who: dict[str, str | None],
    groups: list[str] | None,
    http: str | None,
    tokens: Path | None,
    metrics_host: str,
    metrics_port: int | None,
) -> None:
    """Serve the bus to agents, as an MCP server.

    It speaks over standard input and output. Who the agent is, and where it works, is said here; its tools have no
    argument for that. Over HTTP the token says it. Claims belong to the agent and to this server: restart it with
    the same --instance to keep them.
    """
    if context.invoked_subcommand is not None:
        return
    from scratchbus.daemon.runtime import configure_logging
    from scratchbus.eventlog.ids import new_id
    from scratchbus.mcp.identity import GROUPS

    instance = session.settings().instance
    settings = {"url": session.url, "config": session.config, "bus": session.bus, "instance": instance}
    if http is None:
        identity = _identity(session, {**who, "session": who["session"] or new_id()}, groups)
        server = _server()
        configure_logging(session.settings().log_level)
        _measure(session, metrics_host, metrics_port)
        server.run_stdio(identity, settings)
        return
    is_session_given = context.get_parameter_source("session_id") is ParameterSource.COMMANDLINE
    if who["agent"] or session.page or is_session_given:
        raise click.UsageError("over HTTP the token says who speaks and where: leave out --agent, --session and --page")
    file = _tokens(tokens).path
    server = _server()
    configure_logging(session.settings().log_level)
    _measure(session, metrics_host, metrics_port)
    server.run_http(http, file, GROUPS if groups is None else groups, settings, lambda url: _announce(session, url))


def _measure(session: Session, host: str, port: int | None) -> None:
    """Serve metrics, if there is a port for them, on a bus of their own."""
    exporter = start_exporter(host, port)
    if exporter is not None:
        from scratchbus import Bus

        exporter.watching(lambda: Bus.connect(session.url, config=session.config, bus=session.bus))()


def _announce(session: Session, url: str) -> None:
    if session.as_json:
        session.out.document({"url": url, "pid": os.getpid()})
    else:
        session.out.sentence(Cell("serving", "green"), Cell(f"MCP at {url}, until Ctrl-C"))


@mcp.group("token", cls=BusGroup)
def token() -> None:
    """Make and revoke the tokens of those who use a server over HTTP."""


@token.command(examples=("scratchbus mcp token add laptop --agent analyst --session s1 --tokens tokens.yaml",))
@click.argument("name")
@_identity_options
@_tokens_option
@pass_session
def add(session: Session, name: str, who: dict[str, str | None], groups: list[str] | None, tokens: Path | None) -> None:
    """Make a token, and print it.

    It is shown this once: the file has only its digest.
    """
    identity = _identity(session, who, groups)
    made = _tokens(tokens).add(name, identity)
    if session.as_json:
        session.out.document({"name": name, "token": made, **_document(identity)})
    else:
        session.out.line(made)


@token.command("ls")
@_tokens_option
@pass_session
def ls(session: Session, tokens: Path | None) -> None:
    """Show whom there are tokens for."""
    found = _tokens(tokens).all()
    if session.as_json:
        for each in found:
            session.out.document({"name": each.name, **_document(each.identity)})
        return
    heads = [Heading(title) for title in ("NAME", "AGENT", "KIND", "PAGE", "SESSION", "TOOLS")]
    rows = []
    for each in found:
        identity = each.identity
        cells = (
            each.name,
            identity.agent,
            identity.kind,
            identity.page,
            identity.session or "",
            ",".join(identity.tools),
        )
        rows.append([Cell(text) for text in cells])
    session.out.table(heads, rows, empty="There are no tokens; make one with `scratchbus mcp token add`")


@token.command()
@click.argument("name")
@_tokens_option
@pass_session
def revoke(session: Session, name: str, tokens: Path | None) -> None:
    """Take a token away; servers refuse it from then on."""
    _tokens(tokens).revoke(name)
    if session.as_json:
        session.out.document({"revoked": name})
    else:
        session.out.sentence(Cell("revoked", "green"), Cell(name))


def _identity(session: Session, who: dict[str, str | None], groups: list[str] | None) -> Identity:
    from scratchbus.mcp.identity import Identity

    name = who["agent"] or session.settings().source
    if name is None:
        raise click.UsageError("say who speaks: --agent NAME")
    kind, page = who["kind"] or "subagent", session.page or "main"
    return Identity.of(name, kind=kind, page=page, session=who["session"], tools=groups)


def _document(identity: Identity) -> dict[str, Any]:
    return {
        "agent": identity.agent,
        "kind": identity.kind,
        "page": identity.page,
        "session": identity.session,
        "tools": list(identity.tools),
    }


def _tokens(file: Path | None) -> Tokens:
    from scratchbus.mcp.tokens import Tokens

    if file is None:
        raise click.UsageError("say where the tokens are: --tokens FILE, or $SCRATCHBUS_MCP_TOKENS")
    return Tokens(file)


def _server() -> ModuleType:
    """Return the module that needs the SDK. Raises SettingsError where that is not installed."""
    try:
        return import_module("scratchbus.mcp.main")
    except ImportError as problem:
        raise SettingsError(f"an MCP server needs: pip install 'scratchbus[mcp]' ({problem})") from None
