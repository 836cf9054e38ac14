"""Runs commands. An error becomes one line on stderr and an exit code, see `exit_codes`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import TextIO

import click

import scratchbus
from scratchbus.cli.root import root
from scratchbus.cli.shell_completion import PROGRAM, VARIABLE
from scratchbus.cli.text import one_line
from scratchbus.daemon import INTERNAL, INTERRUPTED, OK, USAGE, exit_code, usage_line
from scratchbus.errors import ScratchbusError

DEBUG = "SCRATCHBUS_DEBUG"
"""The environment variable that makes errors show a traceback."""

_LONG_WORD = re.compile(r"\S{601,}")
"""A URL or a path of which errors show the ends; all ids are shorter."""


def run_command(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code."""
    try:
        return _run(list(arguments))
    except (KeyboardInterrupt, click.Abort):  # Abort: a question was not answered
        return INTERRUPTED
    except BrokenPipeError:
        _forget(sys.stdout)
        return OK  # the reader has seen enough, as `head` has
    except click.exceptions.NoArgsIsHelpError as wanted:
        wanted.show()
        return USAGE
    except click.ClickException as problem:
        return _fail(usage_line(problem, PROGRAM), USAGE)
    except ScratchbusError as problem:
        return _fail(str(problem), exit_code(problem))
    except OSError as problem:
        _forget_unwritable_output()
        file = f"{problem.filename}: " if isinstance(problem.filename, str) else ""
        return _fail(f"{file}{problem.strerror or problem}; check the disk, the terminal and the files", INTERNAL)
    except Exception as problem:
        description = f"{type(problem).__name__}: {problem}"
        return _fail(
            f"internal error, {description}; a bug; run it again with {DEBUG}=1 to see the traceback", INTERNAL
        )


def _run(arguments: list[str]) -> int:
    if instruction := os.environ.get(VARIABLE):
        from click.shell_completion import shell_complete

        return shell_complete(root, {}, PROGRAM, VARIABLE, instruction)
    for number, argument in enumerate(arguments, 1):
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise click.UsageError(f"argument {number} is not UTF-8 text") from None
    try:
        code = _invoke(arguments)
    except OSError:
        raise  # perhaps from writing the output: its error is not replaced by another one of the same
    except BaseException:
        sys.stdout.flush()
        raise
    sys.stdout.flush()
    return code


def _invoke(arguments: list[str]) -> int:
    try:
        with root.make_context(PROGRAM, arguments) as context:
            root.invoke(context)
    except click.exceptions.Exit as done:
        return done.exit_code
    return OK


def _fail(text: str, code: int) -> int:
    """Print an error on one line, below its traceback if that was asked for; return the exit code."""
    message = f"{PROGRAM}: {_LONG_WORD.sub(_shortened, one_line(text))}"
    if os.environ.get(DEBUG):
        import traceback  # late, as all that `--help` does not need

        message = f"{scratchbus.visible(traceback.format_exc())}\n{message}"
    try:
        print(message, file=sys.stderr, flush=True)  # noqa: T201  # what standard error is for
    except OSError:  # the exit code still says it
        _forget(sys.stderr)
    return code


def _shortened(word: re.Match[str]) -> str:
    return f"{word[0][:200]}…{word[0][-60:]}"


def _forget_unwritable_output() -> None:
    """Forget output that cannot be written."""
    try:
        sys.stdout.flush()
    except OSError:
        _forget(sys.stdout)


def _forget(stream: TextIO) -> None:
    """Forget what could not be written to a stream: Python would try again at its end, and exit with 120."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
