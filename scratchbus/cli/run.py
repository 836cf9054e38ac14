"""The engine, its background work and the daemons: `up`, `run`, `status`, `start`, `stop`, `demo`."""

from __future__ import annotations

import os.path
import sys
import threading
from contextlib import ExitStack
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

import click

import scratchbus
from scratchbus.cli.commands import ENGINE, OUTPUT, BusGroup, command, given
from scratchbus.cli.invocation import Invocation, pass_invocation
from scratchbus.cli.output import Cell
from scratchbus.cli.serve import ServeArguments, http_name, serve_options
from scratchbus.cli.status_view import connection_hint, engine_document, show_status
from scratchbus.daemon import StopSignal, metrics_options, start_exporter
from scratchbus.errors import EngineUnreachable, InvalidURL

if TYPE_CHECKING:
    from scratchbus.daemon import DaemonRun


_MEMORY_ONLY = "memory:// is inside this process: no other process sees this bus, other than over HTTP; leave --url out"


@command(
    examples=(
        "scratchbus up",
        "scratchbus up --url redis://localhost:6379",
        "scratchbus up --serve",
    ),
    shared=(*ENGINE, "source"),
)
@metrics_options
@click.option("--serve", "is_served", is_flag=True, help="Serve the bus over HTTP too, as `scratchbus serve` does.")
@serve_options
@pass_invocation
def up(
    invocation: Invocation,
    metrics_host: str,
    metrics_port: int | None,
    is_served: bool,
    serve_arguments: ServeArguments,
) -> None:
    """Run the engine and its background work until Ctrl-C.

    The background work is a projector, an expirer, and an archiver if archive_url is set. Without --url the engine is
    the embedded one, which all processes of this user share. It keeps running when this command ends; `scratchbus stop`
    stops it.
    """
    from scratchbus.daemon import configure_logging, run_archiver, run_expirer, run_projector, serve

    # The tokens may come from the environment.
    if not is_served and serve_arguments != ServeArguments(tokens=serve_arguments.tokens):
        raise click.UsageError("the options of a server need --serve")
    configure_logging(invocation.settings().log_level)
    exporter = start_exporter(metrics_host, metrics_port)
    with invocation.connect() as bus:
        status = bus.status()
    source = invocation.settings().source or "up"
    runs = [run_projector, run_expirer]
    if invocation.settings().archive_url:
        runs.append(run_archiver)
    names = ", ".join(run.__name__.removeprefix("run_") for run in runs)
    metrics = {"metrics": exporter.url} if exporter else {}
    ends = "Ctrl-C; the engine stays" + (", `scratchbus stop` stops it" if status.directory else "")
    pairs = [*connection_hint(status), ("runs", Cell(names))]
    pairs += [*((name, Cell(url, "cyan")) for name, url in metrics.items()), ("ends", Cell(ends))]
    document = {**engine_document(status), **metrics, "pid": os.getpid()}

    def connect() -> scratchbus.Bus:
        return scratchbus.Bus.connect(invocation.url, source=source, config=invocation.config, bus=invocation.bus)

    with ExitStack() as cleanup:
        if is_served:
            serving = cleanup.enter_context(http_name("serving_http")(serve_arguments.options(invocation)))
            document |= {"http": serving.url, "open": serving.to_open}
            pairs.insert(-1, ("console", Cell(serving.to_open, "cyan")))
        invocation.out.block(document, [Cell("scratchbus is up", "bold green")], "", pairs)
        if status.url.startswith("memory:"):
            invocation.out.remark(_MEMORY_ONLY)
        if is_served:
            serve_arguments.open(invocation, serving)
        serve(exporter.watching(connect) if exporter else connect, _side_by_side(*runs))


def _side_by_side(*runs: DaemonRun) -> DaemonRun:
    """Return a run that does all of these at once; when one of them ends or fails, all end."""

    def run_all(bus: scratchbus.Bus, stop: StopSignal) -> None:
        finished = StopSignal()
        failures: list[BaseException] = []

        def work(run: DaemonRun) -> None:
            try:
                run(bus, finished)
            except BaseException as problem:  # raised again below
                failures.append(problem)
            finally:
                finished.set()

        threads = [threading.Thread(target=work, args=(run,), name=run.__name__, daemon=True) for run in runs]
        for thread in threads:
            thread.start()
        with stop.calling(finished.set):
            finished.wait()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    return run_all


class _DaemonGroup(BusGroup):
    """The commands of the reference daemons, each loaded when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the daemons."""
        return list(_load().NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a daemon, or None when there is no daemon of this name."""
        if cmd_name not in self.list_commands(ctx):
            return None
        found: click.Command = _load(f".{cmd_name}").main
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that `args` start with, and the rest. Fails with the names if there is no such daemon."""
        names = self.list_commands(ctx)
        if args[0] not in names and not ctx.resilient_parsing:
            ctx.fail(f"there is no daemon {args[0]!r}; choose one of: {', '.join(names)}")
        if not ctx.resilient_parsing and not {*ctx.help_option_names} & {*args}:  # help needs no settings
            _check_config(ctx.ensure_object(Invocation))
        return super().resolve_command(ctx, args)


@click.group(
    cls=_DaemonGroup,
    subcommand_metavar="NAME [OPTIONS]",
    examples=(
        "scratchbus run projector",
        "scratchbus run logwatch --log /var/log/auth.log --follow",
    ),
    shared=("url", "bus", "config"),
)
@pass_invocation
@click.pass_context
def run(context: click.Context, invocation: Invocation) -> None:
    """Run one of the reference daemons, until Ctrl-C.

    `scratchbus run NAME --help` explains its options.
    """
    _pass_on(invocation)
    options = given(url=invocation.url, page=invocation.page, name=invocation.source, instance=invocation.instance)
    context.default_map = {str(context.invoked_subcommand): options}


def _check_config(invocation: Invocation) -> None:
    """Raise SettingsError for a bad settings file; an error that a daemon finds would blame the variable."""
    if invocation.config is not None:
        invocation.settings()


def _pass_on(invocation: Invocation) -> None:
    """Tell daemons by the environment what they have no options for."""
    os.environ |= given(SCRATCHBUS_BUS=invocation.bus, SCRATCHBUS_CONFIG=invocation.config)


def _load(module: str = "") -> ModuleType:
    """Return the package of the reference daemons, or one of its modules.

    A wheel has them as a part of scratchbus, a checkout beside it.
    """
    package = os.path.dirname(scratchbus.__file__)
    if os.path.isdir(os.path.join(package, "_daemons")):
        return import_module(f"scratchbus._daemons{module}")
    if sys.path[0] != os.path.dirname(package):
        sys.path.insert(0, os.path.dirname(package))
    return import_module(f"daemons{module}")


@command()
@pass_invocation
def status(invocation: Invocation) -> None:
    """Show the state of the bus.

    Shows the engine and how to connect to it, the log, the projection, subscriptions and pages.
    """
    settings = invocation.settings()
    directory = scratchbus.embedded_directory(settings.url, settings.home)
    if directory is not None and scratchbus.find_engine(directory) is None:
        raise EngineUnreachable(f"no engine runs in {directory}; start it with `scratchbus up` or any other command")
    with invocation.connect() as bus:
        found = bus.status()
    show_status(invocation, found)


@command()
@pass_invocation
def start(invocation: Invocation) -> None:
    """Start the embedded engine alone.

    Unlike `up`, it starts no background work. It does nothing if the engine already runs.
    """
    settings = invocation.settings()
    if scratchbus.embedded_directory(settings.url, settings.home) is None:
        raise InvalidURL("start is only for the embedded engine; start your own server by its own means")
    with invocation.connect() as bus:
        found = bus.status()
    cells = Cell("runs", "green"), Cell(f"the engine in {found.directory}")
    invocation.out.result(engine_document(found), *cells, is_whole=True)


@command(shared=(*OUTPUT, "url", "config"))
@pass_invocation
def stop(invocation: Invocation) -> None:
    """Stop the embedded engine. Nothing is lost; the next command or program that connects starts it again.

    Programs that are connected now wait until it is started.
    """
    settings = invocation.settings()
    directory = scratchbus.embedded_directory(settings.url, settings.home)
    if directory is None:
        raise InvalidURL("stop is only for the embedded engine; stop your own server where you started it")
    has_run = scratchbus.stop_engine(directory)
    stopped = (Cell("stopped", "green"), Cell(f"the engine in {directory}"))
    cells = stopped if has_run else (Cell(f"No engine runs in {directory}"),)
    invocation.out.result({"directory": str(directory), "stopped": has_run}, *cells, is_whole=True)


@command(
    examples=(
        "scratchbus demo",
        "scratchbus demo --serve",
        "scratchbus demo --log /var/log/auth.log",
    ),
    shared=OUTPUT,
)
@click.option("--url", metavar="TEXT", help="The URL of an engine.  [default: a temporary one]")
@click.option(
    "--log", type=click.Path(dir_okay=False), metavar="FILE",
    help="The log to read.  [default: a small made-up one]",
)  # fmt: skip
@click.option("--serve", "is_served", is_flag=True, help="Play it slowly, and open the console on it, until Ctrl-C.")
@pass_invocation
@click.pass_context
def demo(context: click.Context, invocation: Invocation, url: str | None, log: str | None, is_served: bool) -> None:
    """Watch the daemons work on a log.

    The daemons find attacks in the log and handle them. The demo uses a temporary engine, unless --url names another.
    """
    if is_served and invocation.as_json:
        raise click.UsageError("--serve shows the demo in a browser; leave --json out")
    served = http_name("serving_http") if is_served else None
    url = invocation.url if url is None else url
    if url is None and given(bus=invocation.bus, config=invocation.config):
        raise click.UsageError("--bus and --config are for an engine of yours; give --url too, or leave them out")
    _check_config(invocation)
    _pass_on(invocation)
    context.exit(_load(".demo").run_demo(log, url, as_json=invocation.as_json, serve=served))
