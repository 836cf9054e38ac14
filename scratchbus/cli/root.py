"""The command `scratchbus` with all its commands, in sections."""

from __future__ import annotations

import click

from scratchbus.cli.add import add, update
from scratchbus.cli.archive import archive
from scratchbus.cli.audit import diff, replay
from scratchbus.cli.change import claim, claim_next, clear_resolved, link, refute, release, reopen, resolve, review
from scratchbus.cli.commands import BusGroup
from scratchbus.cli.completion import completion
from scratchbus.cli.context import context
from scratchbus.cli.dead_letters import dead_letters
from scratchbus.cli.follow import tail, watch
from scratchbus.cli.maintain import erase, import_, rebuild, repair, verify
from scratchbus.cli.mcp import mcp
from scratchbus.cli.notepad import notepad
from scratchbus.cli.notes import note
from scratchbus.cli.plans import scratchpad, todo
from scratchbus.cli.read import active, history, list_, show, trace
from scratchbus.cli.run import demo, run, status, stop, up
from scratchbus.cli.types import types

SECTIONS: dict[str, tuple[click.Command, ...]] = {
    "Add observations": (add, update),
    "See the page and the log": (active, list_, show, history, trace, watch, tail),
    "See the past": (replay, diff),
    "Change observations": (claim, claim_next, release, link, review, resolve, archive, reopen, refute, clear_resolved),
    "Memory of agents": (note, notepad, todo, scratchpad, context),
    "Run and maintain a bus": (
        up,
        run,
        status,
        stop,
        mcp,
        types,
        dead_letters,
        rebuild,
        verify,
        repair,
        erase,
        import_,
        demo,
        completion,
    ),
}


class _Root(BusGroup):
    """The command itself; its help shows the commands in sections."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections."""
        widest = max(len(name) for name in self.commands)
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                room = formatter.width - formatter.current_indent - widest - 4
                formatter.write_dl([(str(each.name).ljust(widest), each.get_short_help_str(room)) for each in commands])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands before the options, because people look for these."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)


_EXIT_CODES = (
    "Exit codes: 0 success, 1 internal, 2 usage, 3 not found, 4 conflict or invalid transition, 5 invalid input, 6"
    " engine unreachable, 130 Ctrl-C."
)


@click.group(
    cls=_Root,
    epilog=_EXIT_CODES,
    examples=(
        "scratchbus demo",
        'scratchbus add observation "The build is red" --source me',
        "scratchbus active",
    ),
)
@click.version_option(package_name="scratchbus", message="%(package)s %(version)s")
def root() -> None:
    """The shared working memory of daemons and agents.

    Everyone publishes observations and sees the same Scratch Page; the log keeps everything that happened.

    Without --url it uses an embedded engine, which is started when it is needed.
    """


for _commands in SECTIONS.values():
    for _command in _commands:
        root.add_command(_command)
