"""The HTTP server: `serve`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any

import click

import scratchbus
from scratchbus.cli.commands import ENGINE, command
from scratchbus.cli.invocation import Invocation, pass_invocation, public_name
from scratchbus.cli.output import Cell

_file = click.Path(dir_okay=False)


def _address(context: click.Context, option: click.Parameter, text: str | None) -> str | None:
    """Return an address to listen on; what cannot be one is refused before the server is imported."""
    if text is not None:
        from scratchbus.daemon import check_address

        check_address(text)
    return text


def serve_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a server; the function gets them as `serve_arguments`."""
    listen_help = "Where; the host is 127.0.0.1.  [default: 8765]"
    click_options = (
        click.option("--listen", "address", metavar="[HOST:]PORT", callback=_address, help=listen_help),
        click.option(
            "--tokens",
            envvar="SCRATCHBUS_MCP_TOKENS",
            type=_file,
            metavar="FILE",
            help="The file with the tokens of its clients.  [$SCRATCHBUS_MCP_TOKENS]",
        ),
        click.option("--cert", type=_file, metavar="FILE", help="The certificate for TLS, in PEM."),
        click.option("--cert-key", type=_file, metavar="FILE", help="Its key, unless the same file has it."),
        click.option("--host", "hosts", multiple=True, metavar="NAME", help="A name (and :port) that clients use."),
        click.option(
            "--open/--no-open",
            "is_opened",
            default=None,
            help="Open the console in a browser.  [default: on a terminal]",
        ),
        click.option("--allow-private-webhooks", is_flag=True, help="Deliver webhooks to private addresses too."),
    )

    @wraps(function)
    def command(*args: Any, **options: Any) -> Any:
        serve_arguments = ServeArguments(**{each.name: options.pop(each.name) for each in fields(ServeArguments)})
        return function(*args, **options, serve_arguments=serve_arguments)

    for option in reversed(click_options):
        command = option(command)
    return command


@dataclass(frozen=True)
class ServeArguments:
    """The server's options from the command line."""

    address: str | None = None
    tokens: str | None = None
    cert: str | None = None
    cert_key: str | None = None
    hosts: tuple[str, ...] = ()
    is_opened: bool | None = None
    allow_private_webhooks: bool = False

    def options(self, invocation: Invocation) -> Any:
        """Return the options of the server. Raises SettingsError unless the extra is installed."""
        from pathlib import Path  # late, as all that `--help` does not need

        def path(name: str | None) -> Path | None:
            return None if name is None else Path(name)

        return http_name("HttpOptions")(
            where=self.address or "8765",
            settings={"url": invocation.url, "config": invocation.config, "bus": invocation.bus},
            tokens=path(self.tokens),
            certificate=path(self.cert),
            certificate_key=path(self.cert_key),
            hosts=self.hosts,
            allow_private_webhooks=self.allow_private_webhooks,
            source=invocation.settings().source,
        )

    def open(self, invocation: Invocation, serving: scratchbus.HttpServing) -> None:
        """Open the console, if requested."""
        if invocation.out.is_terminal if self.is_opened is None else self.is_opened:
            import webbrowser  # late, as all that `--help` does not need

            webbrowser.open(serving.to_open)


@command(
    examples=(
        "scratchbus serve",
        "scratchbus serve --listen 8080 --no-open",
        "scratchbus serve --listen 0.0.0.0:8443 --tokens tokens.yaml --cert cert.pem --cert-key key.pem",
    ),
    shared=(*ENGINE, "source"),
)
@serve_options
@pass_invocation
def serve(invocation: Invocation, serve_arguments: ServeArguments) -> None:
    """Serve the bus over HTTP, with its console.

    The API is at /api/v1, the console at /, MCP at /mcp. On a loopback address it serves the user who starts it; open
    the URL that is printed. Any other address needs --tokens, and every client a token with scopes.
    """
    from scratchbus.daemon import configure_logging

    run = http_name("serve_http")
    configure_logging(invocation.settings().log_level)

    def announce(serving: scratchbus.HttpServing) -> None:
        document = {"url": serving.url, "open": serving.to_open, "pid": os.getpid()}
        pairs = [("console", Cell(serving.to_open, "cyan")), ("api", Cell(f"{serving.url}/api/v1", "cyan"))]
        invocation.out.block(
            document, [Cell("scratchbus serves", "bold green")], "", [*pairs, ("ends", Cell("Ctrl-C"))]
        )
        serve_arguments.open(invocation, serving)

    run(serve_arguments.options(invocation), announce)


def http_name(name: str) -> Any:
    """Return what `scratchbus` exports by a name of the HTTP server. Raises SettingsError without the extra."""
    return public_name(name, "the HTTP server", "http")
