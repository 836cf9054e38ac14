"""The check of every answer that a client of the API gets against the OpenAPI document."""

from __future__ import annotations

import re
from functools import cache

import httpx2

from scratchbus.http.app import declare_app
from scratchbus.http.callers import LocalUser
from scratchbus.http.server import Server
from tests.edges.http.documented import Operation, operations

ACTED_UPON = ("etag", "location", "link", "retry-after")
"""The headers that clients act upon, all of which the document has to name."""


def check_answer(answer: httpx2.Response) -> None:
    """Fail unless an answer of the API has a documented status, media type, body and headers."""
    request = answer.request
    path = request.url.raw_path.decode().partition("?")[0]
    found = _operation_of("get" if request.method == "HEAD" else request.method.lower(), path)
    if found is None or answer.status_code == 405:
        return
    documented = dict(found.responses()).get(answer.status_code)
    assert documented is not None, f"{found}: {answer.status_code} is not documented"
    headers = {name.lower(): each for name, each in documented.get("headers", {}).items()}
    for name in ACTED_UPON:
        assert name in headers or name not in answer.headers, f"{found}: {answer.status_code} has {name}"
    for name, each in headers.items():
        assert name in answer.headers or not each.get("required"), f"{found}: {answer.status_code} lacks {name}"
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if kind == "text/event-stream":
        return  # it does not end
    if answer.read():
        assert kind in documented.get("content", {}), f"{found}: {answer.status_code} has {kind}"
        if kind.endswith("json"):
            found.check(documented["content"][kind]["schema"], answer.json())


def _operation_of(method: str, path: str) -> Operation | None:
    matches = [each for pattern, each in _documented() if each.method == method and pattern.fullmatch(path)]
    return min(matches, key=lambda each: each.path.count("{"), default=None)


@cache
def _documented() -> list[tuple[re.Pattern[str], Operation]]:
    document = declare_app(Server(LocalUser("here"), {}, frozenset())).openapi()
    return [(re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(each.path))), each) for each in operations(document)]
