"""Programs of scratchbus as processes that start in milliseconds, since they are forked with all imports done.

Most of what a short command takes is to import libraries. `command("-m", "scratchbus.cli", "list")` returns a command
that asks the launcher of this test run for a process that does the same, with the caller's files, environment and
working directory. The launched process is one of its own; a client stands for it: it forwards signals to it, and ends
as it ended. In such a process, `sys.executable` is a client as well. Where the start is what is tested, do not use it.
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
"""The signal by which a client kills its program, before it ends as that did."""

CLIENT = Path(__file__).with_name("client.py")


def command(*arguments: object) -> list[str]:
    """Return the command that runs Python with these arguments, forked by the launcher if there is one."""
    return [sys.executable, "-I", "-S", str(CLIENT), *map(str, arguments)]


def kill(process: subprocess.Popen[Any]) -> None:
    """Kill a program that was launched, and wait for its end."""
    process.send_signal(KILL)
    process.wait()
