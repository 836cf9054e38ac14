"""The MCP server: `mcp`, and `mcp token` for its clients over HTTP."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, cast

import click
from click.core import ParameterSource

import scratchbus
from scratchbus.cli.commands import BusGroup, given
from scratchbus.cli.invocation import Invocation, pass_session
from scratchbus.cli.output import Cell, Column, Columns
from scratchbus.daemon import metrics_options, start_exporter
from scratchbus.errors import SettingsError

_TOKEN: Columns[scratchbus.McpToken] = (
    Column("NAME", lambda each: Cell(each.name)),
    Column("AGENT", lambda each: Cell(each.identity.agent)),
    Column("KIND", lambda each: Cell(each.identity.kind)),
    Column("PAGE", lambda each: Cell(each.identity.page)),
    Column("SESSION", lambda each: Cell(each.identity.session or "")),
    Column("TOOLS", lambda each: Cell(",".join(each.identity.tools))),
)


def _identity_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that describe an agent; the function gets them as `who` and `groups`."""
    agent = click.option(
        "--agent", metavar="NAME", help="The agent, which is the source of its writes.  [default: --source]"
    )
    kind = click.option("--kind", default="subagent", show_default=True, help="What it is: subagent, person or daemon.")
    help = "The session whose memory it uses.  [$SCRATCHBUS_SESSION, else a new one]"
    session = click.option("--session", "session_id", envvar="SCRATCHBUS_SESSION", metavar="ID", help=help)
    tools = click.option("--tools", metavar="GROUPS", help="Its groups of tools, separated by commas.  [default: all]")

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
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="The file with the tokens.  [$SCRATCHBUS_MCP_TOKENS]",
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
@click.option("--http", metavar="[HOST:]PORT", help="Serve over HTTP instead, to clients with a token.")
@_tokens_option
@metrics_options
@pass_session
@click.pass_context
def mcp(
    context: click.Context,
    session: Invocation,
    who: dict[str, str | None],
    groups: list[str] | None,
    http: str | None,
    tokens: str | None,
    metrics_host: str,
    metrics_port: int | None,
) -> None:
    """Serve the bus to agents, as an MCP server.

    The server uses standard input and output. The options set the agent and its page; its tools have no arguments for
    these. Over HTTP they are set by the token. Claims belong to the agent and to this server: restart it with the same
    --instance to keep them.
    """
    if context.invoked_subcommand is not None:
        return
    from scratchbus.daemon import configure_logging

    instance = session.settings().instance
    settings = {"url": session.url, "config": session.config, "bus": session.bus, "instance": instance}
    if http is None:
        identity = _identity(session, {**who, "session": who["session"] or scratchbus.new_id()}, groups)
        serve = _served("serve_mcp_stdio")
        configure_logging(session.settings().log_level)
        _measure(session, metrics_host, metrics_port)
        serve(identity, settings)
        return
    is_session_given = context.get_parameter_source("session_id") is ParameterSource.COMMANDLINE
    if who["agent"] or session.page or is_session_given:
        raise click.UsageError("over HTTP these are set by the token; leave out --agent, --session and --page")
    file = _tokens(tokens).path
    serve = _served("serve_mcp_http")
    configure_logging(session.settings().log_level)
    _measure(session, metrics_host, metrics_port)
    serve(http, file, groups, settings, lambda url: _announce(session, url))


def _measure(session: Invocation, host: str, port: int | None) -> None:
    """Serve metrics if a port is given, on a bus of their own."""
    exporter = start_exporter(host, port)
    if exporter is not None:
        exporter.watching(lambda: scratchbus.Bus.connect(session.url, config=session.config, bus=session.bus))()


def _announce(session: Invocation, url: str) -> None:
    document = {"url": url, "pid": os.getpid()}
    session.out.result(document, Cell("serving", "green"), Cell(f"MCP at {url}, until Ctrl-C"))


@mcp.group("token", cls=BusGroup)
def token() -> None:
    """Add, list and revoke the tokens of clients over HTTP."""


@token.command(examples=("scratchbus mcp token add laptop --agent analyst --session s1 --tokens tokens.yaml",))
@click.argument("name")
@_identity_options
@_tokens_option
@pass_session
def add(
    session: Invocation, name: str, who: dict[str, str | None], groups: list[str] | None, tokens: str | None
) -> None:
    """Add a token and print it.

    It is shown only once: the file contains its digest.
    """
    identity = _identity(session, who, groups)
    made = _tokens(tokens).add(name, identity)
    session.out.text({"name": name, "token": made, **_document(identity)}, made)


@token.command("ls")
@_tokens_option
@pass_session
def ls(session: Invocation, tokens: str | None) -> None:
    """Show the tokens and their agents."""
    session.out.listing(
        _TOKEN,
        _tokens(tokens).all(),
        empty="There are no tokens; add one with `scratchbus mcp token add`",
        document=lambda each: {"name": each.name, **_document(each.identity)},
    )


@token.command()
@click.argument("name")
@_tokens_option
@pass_session
def revoke(session: Invocation, name: str, tokens: str | None) -> None:
    """Revoke a token; servers refuse it from then on."""
    _tokens(tokens).revoke(name)
    session.out.result({"revoked": name}, Cell("revoked", "green"), Cell(name))


def _identity(session: Invocation, who: dict[str, str | None], groups: list[str] | None) -> scratchbus.McpIdentity:
    name = who["agent"] or session.settings().source
    if name is None:
        raise click.UsageError("the server needs an agent; give --agent NAME")
    where = given(kind=who["kind"] or None, page=session.page or None, session=who["session"])
    return scratchbus.McpIdentity.of(name, tools=groups, **where)


def _document(identity: scratchbus.McpIdentity) -> dict[str, Any]:
    return {**vars(identity), "tools": list(identity.tools)}


def _tokens(file: str | None) -> scratchbus.McpTokens:
    from pathlib import Path  # late, as all that `--help` does not need

    if file is None:
        raise click.UsageError("the tokens need a file; give --tokens FILE, or set SCRATCHBUS_MCP_TOKENS")
    return scratchbus.McpTokens(Path(file))


def _served(name: str) -> Callable[..., None]:
    """Return a function that serves MCP, by its public name. Raises SettingsError unless the extra is installed."""
    try:
        return cast(Callable[..., None], getattr(scratchbus, name))
    except ImportError as problem:
        raise SettingsError(f"an MCP server needs: pip install 'scratchbus[mcp]' ({problem})") from None
