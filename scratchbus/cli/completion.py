"""Completion for shells: what is typed is completed on TAB."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from scratchbus.cli.common import Session, command, pass_session

VARIABLE = "_SCRATCHBUS_COMPLETE"
"""The environment variable by which a shell asks for completions."""

PROGRAM = "scratchbus"

_SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@command(
    examples=(
        "scratchbus completion bash >> ~/.bashrc",
        "scratchbus completion zsh >> ~/.zshrc",
        "scratchbus completion fish > ~/.config/fish/completions/scratchbus.fish",
    )
)
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@pass_session
@click.pass_context
def completion(context: click.Context, session: Session, shell: str) -> None:
    """Print what completes commands and options on TAB.

    Put it where your shell reads it at its start.
    """
    root = context.find_root().command
    session.out.line(_SHELLS[shell](root, {}, PROGRAM, VARIABLE).source())
