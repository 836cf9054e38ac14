"""A fake server that speaks the Redis protocol."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import hiredis


@contextmanager
def fake_server(answers: Callable[[list[bytes]], bytes]) -> Iterator[str]:
    """Run a server that answers each command by calling the function; yield its URL."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            reader = hiredis.Reader()
            while received := self.request.recv(65536):
                reader.feed(received)
                while (command := reader.gets()) is not False:
                    self.request.sendall(answers(command))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"redis://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def bulk(text: str) -> bytes:
    return f"${len(text)}\r\n{text}\r\n".encode()
