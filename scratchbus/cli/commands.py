"""The click classes and options that all commands share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, cast

import click
from click.core import augment_usage_errors

from scratchbus.cli.arguments import content_of
from scratchbus.cli.invocation import Invocation, pass_invocation
from scratchbus.cli.text import one_line

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""The click settings of every command."""


def _remember(context: click.Context, option: click.Parameter, value: Any) -> None:
    """Write an option into the invocation; the last one on the line wins."""
    invocation = context.ensure_object(Invocation)
    if value is not None:
        setattr(invocation, str(option.name), value)


def _shared(*names: str, **options: Any) -> click.Option:
    return click.Option(names, expose_value=False, callback=_remember, default=None, **options)


SHARED = (
    _shared("--page", metavar="NAME", help="The page to work on.  [$SCRATCHBUS_PAGE, else main]"),
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
"""The options accepted before the name of any command, and after the name of a command that they affect."""


def page_option(help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds `--page` to a command that ignores `SCRATCHBUS_PAGE`, with help that fits."""
    return click.option("--page", metavar="NAME", expose_value=False, callback=_remember, help=help)


OUTPUT = ("as_json", "no_color")
"""The shared options of a command that only prints."""

ENGINE = (*OUTPUT, "url", "bus", "config")
"""The shared options of a command that connects to a bus."""

PAGE = (*ENGINE, "page")
"""The shared options of a command that reads a page."""

ALL = tuple(str(option.name) for option in SHARED)

_MAX_RESULT = 200  # characters of a result that an error shows

_SHOWING = ("list", "query", "read")
"""The names of the subcommand that shows everything, which depend on the group."""


class BusCommand(click.Command):
    """A command that also takes the shared options that affect it, unless its own have the same name.

    A command with `--event-id` writes, so `--source` affects it; one with `--fence` changes a claimed observation, so
    `--instance` affects it too.
    """

    accepted: Sequence[str] | None = None
    """The accepted shared options; by default those that affect the command."""

    def __init__(
        self, *args: Any, examples: Sequence[str] = (), shared: Sequence[str] = ENGINE, **options: Any
    ) -> None:
        options["context_settings"] = CONTEXT
        super().__init__(*args, **options)
        self._examples = examples
        own_options = {parameter.name for parameter in self.params}
        self._relevant = {
            *shared,
            *(["source"] if "event_id" in own_options else []),
            *(["instance"] if "fence" in own_options else []),
        }
        accepted = self._relevant if self.accepted is None else self.accepted
        self.params += [option for option in SHARED if option.name in accepted and option.name not in own_options]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments. Every mistake names this command, also those that click's parser finds."""
        with augment_usage_errors(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. When the result of a write cannot be printed, the error says that it was made."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except OSError as problem:
            lines = getattr(problem, "__notes__", [])
            is_write = "event_id" in ctx.params and ctx.params.get("record") is not False  # a context without --record
            if not is_write or not lines:
                raise
            result = lines[0] if len(lines[0]) <= _MAX_RESULT else f"{lines[0][:_MAX_RESULT]}…"
            raise OSError(problem.errno, f"{problem.strerror}; the write was made, with the result {result}") from None

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description of the command, then its examples."""
        super().format_help_text(ctx, formatter)
        if self._examples:
            with formatter.section("Example" if len(self._examples) == 1 else "Examples"):
                for line in self._examples:
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, then the shared ones."""
        for title, is_shared in (("Options", False), ("Common options", True)):
            with_help = [
                record
                for parameter in self.get_params(ctx)
                if isinstance(parameter, click.Option)
                and (parameter in SHARED) is is_shared
                and (not is_shared or parameter.name in self._relevant)
                and (record := parameter.get_help_record(ctx))
            ]
            if with_help:
                with formatter.section(title):
                    formatter.write_dl(with_help)


class BusGroup(BusCommand, click.Group):
    """A command with subcommands. It accepts all shared options on their behalf."""

    command_class = BusCommand
    accepted = ALL

    def __init__(self, *args: Any, shared: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*args, shared=shared, **options)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; a missing `ls`, `list` or `show` is the one that shows everything."""
        names = (cmd_name, *_SHOWING) if cmd_name in ("ls", "list", "show") else (cmd_name,)
        return next((self.commands[name] for name in names if name in self.commands), None)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then the subcommands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the subcommands, each with its full first sentence."""
        commands = filter(None, (self.get_command(ctx, name) for name in self.list_commands(ctx)))
        with formatter.section("Commands"):
            formatter.write_dl([(str(each.name), each.get_short_help_str(1_000)) for each in commands])


def command(
    name: str | None = None, *, examples: Sequence[str] = (), shared: Sequence[str] = ENGINE
) -> Callable[[Callable[..., Any]], BusCommand]:
    """Return a decorator that makes a function a command; its help shows the examples, and the shared options."""
    return click.command(name, cls=BusCommand, examples=examples, shared=shared)


fence_option = click.option("--fence", type=int, metavar="N", help="The fence of your claim, printed by `claim`.")
"""Adds `--fence`, which proves a claim."""

event_id_option = click.option(
    "--event-id", metavar="TEXT", help="An id that makes retries safe: the same id is applied once."
)
"""Adds `--event-id`, which makes a retry safe."""

revision_option = click.option(
    "--revision", type=int, metavar="N", help="Replace only this revision; 0 means an empty memory."
)
"""Adds `--revision`, the revision that a replacement is based on."""


def session_option(help: str, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds `--session`, as `session_id`, or as `sessions` if it may be repeated."""
    name = "sessions" if "multiple" in options else "session_id"
    return click.option("--session", name, envvar="SCRATCHBUS_SESSION", metavar="ID", help=help, **options)


def scope_option(help: str, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds `--scope`, as `scope`, or as `scopes` if it may be repeated."""
    name = "scopes" if "multiple" in options else "scope"
    return click.option("--scope", name, envvar="SCRATCHBUS_SCOPE", metavar="NAME", help=help, **options)


required_scope = scope_option("The user or project, such as ada or ada/shop.  [$SCRATCHBUS_SCOPE]", required=True)
"""Adds `--scope`, without which a command does nothing."""


at_option = click.option("--at", metavar="TIME|POS", help="Show them at a past time or position.")
"""Adds `--at`."""


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

    The function is called with the `Invocation`, whose `owner` is the id of the session, and its open memory, which is
    `bus.notes(id)` for the kind "notes". Adds `--session`, and `--event-id` if it writes.
    """
    option = session_option("The id of the session.  [$SCRATCHBUS_SESSION]", required=True)
    return memory(kind, option, "session_id", writes)


def agent_memory(kind: str, *, writes: bool = False) -> Callable[[Callable[..., None]], Callable[..., Any]]:
    """Return a decorator like `session_memory` for a memory of an agent, by default the source."""
    return memory(kind, click.argument("agent", metavar="AGENT"), "agent", writes)


def scope_memory(kind: str, *, writes: bool = False) -> Callable[[Callable[..., None]], Callable[..., Any]]:
    """Return a decorator like `session_memory` for the knowledge of a scope; adds `--scope`."""
    return memory(kind, required_scope, "scope", writes)


def memory(
    kind: str, owner_option: Any, owner_name: str, writes: bool
) -> Callable[[Callable[..., None]], Callable[..., Any]]:
    """Return a decorator like `session_memory` for a memory whose owner is the parameter that `owner_option` adds."""

    def decorate(function: Callable[..., None]) -> Callable[..., Any]:
        @wraps(function)
        def command(invocation: Invocation, **options: Any) -> None:
            owner = invocation.owner = options.pop(owner_name)
            if owner_name == "agent":
                invocation.speak_as(owner)
            with invocation.connect() as bus:
                function(invocation, getattr(bus, kind)(owner), **options)

        decorated = pass_invocation(command)
        if writes:
            decorated = event_id_option(decorated)
        return cast(Callable[..., Any], owner_option(decorated))

    return decorate


def given(**options: Any) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None and value != ()}


def listed(names: str | None) -> list[str] | None:
    """Return the names of a list separated by commas; None without one."""
    return None if names is None else [name.strip() for name in names.split(",") if name.strip()]


def watch_until_interrupted(
    invocation: Invocation, target: object, show: Callable[[Any], object], watch: Callable[..., None]
) -> None:
    """Call `watch` with a report callback and a stop event until Ctrl-C; `show` prints each result."""

    def report(result: Any) -> None:
        if isinstance(result, Exception):
            invocation.out.remark(f"scratchbus: {one_line(str(result))}")
        else:
            show(result)

    invocation.out.note(f"Watching {target}, until Ctrl-C")
    watch(report, threading.Event())
