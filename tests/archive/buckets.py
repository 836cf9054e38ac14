"""A small object store with the part of S3 that an archive needs, and failures on request."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 3
"""Names per page of a listing: few, so that there are several pages."""


class Bucket:
    """The objects of one bucket by name. `fails` returns the status with which a request fails, or 0."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.fails: Callable[[str, str], int] = lambda method, name: 0
        self.lock = threading.Lock()
        self.url = ""

    def names(self, prefix: str, after: str) -> tuple[list[str], str]:
        """Return the next names, and the last of them if there are more."""
        found = sorted(name for name in self.objects if name.startswith(prefix) and name > after)
        return found[:PAGE], found[PAGE - 1] if len(found) > PAGE else ""


@contextmanager
def bucket() -> Iterator[Bucket]:
    """Serve a bucket on a free port of this machine."""
    held = Bucket()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(held))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    held.url = f"s3://KEY:s3cr3t@bucket/pre/fix?region=here&endpoint=http://127.0.0.1:{server.server_port}"
    try:
        yield held
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler_of(bucket: Bucket) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer()

        def do_HEAD(self) -> None:
            self._answer()

        def do_PUT(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

        def _answer(self) -> None:
            url = urlsplit(self.path)
            name = unquote(url.path).removeprefix("/bucket").removeprefix("/")
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with bucket.lock:
                code, body = bucket.fails(self.command, name), b""
                if not code:
                    code, body = self._do(name, parse_qs(url.query), content)
            part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            if part and code == 200:
                first, last, size = int(part[1]), min(int(part[2]), len(body) - 1), len(body)
                code, body = (
                    (206, body[first : last + 1])
                    if first < size
                    else (416, b"<Error><Code>InvalidRange</Code></Error>")
                )
            self.send_response(code)
            if part and code == 206:
                self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", '"1"')
            self.send_header("Last-Modified", "Sat, 01 Jan 2028 00:00:00 GMT")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def _do(self, name: str, query: dict[str, list[str]], content: bytes) -> tuple[int, bytes]:
            match self.command:
                case "PUT" if self.headers.get("If-None-Match") == "*" and name in bucket.objects:
                    return 412, b"<Error><Code>PreconditionFailed</Code></Error>"
                case "PUT":
                    bucket.objects[name] = content
                case "POST":  # deletes names
                    for key in (keys := re.findall(b"<Key>(.*?)</Key>", content)):
                        bucket.objects.pop(key.decode(), None)
                    deleted = b"".join(b"<Deleted><Key>%b</Key></Deleted>" % key for key in keys)
                    return 200, b"<DeleteResult>%b</DeleteResult>" % deleted
                case _ if not name:
                    return 200, _listed(bucket, query)
                case _ if name not in bucket.objects:
                    return 404, b"<Error><Code>NoSuchKey</Code></Error>"
                case _:
                    return 200, bucket.objects[name]
            return 200, b""

    return Handler


def _listed(bucket: Bucket, query: dict[str, list[str]]) -> bytes:
    (prefix,), (after,) = query.get("prefix", [""]), query.get("continuation-token", [""])
    names, token = bucket.names(prefix, after)
    rows = "".join(
        f"<Contents><Key>{escape(name)}</Key><Size>{len(bucket.objects[name])}</Size>"
        '<ETag>"1"</ETag><LastModified>2028-01-01T00:00:00.000Z</LastModified></Contents>'
        for name in names
    )
    more = f"<NextContinuationToken>{escape(token)}</NextContinuationToken>" if token else ""
    is_cut = f"<IsTruncated>{str(bool(token)).lower()}</IsTruncated>"
    return f"<ListBucketResult>{is_cut}{rows}{more}</ListBucketResult>".encode()
