"""The engine and the daemons that keep the page current: `up`, `run`, `status`, `stop`, `demo`."""

from __future__ import annotations

import os
import sys
import threading
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import click

import scratchbus
from scratchbus.cli.common import BusGroup, Session, command, given, pass_session
from scratchbus.cli.output import Cell
from scratchbus.cli.status_view import connection_hint, show_status, where_it_is
from scratchbus.daemon.metrics_options import metrics_options, start_exporter

if TYPE_CHECKING:
    from scratchbus import Bus
    from scratchbus.daemon.runtime import Run

_NAP = 0.1  # seconds that a stop may go unnoticed


@command(
    examples=(
        "scratchbus up",
        "scratchbus up --url redis://localhost:6379",
    )
)
@metrics_options
@pass_session
def up(session: Session, metrics_host: str, metrics_port: int | None) -> None:
    """Run what keeps the page current, until Ctrl-C.

    That is the engine, a projector and an expirer, and an archiver where archive_url is set. Without --url it is the
    embedded engine, which all processes of this user share; it stays when this command ends, and `scratchbus stop` ends
    it.
    """
    from scratchbus import Bus
    from scratchbus.archive.archiver import run_archiver
    from scratchbus.daemon.runtime import configure_logging, serve
    from scratchbus.readmodel.projector import run_projector
    from scratchbus.scheduling.expiry import run_expirer

    configure_logging(session.settings().log_level)
    exporter = start_exporter(metrics_host, metrics_port)
    with session.connect() as bus:
        status = bus.status()
    source = session.settings().source or "up"
    runs = [run_projector, run_expirer, *([run_archiver] if session.settings().archive_url else [])]
    names = ", ".join(run.__name__.removeprefix("run_") for run in runs)
    if session.as_json:
        metrics = {"metrics": exporter.url} if exporter else {}
        session.out.document({**where_it_is(status), **metrics, "pid": os.getpid()})
    else:
        ends = "Ctrl-C; the engine stays" + (", `scratchbus stop` ends it" if status.directory else "")
        pairs = [*connection_hint(status), ("runs", Cell(names))]
        pairs += [("metrics", Cell(exporter.url, "cyan"))] if exporter else []
        pairs += [("ends", Cell(ends))]
        session.out.block([Cell("scratchbus is up", "bold green")], "", pairs)

    def connect() -> Bus:
        return Bus.connect(session.url, source=source, config=session.config, bus=session.bus)

    serve(exporter.watching(connect) if exporter else connect, _side_by_side(*runs))


def _side_by_side(*runs: Run) -> Run:
    """Return work that is several at once: when one of them ends or fails, all end."""

    def run_all(bus: Bus, stop: threading.Event) -> None:
        over = threading.Event()
        failures: list[BaseException] = []

        def work(run: Run) -> None:
            try:
                run(bus, over)
            except BaseException as problem:  # raised again below
                failures.append(problem)
            finally:
                over.set()

        threads = [threading.Thread(target=work, args=(run,), name=run.__name__, daemon=True) for run in runs]
        for thread in threads:
            thread.start()
        while not stop.is_set() and not over.wait(_NAP):
            pass
        over.set()
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
        return super().resolve_command(ctx, args)


@click.group(
    cls=_DaemonGroup,
    subcommand_metavar="NAME [OPTIONS]",
    examples=(
        "scratchbus run projector",
        "scratchbus run logwatch --log /var/log/auth.log --follow",
    ),
)
@pass_session
@click.pass_context
def run(context: click.Context, session: Session) -> None:
    """Run one of the reference daemons, until Ctrl-C.

    `scratchbus run NAME --help` explains its options.
    """
    os.environ |= given(SCRATCHBUS_BUS=session.bus, SCRATCHBUS_CONFIG=session.config)  # daemons have no such options
    options = given(url=session.url, page=session.page, name=session.source, instance=session.instance)
    context.default_map = {str(context.invoked_subcommand): options}


def _load(module: str = "") -> ModuleType:
    """Return the package of the reference daemons, or a module of it.

    A wheel has them as a part of scratchbus, a checkout beside it.
    """
    package = Path(scratchbus.__file__).parent
    if (package / "_daemons").is_dir():
        return import_module(f"scratchbus._daemons{module}")
    if sys.path[0] != str(package.parent):
        sys.path.insert(0, str(package.parent))
    return import_module(f"daemons{module}")


@command()
@pass_session
def status(session: Session) -> None:
    """Show how things are, and where.

    The engine and how to reach it, the log, the projection, the pages.
    """
    from scratchbus.engine.embedded import server
    from scratchbus.errors import EngineUnreachable

    settings = session.settings()
    directory = server.directory_of(settings.url, settings.home)
    if directory is not None and server.find_running(directory) is None:
        raise EngineUnreachable(
            f"no engine runs in {directory}; `scratchbus up` starts it, as every other command does"
        )
    with session.connect() as bus:
        found = bus.status()
    show_status(session, found)


@command()
@pass_session
def stop(session: Session) -> None:
    """End the embedded engine. Nothing is lost; the next command or program that connects starts it again.

    Those that are connected now do not: they wait for it.
    """
    from scratchbus.engine.embedded import server
    from scratchbus.errors import InvalidURL

    settings = session.settings()
    directory = server.directory_of(settings.url, settings.home)
    if directory is None:
        raise InvalidURL("stop ends the embedded engine only; end a server of your own where you started it")
    has_run = server.stop(directory)
    if session.as_json:
        session.out.document({"directory": str(directory), "stopped": has_run})
    elif has_run:
        session.out.sentence(Cell("stopped", "green"), Cell(f"the engine in {directory}"))
    else:
        session.out.sentence(Cell(f"No engine runs in {directory}"))


@command(
    examples=(
        "scratchbus demo",
        "scratchbus demo --log /var/log/auth.log",
    )
)
@click.option(
    "--log", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Read this log; else a small one that is made up.",
)  # fmt: skip
@pass_session
@click.pass_context
def demo(context: click.Context, session: Session, log: Path | None) -> None:
    """See it all at work, within a minute.

    Real daemons read a log and deal with what they find. It runs on an engine of its own, which is gone afterwards,
    unless --url names another.
    """
    context.exit(_load(".demo").run_demo(log, session.url, as_json=session.as_json))
