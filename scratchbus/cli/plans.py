"""Todo lists of sessions and scratchpads of agents: `todo` and `scratchpad`."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import click

import scratchbus
from scratchbus.cli.commands import (
    ENGINE,
    BusGroup,
    agent_memory,
    content_argument,
    given,
    revision_option,
    session_memory,
)
from scratchbus.cli.invocation import Invocation
from scratchbus.cli.output import Cell
from scratchbus.cli.text import TODO_MARKS, one_line
from scratchbus.errors import InvalidField, RevisionConflict, shown

_TRIES = 10  # to append an item while others change the list
_STYLES = {"in_progress": "bold", "completed": "dim", "cancelled": "dim"}


@click.group(cls=BusGroup)
def todo() -> None:
    """Show and change the todo list of a session."""


@todo.command("read", examples=("scratchbus todo read --session s1", "scratchbus todo read --session s1 --json"))
@session_memory("todo")
def read_todo(invocation: Invocation, plan: scratchbus.Todo) -> None:
    """Show the todo list of a session.

    [ ] means pending, [>] in progress, [x] completed, [-] cancelled.
    """
    _show_todo(invocation, plan.read())


@todo.command(
    "write",
    examples=(
        """scratchbus todo write --session s1 '[{"id": "1", "content": "Survey the sheets"}]'""",
        """scratchbus todo write --session s1 --merge '[{"id": "1", "status": "completed"}]'""",
    ),
)
@content_argument("todos")
@click.option("--merge", is_flag=True, help="Change these items and keep the others.")
@revision_option
@session_memory("todo", writes=True)
def write_todo(invocation: Invocation, plan: scratchbus.Todo, todos: str, **options: Any) -> None:
    """Replace the todo list of a session.

    TODOS is a JSON list of items with id, content and status; - reads it from standard input.
    """
    _show_todo(invocation, plan.write(_json_of(todos), **options))


@todo.command("add", examples=("scratchbus todo add 'Survey the sheets' --session s1",))
@content_argument("content")
@click.option("--status", metavar="STATUS", type=click.Choice(list(TODO_MARKS)), help="Its status.  [default: pending]")
@session_memory("todo", writes=True)
def add_todo(
    invocation: Invocation, plan: scratchbus.Todo, content: str, event_id: str | None,
    **fields: str | None,
) -> None:  # fmt: skip
    """Append an item to the todo list.

    Its id is the next number, or the event id if that is given; - reads CONTENT from standard input.
    """
    item = {"content": content, **given(**fields)}
    if event_id is not None:
        return _show_todo(invocation, _merged(plan, {"id": event_id, **item}, event_id=event_id))
    for _ in range(_TRIES - 1):
        with suppress(RevisionConflict):
            return _show_todo(invocation, _appended(plan, item))
    _show_todo(invocation, _appended(plan, item))


def _appended(plan: scratchbus.Todo, item: dict[str, str]) -> scratchbus.TodoList:
    """Append an item under the next number. Raises RevisionConflict if the list changes meanwhile, and InvalidField."""
    known = plan.read()
    id = str(1 + max((int(each.id) for each in known.todos if each.id.isdecimal()), default=0))
    return _merged(plan, {"id": id, **item}, revision=known.revision)


def _merged(plan: scratchbus.Todo, item: dict[str, str], **options: Any) -> scratchbus.TodoList:
    """Change an item, or append it if it is new. Raises RevisionConflict, and InvalidField if the list is full."""
    found = plan.write([item], merge=True, **options)
    if all(each.id != item["id"].strip() for each in found.todos):
        problem = f"the list is full, with {len(found.todos)} items; replace it with `scratchbus todo write`"
        raise InvalidField("todos", problem)
    return found


@todo.command("set", examples=("scratchbus todo set --session s1 2 --status in_progress",))
@click.argument("id", metavar="ID")
@click.option("--content", metavar="TEXT", help="The task.")
@click.option("--status", metavar="STATUS", type=click.Choice(list(TODO_MARKS)), help="Its status.")
@session_memory("todo", writes=True)
def set_todo(
    invocation: Invocation, plan: scratchbus.Todo, id: str, event_id: str | None, **fields: str | None
) -> None:
    """Change an item of the todo list, or append it if it is new."""
    _show_todo(invocation, _merged(plan, {"id": id, **given(**fields)}, event_id=event_id))


@todo.command("inject", examples=("scratchbus todo inject --session s1",))
@session_memory("todo")
def inject_todo(invocation: Invocation, plan: scratchbus.Todo) -> None:
    """Print the todo list as the text that survives compaction.

    Prints nothing if no item is open.
    """
    text = plan.format_for_injection()
    invocation.out.text({"session": invocation.owner, "text": text}, text or "")


def _json_of(text: str) -> Any:
    import json  # late, as all that `--help` does not need

    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidField("todos", f"{shown(text)} is not JSON; give a list of items with id and content") from None
    if not isinstance(found, list):
        raise InvalidField("todos", f'{one_line(text)[:100]} is not a list of items like {{"id": "1", "content": "…"}}')
    return found


def _show_todo(invocation: Invocation, found: scratchbus.TodoList) -> None:
    if invocation.as_json:
        invocation.out.document({"session": invocation.owner, **found.model_dump(mode="json")})
        return
    for item in found.todos:
        style = _STYLES.get(item.status, "")
        cells = TODO_MARKS[item.status], one_line(item.id), one_line(item.content)
        invocation.out.sentence(*(Cell(text, style) for text in cells))
    counts = ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in found.summary.items() if count)
    invocation.out.note(f"revision {found.revision}: {counts or 'nothing to do'}")


@click.group(cls=BusGroup)
def scratchpad() -> None:
    """Show and write the scratchpad of an agent.

    An agent keeps it from one run to the next.
    """


@scratchpad.command("show", examples=("scratchbus scratchpad show analyst",), shared=(*ENGINE, "source"))
@agent_memory("scratchpad")
def show_scratchpad(invocation: Invocation, pad: scratchbus.Scratchpad) -> None:
    """Show the scratchpad of an agent.

    Only the agent itself may read it: AGENT is the source, unless --source or the settings name another one.
    """
    content, revision = pad.read_with_revision()
    invocation.out.text({"agent": invocation.owner, "content": content, "revision": revision}, content)


@scratchpad.command(
    "write",
    examples=(
        'scratchbus scratchpad write analyst "The bank answers on Mondays only."',
        "scratchbus scratchpad write analyst - < notes.md",
    ),
)
@agent_memory("scratchpad", writes=True)
@content_argument("content")
@revision_option
def write_scratchpad(invocation: Invocation, pad: scratchbus.Scratchpad, content: str, **options: Any) -> None:
    """Replace the scratchpad of an agent.

    An empty CONTENT clears it; - reads it from standard input.
    """
    revision = pad.write(content, **options)
    document = {"agent": invocation.owner, "characters": len(content), "revision": revision}
    invocation.out.result(document, Cell("Scratchpad updated successfully.", "green"))


@scratchpad.command("whoami", examples=("scratchbus scratchpad whoami analyst",), shared=(*ENGINE, "source"))
@agent_memory("scratchpad")
def whoami(invocation: Invocation, pad: scratchbus.Scratchpad) -> None:
    """Print the text that an agent gets at the start of a run."""
    text = pad.whoami()
    invocation.out.text({"agent": invocation.owner, "text": text}, text)
