"""`setup`: write the configuration with which a client starts the MCP server for a project."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

import scratchbus
from scratchbus.cli.agreed_files import write_files
from scratchbus.cli.commands import BusCommand, given, listed, page_option
from scratchbus.cli.invocation import Invocation, pass_invocation
from scratchbus.cli.status_view import default_bus
from scratchbus.errors import SettingsError

_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]+")

Document = dict[str, Any]


class ServerCommand(NamedTuple):
    """How to start the server; without a URL it uses the embedded engine, and without a bus the default bus.

    The hooks get the same `arguments`, but not `tools`.
    """

    command: str
    arguments: list[str]
    tools: list[str]
    url: str | None
    bus: str | None

    def document(self) -> Document:
        """Return it as all clients take it."""
        env = given(SCRATCHBUS_URL=self.url, SCRATCHBUS_BUS=self.bus)
        return {"command": self.command, "args": ["mcp", *self.arguments, *self.tools], **({"env": env} if env else {})}


class ClientFiles(NamedTuple):
    """A client: its files below the project directory, each with the document to merge into it."""

    agent: str
    files: dict[str, Callable[[ServerCommand], Document]]


def page_of(directory: Path) -> str:
    """Return the page of a project: its name and a digest of its path, so that two projects never share one."""
    path = str(directory.resolve())
    name = _NAME.sub("-", directory.resolve().name).strip("-.")[:40] or "project"
    return f"{name}-{sha256(path.encode()).hexdigest()[:8]}"


def _servers(server: ServerCommand) -> Document:
    return {"mcpServers": {"scratchbus": server.document()}}


def _vscode(server: ServerCommand) -> Document:
    return {"servers": {"scratchbus": {"type": "stdio", **server.document()}}}


def _hooks(server: ServerCommand) -> Document:
    """Return the hooks of Claude Code, each with the command that answers it."""
    options = given(**{"--url": server.url, "--bus": server.bus})
    arguments = [*server.arguments, *(word for option in options.items() for word in option)]
    return {
        "hooks": {
            event: [{"hooks": [{"type": "command", "command": shlex.join([server.command, "hook", name, *arguments])}]}]
            for event, name in HOOKS.items()
        }
    }


HOOKS: Final = {
    "SessionStart": "session-start",
    "UserPromptSubmit": "user-prompt",
    "PreCompact": "pre-compact",
    "Stop": "stop",
}
"""The events of Claude Code, each with its subcommand of `hook`."""

_OWN_HOOK: Final = re.compile(rf"scratchbus'? hook (?:{'|'.join(HOOKS.values())})\b")

CLIENTS: Final = {
    "claude": ClientFiles("claude", {".mcp.json": _servers, ".claude/settings.json": _hooks}),
    "cursor": ClientFiles("cursor", {".cursor/mcp.json": _servers}),
    "vscode": ClientFiles("copilot", {".vscode/mcp.json": _vscode}),
}


@click.command(
    "setup",
    cls=BusCommand,
    examples=(
        "scratchbus setup claude",
        "scratchbus setup claude --knowledge ada,ada/shop --tools basic,preferences,facts,recall",
        "scratchbus setup vscode --directory ~/project --yes",
    ),
    shared=("as_json", "url", "bus", "config"),
)
@click.argument("client", type=click.Choice(list(CLIENTS)))
@click.option(
    "--directory", default=".", type=click.Path(file_okay=False, exists=True), help="The project's directory."
)
@page_option("The page, whatever $SCRATCHBUS_PAGE says.  [default: by the directory]")
@click.option("--agent", metavar="NAME", help="The agent's name.  [default: by the client]")
@click.option(
    "--knowledge", metavar="SCOPES", help="The users or projects whose preferences and facts it knows; see `mcp`."
)
@click.option("--tools", metavar="GROUPS", help="Its groups of tools; see `mcp`.")
@click.option("--yes", is_flag=True, help="Write it without asking.")
@pass_invocation
def setup(
    invocation: Invocation, client: str, directory: str, agent: str | None, knowledge: str | None, tools: str | None,
    yes: bool,
) -> None:  # fmt: skip
    """Configure a client to start the MCP server in a project.

    Shows what it writes, and asks first. Page and session are derived from the project's directory, so that projects
    never mix. The URL of the engine and the bus in force are written too. Claude Code also gets its hooks, see `hook`.
    """
    client_files, root = CLIENTS[client], Path(directory)
    page = invocation.page or page_of(root)
    name, groups, scopes = agent or client_files.agent, listed(tools), listed(knowledge) or []
    scratchbus.McpIdentity.of(name, page=page, session=page, tools=groups, knowledge=scopes)  # refuses what `mcp` would
    arguments = ["--agent", name, "--page", page, "--session", page]
    arguments += ["--knowledge", ",".join(scopes)] if scopes else []
    settings = invocation.settings()
    bus = None if settings.bus == default_bus() else settings.bus
    home = None if settings.home is None else f"embedded:{settings.home.resolve()}"
    url = settings.url or home
    server = ServerCommand(
        shutil.which("scratchbus") or "scratchbus",
        arguments,
        ["--tools", ",".join(groups)] if groups else [],
        url,
        bus,
    )
    files = {root / name: _merged(root / name, render(server)) for name, render in client_files.files.items()}
    if write_files(invocation, files, is_agreed=yes):
        invocation.out.text({"page": page, "files": [str(path) for path in files]}, "\n".join(map(str, files)))


def _merged(path: Path, added: Document) -> str:
    """Return a file's JSON with this in it too; whatever else it holds stays. Raises SettingsError."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = "{}"
    except (OSError, ValueError) as problem:
        raise SettingsError(f"{path}: {problem}; check the file") from None
    try:
        existing = json.loads(text or "{}")
    except (ValueError, RecursionError) as problem:
        raise SettingsError(f"{path}: this is not JSON ({problem}); repair it, or move it away") from None
    if not isinstance(existing, dict):
        raise SettingsError(f"{path}: this is not a JSON object; repair it, or move it away")
    try:
        merged = _with(existing, added)
    except TypeError as problem:
        raise SettingsError(f"{path}: {problem}; repair it, or move the file away") from None
    written = json.dumps(merged, indent=2, ensure_ascii=False) + "\n"
    try:
        written.encode()
    except UnicodeEncodeError:  # half of a pair, which JSON can only write as an escape
        written = json.dumps(merged, indent=2) + "\n"
    return written


def _with(existing: Document, added: Document) -> Document:
    """Return a document with another merged into it: objects by key, lists by replacing our own items.

    Raises TypeError rather than replace a value of another type.
    """
    found = dict(existing)
    for name, value in added.items():
        current = found.get(name)
        if name == "scratchbus":
            found[name] = value  # ours alone
        elif isinstance(current, dict) and isinstance(value, dict):
            found[name] = _with(current, value)
        elif isinstance(current, list) and isinstance(value, list):
            found[name] = [kept for each in current for kept in _without_own(each)] + value
        elif current is not None and isinstance(value, dict | list):
            raise TypeError(f"the value of {name!r} is not {'an object' if isinstance(value, dict) else 'a list'}")
        else:
            found[name] = value
    return found


def _without_own(group: Any) -> list[Any]:
    """Return a group of hooks without ours, as a list of one; an empty list if there are only ours."""
    if not _OWN_HOOK.search(json.dumps(group)):
        return [group]
    hooks = group.get("hooks") if isinstance(group, dict) else None
    kept = [each for each in hooks if not _OWN_HOOK.search(json.dumps(each))] if isinstance(hooks, list) else []
    return [{**group, "hooks": kept}] if kept else []
