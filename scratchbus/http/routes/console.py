"""The console: static files, sent compressed, restricted by the guard's headers."""

from __future__ import annotations

import gzip
import re
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

import brotli
from fastapi import APIRouter, Request
from starlette.responses import Response

from scratchbus.http.problems import nothing_here
from scratchbus.http.routes.about import open_console

router = APIRouter(include_in_schema=False)

_ROOT: Final = Path(__file__).parents[1] / "console"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
_LICENCE = "text/plain"
_CACHED = "no-cache"  # asked again each time, by its ETag: a new version shows at once
_ETAGS: Final = re.compile(r'(?:W/)?("[^"]*")')


class _File(NamedTuple):
    content: bytes
    compressed: dict[str, bytes]
    etag: str
    kind: str


@router.get("/")
async def get_console(request: Request) -> Response:
    """Return the console's page."""
    return await open_console(request) or _file_response(request, "index.html")


@router.get("/console/{path:path}")
async def get_file(request: Request, path: str) -> Response:
    """Return a file of the console."""
    return _file_response(request, path)


def read_files() -> int:
    """Read and compress all files, so that no browser has to wait for that; return how many there are."""
    return len([_read(path) for path in _paths()])


def _file_response(request: Request, path: str) -> Response:
    if path not in _paths():
        raise nothing_here()
    file = _read(path)
    headers = {"ETag": f"W/{file.etag}", "Cache-Control": _CACHED, "Vary": "Accept-Encoding"}  # weak: of all encodings
    if _is_known(", ".join(request.headers.getlist("if-none-match")), file.etag):
        return Response(status_code=304, headers=headers)
    accepted = request.headers.get("accept-encoding", "")
    for encoding, content in file.compressed.items():
        if _accepts(accepted, encoding):
            return Response(content, headers={**headers, "Content-Encoding": encoding}, media_type=file.kind)
    return Response(file.content, headers=headers, media_type=file.kind)


def _is_known(known: str, etag: str) -> bool:
    """Return whether a header If-None-Match names an ETag, weak or not, or is `*` (RFC 9110, 13.1.2)."""
    return known.strip() == "*" or etag in _ETAGS.findall(known)


def _accepts(accepted: str, encoding: str) -> bool:
    """Return whether a header Accept-Encoding accepts an encoding, by name or by `*` (RFC 9110, 12.5.3)."""
    weights: dict[str, float] = {}
    for part in accepted.lower().split(","):
        name, _, weight = (each.strip() for each in part.partition(";"))
        try:
            weights[name] = float(weight.partition("=")[2]) if weight else 1.0
        except ValueError:
            weights[name] = 0.0
    return weights.get(encoding, weights.get("*", 0.0)) > 0


@cache
def _paths() -> dict[str, Path]:
    """Return all files of the console by their paths: only these are ever sent."""
    files = [each for each in _ROOT.rglob("*") if each.is_file() and each.suffix not in (".md", ".pyc")]
    return {each.relative_to(_ROOT).as_posix(): each for each in files}


@cache
def _read(path: str) -> _File:
    content = _paths()[path].read_bytes()
    compressed = {"br": brotli.compress(content, quality=5), "gzip": gzip.compress(content, 9, mtime=0)}
    kind = _TYPES.get(_paths()[path].suffix, _LICENCE)
    return _File(content, compressed, f'"{sha256(content).hexdigest()[:32]}"', kind)
