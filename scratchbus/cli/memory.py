"""The preferences of a user or a project: `memory list`, `add`, `edit`, `rm`, `history`, `sync`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import click

import scratchbus
from scratchbus.cli.commands import (
    ENGINE,
    BusGroup,
    at_option,
    content_argument,
    required_scope,
    scope_memory,
    watch_until_interrupted,
)
from scratchbus.cli.event_view import show_history
from scratchbus.cli.invocation import Invocation, pass_invocation
from scratchbus.cli.output import Cell, Column, Columns
from scratchbus.cli.text import ago, one_line

_revision_option = click.option(
    "--revision", type=int, metavar="N", help="Change only this revision; 0 means that it does not exist."
)


def _writes_text(function: Callable[..., None]) -> Callable[..., Any]:
    """Make a function a command that writes the text of a preference."""
    said_by = click.option("--said-by", metavar="NAME", help="The person who wants it.  [default: --source]")
    command = said_by(_revision_option(scope_memory("preferences", writes=True)(function)))
    decorated: Callable[..., Any] = click.argument("key")(content_argument("text")(command))
    return decorated


@click.group(cls=BusGroup)
def memory() -> None:
    """Review and change the preferences of a user or a project.

    A preference has a key, by whose meaning it is known: `Commit messages` and `commit-message` are the same.
    """


@memory.command("list", examples=("scratchbus memory list --scope ada/shop",))
@at_option
@scope_memory("preferences")
def list_preferences(invocation: Invocation, preferences: scratchbus.Preferences, at: str | None) -> None:
    """Show the preferences."""
    now = datetime.now(UTC)
    columns: Columns[scratchbus.Preference] = (
        Column("key", lambda each: Cell(one_line(each.key), "bold"), 20),
        Column("age", lambda each: Cell(ago(each.updated_at, now), "dim"), 4, right=True),
        Column("said by", lambda each: Cell(one_line(each.said_by), "cyan"), 12),
        Column("revision", lambda each: Cell(str(each.version)), 8, right=True),
        Column("text", lambda each: Cell(one_line(each.text))),
    )
    found = preferences.list() if at is None else preferences.as_of(at)
    invocation.out.listing(columns, found, empty=f"{invocation.owner} has no preferences")


@memory.command(examples=('scratchbus memory add "quotes in JS" "always double quotes" --scope ada/shop',))
@_writes_text
def add(invocation: Invocation, preferences: scratchbus.Preferences, key: str, text: str, **options: Any) -> None:
    """Remember a preference; it replaces the one with the same key.

    - reads TEXT from standard input.
    """
    _show(invocation, "remembered", preferences.remember(key, text, **options))


@memory.command(examples=('scratchbus memory edit "quotes in JS" "double, but not in JSON" --scope ada/shop',))
@_writes_text
def edit(invocation: Invocation, preferences: scratchbus.Preferences, key: str, text: str, **options: Any) -> None:
    """Replace the text of a preference.

    - reads TEXT from standard input.
    """
    _show(invocation, "edited", preferences.edit(key, text, **options))


@memory.command("rm", examples=('scratchbus memory rm "quotes in JS" --scope ada/shop',))
@click.argument("key")
@_revision_option
@scope_memory("preferences", writes=True)
def remove(invocation: Invocation, preferences: scratchbus.Preferences, key: str, **options: Any) -> None:
    """Forget a preference; its history stays."""
    _show(invocation, "forgot", preferences.forget(key, **options))


@memory.command("history", examples=("scratchbus memory history --scope ada/shop",))
@click.argument("key", required=False)
@scope_memory("preferences")
def preference_history(invocation: Invocation, preferences: scratchbus.Preferences, key: str | None) -> None:
    """Show the events about a preference, or all, oldest first, forgotten ones included."""
    show_history(invocation, preferences.history(key))


@memory.command(examples=("scratchbus memory sync AGENTS.md --scope ada/shop",), shared=(*ENGINE, "source"))
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--watch", is_flag=True, help="Continue until Ctrl-C, whenever the file or a preference changes.")
@required_scope
@pass_invocation
def sync(invocation: Invocation, scope: str, file: str, watch: bool) -> None:
    """Sync a section of a text file with the preferences, both ways.

    The section is between two marks, and is added to a FILE that has none; the rest of the file stays unchanged. If
    both sides changed a preference, the file wins.
    """
    with invocation.connect() as bus:
        if watch:
            watch_file = partial(scratchbus.watch_preferences, bus, scope, file)
            watch_until_interrupted(invocation, file, partial(_show_synced, invocation, scope, file), watch_file)
        else:
            _show_synced(invocation, scope, file, bus.preferences(scope).sync(file))


def _show_synced(invocation: Invocation, scope: str, file: str, synced: scratchbus.Synced) -> None:
    document = {"scope": scope, "file": file, **synced._asdict()}
    changes = [
        *(f"remembered {one_line(key)}" for key in synced.remembered),
        *(f"forgot {one_line(key)}" for key in synced.forgotten),
        *(f"replaced {one_line(key)} on the bus by the file's version" for key in synced.conflicts),
        *(["wrote the file"] if synced.is_written else []),
    ]
    cells = Cell("synced", "green"), Cell(file), Cell(", ".join(changes) or "nothing had changed")
    invocation.out.result(document, *cells, is_whole=True)


def _show(invocation: Invocation, verb: str, preference: scratchbus.Preference) -> None:
    document = {"scope": invocation.owner, "preference": scratchbus.document_of(preference)}
    invocation.out.result(
        document, Cell(verb, "green"), Cell(one_line(preference.key), "bold"), Cell(one_line(preference.text))
    )
