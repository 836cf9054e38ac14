"""The error line for a wrong command line."""

from __future__ import annotations

import re

import click

_ASIDE = re.compile(r"\((Did you mean [^()]*\?)\)$")

_NUMBER = re.compile(r"is not a valid (integer|float)(?: range)?$")
"""How click ends its message about a number, which names the type by its class: "a valid integer range"."""

_NUMBERS = {"integer": "is not an integer", "float": "is not a number"}

_CUTOFF = 0.62
"""How similar an option must be to be suggested, from 0 to 1."""

_SHOWN = 400
"""How many characters of a long text are shown, of its start and of its end."""


def usage_line(problem: click.ClickException, program: str) -> str:
    """Return one line that says what is wrong with the command line, and which --help describes it."""
    text = _ASIDE.sub(r"\1", " ".join(_said_by(problem).split())).rstrip(".")
    text = _NUMBER.sub(lambda found: _NUMBERS[found[1]], text)
    if len(text) > 2 * _SHOWN:  # it quotes what was given
        text = f"{text[:_SHOWN]}...{text[-_SHOWN:]}"
    context = problem.ctx if isinstance(problem, click.UsageError) else None
    command = context.command_path if context is not None else program
    separator = " See" if text.endswith("?") else "; see"
    return f"{text[:1].lower()}{text[1:]}{separator} `{command} --help`"


def _said_by(problem: click.ClickException) -> str:
    """Return what is wrong; of the options that a mistyped one resembles, the most similar alone.

    Of a missing option, it also names the environment variable.
    """
    if isinstance(problem, click.NoSuchOption) and problem.possibilities:
        from difflib import get_close_matches  # late: only a mistake needs it

        bare = [name.lstrip("-") for name in problem.possibilities]
        similar = get_close_matches(problem.option_name.lstrip("-"), bare, 1, _CUTOFF)  # the dashes say nothing
        return f"{problem.message} Did you mean '--{similar[0]}'?" if similar else problem.message
    said = problem.format_message()
    if isinstance(problem, click.MissingParameter) and problem.param is not None and problem.param.envvar:
        return f"{said.rstrip('.')}; give it, or set {problem.param.envvar}"
    return said
