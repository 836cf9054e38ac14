"""Files of a project that people and agents share: `workspace sync` and `workspace rules`."""

from __future__ import annotations

from functools import partial

import click

import scratchbus
from scratchbus.cli.commands import ENGINE, OUTPUT, BusGroup, session_option, watch_until_interrupted
from scratchbus.cli.invocation import Invocation, pass_invocation
from scratchbus.cli.output import Cell, Column, Columns

_RULES: Columns[scratchbus.Rule] = (
    Column("PATH", lambda each: Cell(each.path)),
    Column("SHA-256", lambda each: Cell(each.sha256, "dim", each.sha256[:12])),
    Column("CHARACTERS", lambda each: Cell(f"{len(each.text):,}"), right=True),
    Column("PROBLEM", lambda each: Cell(each.problem, "yellow")),
)

_directory = click.argument("directory", type=click.Path(file_okay=False, exists=True), default=".")


@click.group("workspace", cls=BusGroup)
def workspace() -> None:
    """Keep the files of a project in step with a session."""


@workspace.command(
    "sync",
    examples=("scratchbus workspace sync . --session s1", "scratchbus workspace sync --watch ."),
    shared=(*ENGINE, "source"),
)
@_directory
@session_option("The id of the session.  [$SCRATCHBUS_SESSION, else one of the directory's own]")
@click.option("--watch", is_flag=True, help="Continue until Ctrl-C, whenever a file or the session changes.")
@pass_invocation
def sync(invocation: Invocation, directory: str, session_id: str | None, watch: bool) -> None:
    """Keep TODO.md and NOTES.md the same as the todo list and the notepad.

    Both ways: a box that is ticked in an editor is an event, and an event changes the file. What both sides changed is
    merged item by item, or kept side by side. A file that is missing or empty is written.
    """
    invocation.speak_as("workspace")
    with invocation.connect() as bus:
        workspace_sync = scratchbus.WorkspaceSync(bus, directory, session_id)
        if watch:
            watch_files = partial(scratchbus.watch_workspace, workspace_sync)
            watch_until_interrupted(
                invocation, workspace_sync.directory, partial(_show, invocation, workspace_sync), watch_files
            )
        else:
            _show(invocation, workspace_sync, workspace_sync.run())


def _show(invocation: Invocation, workspace_sync: scratchbus.WorkspaceSync, synced: scratchbus.WorkspaceSynced) -> None:
    document = {
        "directory": str(workspace_sync.directory),
        "session": workspace_sync.session,
        "wrote": list(synced.wrote),
    }
    outcome = f"wrote {', '.join(synced.wrote)}" if synced.wrote else "nothing to do"
    invocation.out.result(
        document,
        Cell("synced", "green"),
        Cell(str(workspace_sync.directory)),
        Cell(f"session {workspace_sync.session}", "dim"),
        Cell(outcome),
        is_whole=True,
    )


@workspace.command("rules", examples=("scratchbus workspace rules .",), shared=OUTPUT)
@_directory
@pass_invocation
def rules(invocation: Invocation, directory: str) -> None:
    """Show the files of rules that a context may include: CLAUDE.md, AGENTS.md, .claude/rules/*.md.

    `scratchbus context --rules DIRECTORY` shows them to an agent, and with --record notes which versions those were.
    """
    invocation.out.listing(
        _RULES, scratchbus.read_rules(directory), empty="There are no rules", document=lambda each: each._asdict()
    )
