"""The launcher: a process that has imported what programs need, and forks itself for each request.

It has no threads, so that a fork is complete, and ends when its standard input is closed.
"""

from __future__ import annotations

import importlib
import io
import marshal
import os
import runpy
import selectors
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any, NamedTuple, TextIO

from tests.preload import warm_up

PACKAGES = ("scratchbus", "daemons")
"""Packages whose modules are all imported before the first fork."""

LIBRARIES = ("apscheduler.schedulers.background", "fakeredis", "rich.console", "uvicorn")
"""Libraries that the packages import lazily."""


def _tell(client: socket.socket, number: int) -> None:
    """Send a number to a client, unless it was killed."""
    with suppress(ConnectionError):
        client.sendall(number.to_bytes(8, "big"))


class Program(NamedTuple):
    """A request: the arguments of Python, the environment and the working directory."""

    arguments: list[str]
    environment: dict[str, str]
    directory: str


class Launcher:
    """Fork programs for clients, report their wait status, and kill the programs of clients that end first."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._selector = selectors.DefaultSelector()
        self._clients: dict[int, socket.socket] = {}
        self._has_imported = False

    def serve(self) -> Program:
        """Answer requests until standard input is closed. In each forked process, return its program."""
        woken, waking = socket.socketpair()
        woken.setblocking(False)
        waking.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waking.fileno())
        for file in (sys.stdin, woken, self._listening):
            self._selector.register(file, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is woken:
                    woken.recv(4096)
                    self._reap()
                elif key.fileobj is self._listening:
                    program = self._launch()
                    if program is not None:
                        woken.close()
                        waking.close()
                        return program
                elif key.fileobj is sys.stdin:
                    self._end()
                else:
                    self._abandon(key.data)

    def _launch(self) -> Program | None:
        client, _ = self._listening.accept()
        files: list[int] = []
        request = b""
        with suppress(ConnectionError):  # a client may be killed at any moment
            size, files, _, _ = socket.recv_fds(client, 8, 3)
            request = _read(client, int.from_bytes(size, "big")) if len(files) == 3 else b""
        if not request:
            for file in files:
                os.close(file)
            client.close()
            return None
        if not self._has_imported:
            for name in LIBRARIES:
                importlib.import_module(name)
            warm_up(*PACKAGES)
            self._has_imported = True
        pid = os.fork()
        if pid == 0:
            self._leave(client)
            program = Program(*marshal.loads(request))  # noqa: S302 - it comes from our own client
            _become(program, files)
            return program
        for file in files:
            os.close(file)
        self._clients[pid] = client
        self._selector.register(client, selectors.EVENT_READ, pid)
        _tell(client, pid)
        return None

    def _leave(self, client: socket.socket) -> None:
        """Close the launcher's files and sockets in a forked process."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started the run with SIGINT ignored
        self._selector.close()
        for each in (self._listening, client, *self._clients.values()):
            each.close()

    def _reap(self) -> None:
        while self._clients:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            with self._clients.pop(pid) as client:
                if client in self._selector.get_map():
                    self._selector.unregister(client)
                    _tell(client, status)

    def _abandon(self, pid: int) -> None:
        """Kill a program whose client has ended, unless it has just ended itself."""
        if pid not in self._clients:
            return
        self._selector.unregister(self._clients[pid])
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def _end(self) -> None:
        for pid in self._clients:
            os.kill(pid, signal.SIGKILL)
        os._exit(0)


def _read(client: socket.socket, size: int) -> bytes:
    """Read a request; return nothing if the client ends before it is complete."""
    got = b""
    while len(got) < size:
        part = client.recv(size - len(got))
        if not part:
            return b""
        got += part
    return got


def _become(program: Program, files: list[int]) -> None:
    """Take on the files, environment and working directory of a program; its child processes use the launcher too."""
    sys.executable = sys.argv[2]
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(program.environment)
    time.tzset()
    os.chdir(program.directory)
    sys.stdin = sys.__stdin__ = _text(0, "rb", sys.stdin)  # type: ignore[misc, assignment]
    sys.stdout = sys.__stdout__ = _text(1, "wb", sys.stdout)  # type: ignore[misc, assignment]
    sys.stderr = sys.__stderr__ = _text(2, "wb", sys.stderr)  # type: ignore[misc, assignment]


def _text(file: int, mode: str, like: TextIO) -> TextIO:
    """Open a standard file as Python does when it starts."""
    raw: Any = open(file, mode, closefd=False)  # noqa: SIM115
    return io.TextIOWrapper(
        raw, like.encoding, like.errors, line_buffering=file == 2 or os.isatty(file), write_through=False
    )


def run(arguments: list[str]) -> None:
    """Run like Python with these arguments: a file, a module after -m, or code after -c."""
    has_safe_path = arguments[0] == "-P"
    if has_safe_path:
        arguments = arguments[1:]
    if arguments[0] == "-m":
        name = arguments[1]
        sys.argv = arguments[1:]
        if not has_safe_path:
            sys.path[0] = os.getcwd()
        sys.modules.pop(name, None)
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    elif arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        sys.path[0] = ""
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102
    else:
        sys.argv = arguments
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    run(Launcher(socket.socket(fileno=int(sys.argv[1]))).serve().arguments)
