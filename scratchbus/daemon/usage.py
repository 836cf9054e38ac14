"""The error line for a wrong command line."""

from __future__ import annotations

import click


def usage_line(problem: click.ClickException, program: str) -> str:
    """Return one line that says what is wrong with the command line, and which --help describes it."""
    text = " ".join(problem.format_message().split()).rstrip(".")
    context = problem.ctx if isinstance(problem, click.UsageError) else None
    command = context.command_path if context is not None else program
    between = " See" if text.endswith("?") else "; see"
    return f"{text[:1].lower()}{text[1:]}{between} `{command} --help`"
