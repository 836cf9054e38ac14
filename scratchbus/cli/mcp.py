"""The MCP server: `mcp`, and `mcp token` for its clients over HTTP."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any

import click
from click.core import ParameterSource

import scratchbus
from scratchbus.cli.commands import OUTPUT, PAGE, BusGroup, given, listed, session_option
from scratchbus.cli.invocation import Invocation, pass_invocation, public_name
from scratchbus.cli.output import Cell, Column, Columns
from scratchbus.cli.startup import keep_all, uncollected
from scratchbus.daemon import configure_logging_late, metrics_options, start_exporter

_TOKEN: Columns[scratchbus.McpToken] = (
    Column("NAME", lambda each: Cell(each.name)),
    Column("AGENT", lambda each: Cell(each.identity.agent)),
    Column("KIND", lambda each: Cell(each.identity.kind)),
    Column("PAGE", lambda each: Cell(each.identity.page)),
    Column("SESSION", lambda each: Cell(each.identity.session or "")),
    Column("EXPIRES", lambda each: Cell(f"{each.expires_at:%Y-%m-%d %H:%M}" if each.expires_at else "")),
    Column("TOOLS", lambda each: Cell(",".join(each.identity.tools))),
    Column("SCOPES", lambda each: Cell(",".join(each.scopes or ()))),
)


def _identity_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that describe an agent; the function gets them as `identity_options` and `groups`."""
    agent = click.option("--agent", metavar="NAME", help="The agent, as the source of its writes.  [default: --source]")
    kind = click.option("--kind", default="subagent", show_default=True, help="Its kind: subagent, person or daemon.")
    session = session_option("The session whose memory it uses.  [$SCRATCHBUS_SESSION, else a new one]")
    tools = click.option(
        "--tools", metavar="GROUPS", help="Its groups of tools, separated by commas, or all.  [default: basic]"
    )

    knowledge = click.option(
        "--knowledge", metavar="SCOPES",
        help="The users or projects whose preferences and facts it knows, separated by commas; it writes to the last.",
    )  # fmt: skip

    @wraps(function)
    def command(
        *args: Any, agent: str | None, kind: str, session_id: str | None, knowledge: str | None, tools: str | None,
        **options: Any,
    ) -> Any:  # fmt: skip
        identity_options = {"agent": agent, "kind": kind, "session": session_id, "knowledge": listed(knowledge) or []}
        return function(*args, identity_options=identity_options, groups=listed(tools), **options)

    decorated: Callable[..., Any] = command
    for option in (tools, knowledge, session, kind, agent):
        decorated = option(decorated)
    return decorated


_SCOPES = "Its scopes for the HTTP API: read, publish, act, admin, memory, separated by commas.  [default: none]"

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
    shared=(*PAGE, "source", "instance"),
)
@_identity_options
@click.option("--http", metavar="[HOST:]PORT", help="Serve over HTTP instead, to clients with a token.")
@_tokens_option
@metrics_options
@pass_invocation
@click.pass_context
def mcp(
    context: click.Context,
    invocation: Invocation,
    identity_options: dict[str, Any],
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
    given_here = {name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    instance = invocation.settings().instance
    settings = {"url": invocation.url, "config": invocation.config, "bus": invocation.bus, "instance": instance}
    if http is None:
        if "tokens" in given_here:
            raise click.UsageError("--tokens is for clients over HTTP; give --http too, or leave it out")
        identity = _identity(
            invocation, {**identity_options, "session": identity_options["session"] or scratchbus.new_id()}, groups
        )
        with uncollected():
            serve = public_name("serve_mcp_stdio", "an MCP server", "mcp")
            keep_all()
        configure_logging_late(lambda: invocation.settings().log_level)
        _measure(invocation, metrics_host, metrics_port)
        serve(identity, settings)
        return
    if given_here & {"agent", "kind", "session_id", "knowledge"} or invocation.page or invocation.source:
        options = "--agent, --kind, --session, --page, --source and --knowledge"
        raise click.UsageError(f"over HTTP these are set by the token; leave out {options}")
    from scratchbus.daemon import configure_logging

    file = _tokens(tokens).path
    serve = public_name("serve_mcp_http", "an MCP server", "mcp")
    configure_logging(invocation.settings().log_level)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # until the server handles it; a probe may come before
    _measure(invocation, metrics_host, metrics_port)
    serve(http, file, groups, settings, lambda url: _announce(invocation, url))


def _measure(invocation: Invocation, host: str, port: int | None) -> None:
    """Serve metrics if a port is given, on a bus of their own."""
    exporter = start_exporter(host, port)
    if exporter is not None:
        exporter.watching(
            lambda: scratchbus.Bus.connect(invocation.url, config=invocation.config, bus=invocation.bus)
        )()


def _announce(invocation: Invocation, url: str) -> None:
    document = {"url": url, "pid": os.getpid()}
    invocation.out.result(document, Cell("serving", "green"), Cell(f"MCP at {url}, until Ctrl-C"), is_whole=True)


@mcp.group("token", cls=BusGroup)
def token() -> None:
    """Add, list and revoke the tokens of clients over HTTP."""


@token.command(
    examples=("scratchbus mcp token add laptop --agent analyst --session s1 --tokens tokens.yaml",),
    shared=(*OUTPUT, "page", "source", "config"),
)
@click.argument("name")
@_identity_options
@click.option("--scopes", metavar="SCOPES", help=_SCOPES)
@click.option("--expires", metavar="DURATION", help="How long it is valid, such as 30d.  [default: until revoked]")
@_tokens_option
@pass_invocation
def add(
    invocation: Invocation,
    name: str,
    identity_options: dict[str, Any],
    groups: list[str] | None,
    scopes: str | None,
    expires: str | None,
    tokens: str | None,
) -> None:
    """Add a token and print it.

    It is shown only once: the file contains its digest.
    """
    identity = _identity(invocation, identity_options, groups)
    file, expires_at = _tokens(tokens), None if expires is None else _after(expires)
    secret = file.add(name, identity, expires_at, scopes=listed(scopes))
    try:
        invocation.out.text({"name": name, "token": secret, **_document(identity)}, secret)
    except OSError:  # nobody will ever see it
        file.revoke(name)
        raise


@token.command("list", shared=OUTPUT)
@_tokens_option
@pass_invocation
def ls(invocation: Invocation, tokens: str | None) -> None:
    """Show the tokens and their agents."""
    invocation.out.listing(
        _TOKEN,
        _tokens(tokens).all(),
        empty="There are no tokens; add one with `scratchbus mcp token add`",
        document=lambda each: {
            "name": each.name,
            **_document(each.identity),
            "scopes": list(each.scopes or ()),
            "expires_at": each.expires_at and each.expires_at.isoformat(timespec="seconds"),
        },
    )


@token.command(shared=OUTPUT)
@click.argument("name")
@_tokens_option
@pass_invocation
def revoke(invocation: Invocation, name: str, tokens: str | None) -> None:
    """Revoke a token; servers refuse it from then on."""
    _tokens(tokens).revoke(name)
    invocation.out.result({"revoked": name}, Cell("revoked", "green"), Cell(name))


def _after(duration: str) -> datetime:
    """Return the time after this duration. Raises InvalidTTL."""
    milliseconds = scratchbus.duration_ms(duration)
    if not isinstance(milliseconds, int):
        raise click.UsageError("--expires: give a duration such as 30d, or leave it out for never")
    return datetime.now(UTC) + timedelta(milliseconds=milliseconds)


def _identity(
    invocation: Invocation, identity_options: dict[str, Any], groups: list[str] | None
) -> scratchbus.McpIdentity:
    name = identity_options["agent"] or invocation.settings().source
    if name is None:
        raise click.UsageError("the server needs an agent; give --agent NAME")
    kind, session = identity_options["kind"] or None, identity_options["session"]
    page = invocation.page_in_force or None
    options = given(kind=kind, page=page, session=session, knowledge=identity_options["knowledge"])
    return scratchbus.McpIdentity.of(name, tools=groups, **options)


def _document(identity: scratchbus.McpIdentity) -> dict[str, Any]:
    fields = vars(identity)
    return {name: fields[name] for name in ("agent", "kind", "page", "session")} | {
        **given(knowledge=fields["knowledge"]), "tools": list(identity.tools),
    }  # fmt: skip


def _tokens(file: str | None) -> scratchbus.McpTokens:
    from pathlib import Path  # late, as all that `--help` does not need

    if file is None:
        raise click.UsageError("the tokens need a file; give --tokens FILE, or set SCRATCHBUS_MCP_TOKENS")
    return scratchbus.McpTokens(Path(file))
