"""Completion for shells: the command that installs it, and the values that TAB offers without an engine."""

from __future__ import annotations

import click

import scratchbus
from scratchbus.cli.commands import command
from scratchbus.cli.invocation import Invocation, pass_invocation

VARIABLE = "_SCRATCHBUS_COMPLETE"
"""The environment variable by which a shell asks for completions."""

PROGRAM = "scratchbus"


@command(
    examples=(
        "scratchbus completion bash >> ~/.bashrc",
        "scratchbus completion zsh >> ~/.zshrc",
        "scratchbus completion fish > ~/.config/fish/completions/scratchbus.fish",
    ),
    shared=(),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@pass_invocation
@click.pass_context
def completion(context: click.Context, invocation: Invocation, shell: str) -> None:
    """Print a script that completes commands and options on TAB.

    Put it into the start-up file of your shell.
    """
    from click.shell_completion import BashComplete, FishComplete, ZshComplete  # late: `--help` does not need it

    completer = {"bash": BashComplete, "fish": FishComplete, "zsh": ZshComplete}[shell]
    invocation.out.line(completer(context.find_root().command, {}, PROGRAM, VARIABLE).source())


def type_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the observation types in the settings that start with a text."""
    return [name for name in _types() if name.startswith(incomplete)]


def statuses(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the statuses in the lifecycles of these types that start with a text."""
    names = dict.fromkeys(status for kind in _types().values() for status in kind.lifecycle.statuses)
    return [name for name in names if name.startswith(incomplete)]


def kinds(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the kinds of events that start with a text."""
    return [name for name in scratchbus.events.EVENTS if name.startswith(incomplete)]


def _types() -> dict[str, scratchbus.ObservationType]:
    """Return the observation types in the settings by name; none if the settings cannot be read."""
    from scratchbus.errors import ScratchbusError
    from scratchbus.settings import load_settings, shipped

    try:
        settings = load_settings()
        return dict(scratchbus.load_registry(settings.observation_types or shipped("observation_types.yaml")).types)
    except ScratchbusError:
        return {}
