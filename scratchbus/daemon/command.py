"""The command line that all daemons share."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scratchbus import Bus
from scratchbus.daemon.exit_codes import INTERRUPTED, USAGE, exit_code
from scratchbus.daemon.exporter_options import metrics_options, start_exporter
from scratchbus.daemon.runtime import DaemonRun, configure_logging, logger, serve
from scratchbus.daemon.usage import usage_line
from scratchbus.domain.ownership import new_instance
from scratchbus.domain.values import check_page, check_source, duration_ms, duration_text
from scratchbus.engine.urls import without_password
from scratchbus.errors import InvalidTTL, ScratchbusError
from scratchbus.settings import Settings, load_settings
from scratchbus.telemetry.terminal import visible

if TYPE_CHECKING:
    from scratchbus.daemon.exporter import Exporter


@dataclass(frozen=True)
class Daemon:
    """A running daemon: its bus, page and name, and the exporter of its metrics, if any.

    Its instance stays the same while it runs, so that it keeps its claims when the engine comes back.
    """

    settings: Settings
    page: str
    source: str
    instance: str = field(default_factory=new_instance)
    exporter: Exporter | None = None

    @property
    def target(self) -> str:
        """A text that identifies the bus and page, for naming files that belong to them.

        It omits the password, which may change while the bus stays the same.
        """
        engine = without_password(self.settings.url) if self.settings.url else self.settings.home or ""
        return f"{engine} {self.settings.bus} {self.page}"

    def serve(self, run: DaemonRun, *, patient: bool = True) -> None:
        """Run the work on a connection to the bus; see `scratchbus.daemon.serve`."""
        serve(self.exporter.watching(self._connect) if self.exporter else self._connect, run, patient=patient)

    def _connect(self) -> Bus:
        return Bus.connect(self.settings.url, source=self.source, instance=self.instance)


class _Command(click.Command):
    """A command that prints one line for wrong options, and none for Ctrl-C."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if parent is None and sys.modules["__main__"].__spec__ is None:
            info_name = Path(sys.argv[0]).name  # click mistakes a script that names its package for a module
        with self._usage_on_one_line(parent):
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with self._usage_on_one_line(ctx.parent):
            return super().invoke(ctx)

    @contextlib.contextmanager
    def _usage_on_one_line(self, parent: click.Context | None) -> Iterator[None]:
        if parent is not None:
            yield  # the command line reports errors in its own form
            return
        try:
            yield
        except click.ClickException as problem:
            program = str(self.name)
            click.echo(visible(f"{program}: {usage_line(problem, program)}"), err=True)
            sys.exit(USAGE)
        except ScratchbusError as problem:  # of a default
            click.echo(visible(f"{self.name}: {problem}"), err=True)
            sys.exit(exit_code(problem))
        except KeyboardInterrupt:  # before its work has begun; click would print "Aborted!"
            sys.exit(INTERRUPTED)


def daemon(source: str, *, on_one_page: bool = True) -> Callable[[Callable[..., None]], click.Command]:
    """Make a function the command of a daemon. It is called with a `Daemon` and its own options.

    An error becomes one line on stderr and the exit code of its class.
    """
    page_option = click.option(
        "--page",
        default=lambda: os.environ.get("SCRATCHBUS_PAGE") or "main",
        show_default=False,
        help="The page to work on; $SCRATCHBUS_PAGE, else main.",
    )

    def decorate(function: Callable[..., None]) -> click.Command:
        @functools.wraps(function)
        def command(
            url: str | None,
            name: str,
            log_level: str | None,
            instance: str | None,
            metrics_host: str,
            metrics_port: int | None,
            page: str = "main",
            **options: object,
        ) -> None:
            try:
                settings = load_settings(url=url, log_level=log_level, instance=instance)
                configure_logging(settings.log_level, daemon=name)
                if (settings.url or "").startswith("memory:"):
                    logger.warning("a bus at memory:// is seen by no other process", url=settings.url)
                page, name = check_page(page), check_source(name, "name")
                exporter = start_exporter(metrics_host, metrics_port)
                instance = settings.instance or new_instance()
                function(Daemon(settings, page, name, instance, exporter), **options)
            except ScratchbusError as error:
                click.echo(visible(f"{name}: {error}"), err=True)
                sys.exit(exit_code(error))

        levels = click.Choice(["debug", "info", "warning", "error"], case_sensitive=False)
        for option in (
            metrics_options,
            click.option("--log-level", type=levels, help="How much to log; $SCRATCHBUS_LOG_LEVEL, else info."),
            click.option(
                "--instance",
                help="Distinguishes daemons of one name; a restart with the same instance keeps the claims.",
            ),
            click.option("--name", default=source, help="Its name: the `by` of its events."),
            *([page_option] if on_one_page else []),
            click.option("--url", help="The engine; $SCRATCHBUS_URL, else the embedded one."),
        ):
            command = option(command)
        return click.command(source, _Command, context_settings={"show_default": True})(command)

    return decorate


def file_option(*names: str, **attributes: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add an option for the path of a file."""
    return click.option(*names, type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", **attributes)


def duration_option(
    *names: str, default: timedelta | None, help: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add an option for a finite duration; without a default it may be left out."""
    shown = None if default is None else duration_text(duration_ms(default))
    return click.option(*names, default=shown, callback=_as_timedelta, metavar="DURATION", help=help)


def _as_timedelta(context: click.Context, parameter: click.Parameter, value: str | None) -> timedelta | None:
    if value is None:
        return None
    ms = None
    with contextlib.suppress(InvalidTTL):
        ms = duration_ms(value)
    if ms is None:
        raise click.BadParameter(f"{value!r} is not a finite duration; use one such as 90s, 10m or 1h30m")
    return timedelta(milliseconds=ms)
