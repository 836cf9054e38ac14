"""What all commands share: the options that each of them takes, and the session that these describe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from scratchbus.cli.output import Output
from scratchbus.cli.terminal import terminal_instance

if TYPE_CHECKING:
    from scratchbus import Bus, Claim, Page
    from scratchbus.settings import Settings

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""How click treats every command."""


@dataclass(frozen=True)
class Place:
    """An open bus and one of its pages."""

    bus: Bus
    page: Page

    def ids(self, given: Sequence[str]) -> list[str]:
        """Return the whole ids that ids and suffixes on the command line stand for. Raises InvalidId, NotFound."""
        from scratchbus.readmodel.short_ids import whole_ids

        return self.bus.converse(whole_ids(self.bus.core.log, self.page.name, given))

    def id(self, given: str) -> str:
        """Return the whole id that an id or suffix on the command line stands for. Raises InvalidId, NotFound."""
        return self.ids([given])[0]

    def is_ours(self, claim: Claim) -> bool:
        """Say whether a claim was made in this terminal, under the name it shows."""
        from scratchbus.domain.ownership import owner_token

        return claim.owner == owner_token(claim.by, self.bus.instance)


@dataclass
class Session:
    """What the options of every command say: which bus and page, who speaks, and how results are shown.

    None stands for what is not said; the settings decide then.
    """

    url: str | None = None
    bus: str | None = None
    page: str | None = None
    source: str | None = None
    instance: str | None = None
    config: str | None = None
    as_json: bool = False
    no_color: bool = False

    @cached_property
    def out(self) -> Output:
        """Where results go."""
        return Output(self.as_json, self.no_color)

    @contextmanager
    def connect(self) -> Iterator[Bus]:
        """Open the bus for a while."""
        from scratchbus import Bus
        from scratchbus.telemetry.logs import before_logging

        def configure() -> None:
            from scratchbus.daemon.runtime import configure_logging

            configure_logging(bus.settings.log_level)

        instance = self.settings().instance or terminal_instance()
        with Bus.connect(self.url, source=self.source, instance=instance, config=self.config, bus=self.bus) as bus:
            before_logging(configure)
            yield bus

    @contextmanager
    def open(self) -> Iterator[Place]:
        """Open the bus for a while, at the page that was asked for."""
        with self.connect() as bus:
            yield Place(bus, bus.page() if self.page is None else bus.page(self.page))

    @contextmanager
    def open_fenced(self, id: str, fence: int | None) -> Iterator[Place]:
        """Open the bus for a write under a fence.

        Whoever names no source speaks as the holder of the claim, if it was claimed in this terminal.
        """
        if fence is not None and self.settings().source is None:
            with self.open() as place:
                found = place.page.get(place.id(id))
                if found is not None and found.claim is not None and place.is_ours(found.claim):
                    self.source = found.claim.by
        with self.open() as place:
            yield place

    def speak_as(self, name: str | None) -> None:
        """Let this one speak, unless the options or settings say who does."""
        if self.settings().source is None:
            self.source = name

    def settings(self) -> Settings:
        """Return the settings in force, without an engine."""
        from scratchbus.settings import load_settings

        return load_settings(self.config, url=self.url, source=self.source, instance=self.instance, bus=self.bus)


pass_session: Callable[[Callable[..., Any]], Callable[..., Any]] = click.make_pass_decorator(Session, ensure=True)
"""Give a command its session as the first argument."""


def _remember(context: click.Context, option: click.Parameter, value: Any) -> None:
    """Write an option into the session; what comes later on the line counts."""
    session = context.ensure_object(Session)
    if value is not None:
        setattr(session, str(option.name), value)


def _shared_options() -> list[click.Parameter]:
    """Return the options that every command takes, and that may stand before the command too."""

    def option(*names: str, **how: Any) -> click.Parameter:
        return click.Option(names, expose_value=False, callback=_remember, default=None, **how)

    return [
        option("--page", metavar="NAME", help="The page to work on.  [default: main]"),
        option("--json", "as_json", is_flag=True, help="Print JSON, one document a line."),
        option("--source", metavar="NAME", help="Who speaks.  [$SCRATCHBUS_SOURCE]"),
        option(
            "--instance",
            metavar="NAME",
            help="Which connection claims belong to.  [$SCRATCHBUS_INSTANCE, else this terminal]",
        ),
        option("--url", help="The engine.  [$SCRATCHBUS_URL, else the embedded one]"),
        option("--bus", metavar="NAME", help="The bus on that engine.  [$SCRATCHBUS_BUS]"),
        option("--config", metavar="FILE", help="The settings file.  [$SCRATCHBUS_CONFIG]"),
        option("--no-color", is_flag=True, help="No colours.  [$NO_COLOR]"),
    ]


class _Shared(click.Command):
    """A command that takes the shared options too, unless it has one of that name itself; `examples` are lines."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **how: Any) -> None:
        how["context_settings"] = CONTEXT
        super().__init__(*args, **how)
        self._examples = examples
        own = {parameter.name for parameter in self.params}
        self._shared = [option for option in _shared_options() if option.name not in own]
        self.params += self._shared

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the command does, then examples, line by line."""
        super().format_help_text(ctx, formatter)
        if self._examples:
            with formatter.section("Example" if len(self._examples) == 1 else "Examples"):
                for line in self._examples:
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options first, then those that every command takes."""
        for title, is_shared in (("Options", False), ("Options of every command", True)):
            with_help = [
                record
                for parameter in self.get_params(ctx)
                if isinstance(parameter, click.Option)
                and (parameter in self._shared) is is_shared
                and (record := parameter.get_help_record(ctx))
            ]
            if with_help:
                with formatter.section(title):
                    formatter.write_dl(with_help)


class BusCommand(_Shared):
    """A command of `scratchbus`."""


class BusGroup(_Shared, click.Group):
    """A command of `scratchbus` that has commands of its own."""

    command_class = BusCommand

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then the commands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


def command(name: str | None = None, *, examples: Sequence[str] = ()) -> Callable[[Callable[..., Any]], BusCommand]:
    """Make a function a command of `scratchbus`; its help shows the examples, one a line."""
    return click.command(name, cls=BusCommand, examples=examples)


def fence_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that proves a claim."""
    help = "The fence of your claim, as `claim` printed it."
    return click.option("--fence", type=int, metavar="N", help=help)(function)


def event_id_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that makes a retry safe."""
    help = "An id of your own: a retry with the same one changes nothing more."
    return click.option("--event-id", metavar="TEXT", help=help)(function)


def revision_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that says which revision a replacement is based on."""
    help = "Replace it only if it is still at this revision, or is empty for 0."
    return click.option("--revision", type=int, metavar="N", help=help)(function)


def session_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that says which session it is about."""
    return click.option(
        "--session", "of", required=True, envvar="SCRATCHBUS_SESSION", metavar="ID",
        help="The session.  [$SCRATCHBUS_SESSION]",
    )(function)  # fmt: skip


def given(**options: Any) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None and value != ()}
