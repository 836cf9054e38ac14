"""Start programs of scratchbus in milliseconds: the launcher forks them with all imports done.

A short command spends most of its time on imports. `command("-m", "scratchbus.cli", "list")` returns a command that
asks the launcher of this test run to fork a process that does the same, with the caller's files, environment and
working directory. That command is a client: it forwards signals to the forked process and ends with its exit status.
In a forked process `sys.executable` is a client too. Do not use the launcher where a test is about the start itself.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

VARIABLE = "TESTS_LAUNCHER"
"""The environment variable that names the launcher's socket."""

KILL = signal.SIGUSR1
"""The signal that makes a client kill its program, and end like it."""

CLIENT = Path(__file__).with_name("client.py")


def command(*arguments: object) -> list[str]:
    """Return a command that runs Python with these arguments, forked by the launcher if one runs."""
    return [sys.executable, "-I", "-S", str(CLIENT), *map(str, arguments)]


def kill(process: subprocess.Popen[Any]) -> None:
    """Kill a program that was launched, and wait for its end."""
    process.send_signal(KILL)
    process.wait()
