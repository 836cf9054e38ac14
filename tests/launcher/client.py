"""The client of a launched process: it sends its files and arguments, forwards signals, and ends like the process.

It imports only modules built into Python, to start in milliseconds.
"""

import marshal
import os
import sys
from _signal import SIG_DFL, SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGUSR1, SIGUSR2, signal  # type: ignore[import-not-found]
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket
from array import array

FORWARDED = {SIGHUP: SIGHUP, SIGINT: SIGINT, SIGTERM: SIGTERM, SIGUSR1: SIGKILL, SIGUSR2: SIGUSR2}


def launch(address: str) -> int:
    """Have the launcher run a program; return its wait status."""
    pid, early = 0, list[int]()

    def forward(number: int, _: object) -> None:
        if pid:
            os.kill(pid, FORWARDED[number])
        else:
            early.append(FORWARDED[number])

    for number in FORWARDED:
        signal(number, forward)
    launcher = socket(AF_UNIX, SOCK_STREAM)
    launcher.connect(address)
    request = marshal.dumps((sys.argv[1:], dict(os.environ), os.getcwd()))
    launcher.sendmsg([len(request).to_bytes(8, "big")], [(SOL_SOCKET, SCM_RIGHTS, array("i", [0, 1, 2]))])
    launcher.sendall(request)
    pid = _number(launcher)
    for each in early:
        os.kill(pid, each)
    nothing = os.open(os.devnull, os.O_RDWR)
    for file in (0, 1, 2):
        os.dup2(nothing, file)  # only the program keeps them open, so that readers notice when it closes them
    return _number(launcher)


def _number(launcher: socket) -> int:
    """Read a number from the launcher. Raises EOFError if it has ended."""
    got = b""
    while len(got) < 8:
        part = launcher.recv(8 - len(got))
        if not part:
            raise EOFError("the launcher has ended")
        got += part
    return int.from_bytes(got, "big")


if __name__ == "__main__":
    address = os.environ.get("TESTS_LAUNCHER")
    if address is None:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])  # noqa: S606
    code = os.waitstatus_to_exitcode(launch(address))
    if code < 0:
        if -code != SIGKILL:
            signal(-code, SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
