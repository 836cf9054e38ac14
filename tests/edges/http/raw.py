"""Requests that no client library would send."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import suppress
from urllib.parse import urlsplit

from tests.waiting import PATIENCE


class Answer:
    """The answer of a server, until it closed the connection."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        head, _, self.body = text.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split()[1]) if text else 0
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}


def send(url: str, parts: Iterable[bytes]) -> Answer:
    """Send bytes on a new connection while the server accepts them, and return its answer."""
    where = urlsplit(url)
    with socket.create_connection((where.hostname, where.port), timeout=PATIENCE) as connection:
        found = b""
        with suppress(ConnectionError):
            for part in parts:
                connection.sendall(part)
                found += _at_hand(connection)
        with suppress(ConnectionError):
            connection.settimeout(PATIENCE)
            while data := connection.recv(65536):
                found += data
    return Answer(found)


def head(url: str, first: str, *lines: str) -> bytes:
    """Return the head of a request that closes its connection."""
    return "\r\n".join([first, f"Host: {urlsplit(url).netloc}", "Connection: close", *lines, "", ""]).encode("latin-1")


def _at_hand(connection: socket.socket) -> bytes:
    connection.settimeout(0.0)
    try:
        return connection.recv(65536)
    except BlockingIOError:
        return b""
    finally:
        connection.settimeout(PATIENCE)
