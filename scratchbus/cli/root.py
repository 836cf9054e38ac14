"""The command `scratchbus` with all its commands, in sections."""

from __future__ import annotations

from importlib import import_module

import click

from scratchbus.cli.commands import ALL, BusGroup

SECTIONS: dict[str, dict[str, str]] = {
    "Add observations": {"add": "add", "update": "add"},
    "See the page and the log": {
        "active": "read", "ready": "read", "list": "read", "show": "read", "history": "read", "trace": "read",
        "watch": "follow", "tail": "follow",
    },
    "See the past": {"replay": "audit", "diff": "audit"},
    "Change observations": {
        "claim": "change", "claim-next": "change", "release": "change", "link": "change", "review": "change",
        "resolve": "change", "archive": "change", "reopen": "change", "refute": "change", "clear-resolved": "change",
    },
    "Memory of agents": {
        "note": "notes", "notepad": "notepad", "todo": "plans", "scratchpad": "plans", "turns": "turns",
        "files": "files", "memory": "memory", "facts": "facts", "context": "context", "recall": "recall",
        "workspace": "workspace",
    },
    "Run and maintain a bus": {
        "up": "run", "run": "run", "status": "run", "start": "run", "stop": "run", "systemd": "systemd",
        "serve": "serve", "mcp": "mcp", "setup": "setup", "hook": "hook", "types": "types",
        "dead-letters": "dead_letters", "log-archive": "archive", "rebuild": "maintain", "verify": "maintain",
        "repair": "maintain", "erase": "maintain", "import": "maintain", "demo": "run",
        "completion": "shell_completion",
    },
}  # fmt: skip
"""The commands by section, each with its module, which is imported when it is needed."""

_MODULES = {name: module for section in SECTIONS.values() for name, module in section.items()}


class _Root(BusGroup):
    """The command itself; its help shows the commands in sections."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return sorted(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; `ls` is `list`."""
        cmd_name = "list" if cmd_name == "ls" else cmd_name
        if cmd_name in _MODULES and cmd_name not in self.commands:
            found, name = vars(import_module(f"scratchbus.cli.{_MODULES[cmd_name]}")), cmd_name.replace("-", "_")
            self.add_command(found.get(name) or found[f"{name}_"])  # where the name is a word of Python
        return self.commands.get(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that `args` start with, and the rest. Fails with the nearest names."""
        if args[0] not in _MODULES and args[0] != "ls":
            for name in _MODULES:
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections."""
        widest = max(map(len, _MODULES))
        for title, names in SECTIONS.items():
            with formatter.section(title):
                room = formatter.width - formatter.current_indent - widest - 4
                commands = filter(None, (self.get_command(ctx, name) for name in names))
                formatter.write_dl([(str(each.name).ljust(widest), each.get_short_help_str(room)) for each in commands])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands before the options, because people look for commands."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)


_EXIT_CODES = (
    "Exit codes: 0 success, 1 internal, 2 usage, 3 not found, 4 conflict or invalid transition, 5 invalid input, 6"
    " engine unreachable, 130 Ctrl-C."
)


@click.group(
    cls=_Root,
    shared=ALL,
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
