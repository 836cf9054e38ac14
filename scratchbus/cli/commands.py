"""The click classes and options that all commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import click

from scratchbus.cli.arguments import content_of
from scratchbus.cli.invocation import Invocation, pass_session

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""The click settings of every command."""


def _remember(context: click.Context, option: click.Parameter, value: Any) -> None:
    """Write an option into the session; the last one on the line wins."""
    session = context.ensure_object(Invocation)
    if value is not None:
        setattr(session, str(option.name), value)


def _shared(*names: str, **how: Any) -> click.Option:
    return click.Option(names, expose_value=False, callback=_remember, default=None, **how)


SHARED = (
    _shared("--page", metavar="NAME", help="The page to work on.  [default: main]"),
    _shared("--json", "as_json", is_flag=True, help="Print JSON, one document per line."),
    _shared("--source", metavar="NAME", help="The source of what you write.  [$SCRATCHBUS_SOURCE]"),
    _shared(
        "--instance",
        metavar="NAME",
        help="The connection that claims belong to.  [$SCRATCHBUS_INSTANCE, else this terminal]",
    ),
    _shared("--url", help="The URL of the engine.  [$SCRATCHBUS_URL, else the embedded engine]"),
    _shared("--bus", metavar="NAME", help="The name of the bus.  [$SCRATCHBUS_BUS]"),
    _shared("--config", metavar="FILE", help="The settings file.  [$SCRATCHBUS_CONFIG]"),
    _shared("--no-color", is_flag=True, help="Do not use colours.  [$NO_COLOR]"),
)
"""The options that every command takes, before or after its name."""


class BusCommand(click.Command):
    """A command that also takes the shared options, except those whose names its own options have."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **how: Any) -> None:
        how["context_settings"] = CONTEXT
        super().__init__(*args, **how)
        self._examples = examples
        own = {parameter.name for parameter in self.params}
        self.params += [option for option in SHARED if option.name not in own]

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the command does, then its examples."""
        super().format_help_text(ctx, formatter)
        if self._examples:
            with formatter.section("Example" if len(self._examples) == 1 else "Examples"):
                for line in self._examples:
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, then the shared ones."""
        for title, is_shared in (("Options", False), ("Options of every command", True)):
            with_help = [
                record
                for parameter in self.get_params(ctx)
                if isinstance(parameter, click.Option)
                and (parameter in SHARED) is is_shared
                and (record := parameter.get_help_record(ctx))
            ]
            if with_help:
                with formatter.section(title):
                    formatter.write_dl(with_help)


class BusGroup(BusCommand, click.Group):
    """A command with subcommands."""

    command_class = BusCommand

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then the subcommands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


def command(name: str | None = None, *, examples: Sequence[str] = ()) -> Callable[[Callable[..., Any]], BusCommand]:
    """Return a decorator that makes a function a command; its help shows the examples."""
    return click.command(name, cls=BusCommand, examples=examples)


fence_option = click.option("--fence", type=int, metavar="N", help="The fence of your claim, printed by `claim`.")
"""Adds `--fence`, which proves a claim."""

event_id_option = click.option(
    "--event-id", metavar="TEXT", help="An id that makes retries safe: the same id is applied once."
)
"""Adds `--event-id`, which makes a retry safe."""

revision_option = click.option(
    "--revision", type=int, metavar="N", help="Replace only this revision; 0 means that it is empty."
)
"""Adds `--revision`, the revision that a replacement is based on."""


def content_argument(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds an argument for a text; - reads it from standard input."""
    return click.argument(name, callback=_content)


def content_option(help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds `--content`; - reads it from standard input."""
    return click.option("--content", metavar="TEXT", callback=_content, help=help)


def _content(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    return text if text is None or context.resilient_parsing else content_of(text)


def session_memory(kind: str, *, writes: bool = False) -> Callable[[Callable[..., None]], Callable[..., Any]]:
    """Return a decorator that makes a function a command on a memory of a session.

    The function is called with the `Invocation`, the id of the session and its open memory, which is `bus.notes(id)`
    for the kind "notes". Adds `--session`, and `--event-id` if it writes.
    """
    option = click.option(
        "--session", "of", required=True, envvar="SCRATCHBUS_SESSION", metavar="ID",
        help="The id of the session.  [$SCRATCHBUS_SESSION]",
    )  # fmt: skip
    return _memory(kind, option, writes, speaks=False)


def agent_memory(kind: str, *, writes: bool = False) -> Callable[[Callable[..., None]], Callable[..., Any]]:
    """Return a decorator like `session_memory` for a memory of an agent, who is the source unless one is named."""
    return _memory(kind, click.argument("of", metavar="AGENT"), writes, speaks=True)


def _memory(kind: str, whose: Any, writes: bool, speaks: bool) -> Callable[[Callable[..., None]], Callable[..., Any]]:
    def decorate(function: Callable[..., None]) -> Callable[..., Any]:
        @wraps(function)
        def command(session: Invocation, of: str, **options: Any) -> None:
            if speaks:
                session.speak_as(of)
            with session.connect() as bus:
                function(session, of, getattr(bus, kind)(of), **options)

        made: Callable[..., Any] = whose(event_id_option(pass_session(command)) if writes else pass_session(command))
        return made

    return decorate


def given(**options: Any) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None and value != ()}
