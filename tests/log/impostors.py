"""A process of another user that listens in place of an engine, and records what it receives."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.waiting import eventually

STRANGER = 65534
"""The user id of another user."""

_LISTENER = """\
import os, socket, sys
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(int(sys.argv[2]))
    os.setuid(int(sys.argv[2]))
server = socket.socket(fileno=int(sys.argv[1]))
server.listen()
print("listening", flush=True)
while True:
    connection, _ = server.accept()
    connection.settimeout(20)
    print("connected", flush=True)
    while received := connection.recv(65536):
        print("received", received, flush=True)
    print("closed", flush=True)
"""


class Impostor:
    """The reports of a listener so far."""

    def __init__(self, reports: int) -> None:
        self._reports = reports
        self._text = ""

    def reports(self) -> list[str]:
        """Return the reports, one a line: connected, received BYTES, closed."""
        with suppress(BlockingIOError):
            while received := os.read(self._reports, 65536):
                self._text += received.decode()
        return self._text.splitlines()

    def received_bytes(self) -> list[str]:
        """Return the reports of received bytes."""
        return [report for report in self.reports() if report.startswith("received")]


@contextmanager
def impostor(place: Path, *, owner: int | None = None, mode: int = 0o700) -> Iterator[Impostor]:
    """Let a process of the stranger listen at a path; the file there belongs to `owner`, by default to the stranger."""
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(place))
        place.chmod(mode)
        os.chown(place, STRANGER if owner is None else owner, -1)
        process = subprocess.Popen(
            [sys.executable, "-c", _LISTENER, str(bound.fileno()), str(STRANGER)],
            stdout=subprocess.PIPE,
            pass_fds=[bound.fileno()],
        )
    assert process.stdout is not None
    try:
        os.set_blocking(process.stdout.fileno(), False)
        listener = Impostor(process.stdout.fileno())
        eventually(lambda: listener.reports()[:1] == ["listening"])
        yield listener
    finally:
        process.kill()
        process.communicate()
        place.unlink(missing_ok=True)
