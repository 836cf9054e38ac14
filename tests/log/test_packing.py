"""Packing commands: hiredis crashes if a signal handler raises while it converts a number."""

from __future__ import annotations

import subprocess
import sys

from scratchbus.engine.connections import pack

INTERRUPTED = """
import signal
from scratchbus.engine.connections import pack

def interrupt(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
command = ("EVALSHA", "a" * 40, 7, *map(str, range(7)), *range(20), 1.5, True, b"x", "y")
interrupts = 0
while interrupts < 400:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0007)
        while True:
            pack((command,))
    except KeyboardInterrupt:
        interrupts += 1
"""


def test_numbers_are_packed_as_text():
    assert pack((("SET", "k", 7, 1.5, b"\xff"), ("GET", "é"))) == (
        b"*5\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\n7\r\n$3\r\n1.5\r\n$1\r\n\xff\r\n*2\r\n$3\r\nGET\r\n$2\r\n\xc3\xa9\r\n"
    )


def test_an_interrupt_while_packing_does_not_crash_the_process():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
