"""Conventions of HTTP: HEAD, Allow, compression, preconditions, retries, paging, times with a zone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import date
from importlib.resources import files
from typing import Any

import httpx2
import pytest

from scratchbus import Bus, new_id
from scratchbus.http import patterns
from scratchbus.settings import MAX_BUDGET
from tests.edges.http.conftest import Served, serving
from tests.faults.servers import DURABLE, Server, embedded_binary
from tests.waiting import eventually

NEW = {"type": "observation", "content": "seen"}


def slug(answer: httpx2.Response) -> str:
    """Return the slug of the problem in an answer."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    found: str = answer.json()["type"]
    return found.removeprefix("urn:scratchbus:problem:")


def add(http: httpx2.Client, page: str, **fields: object) -> Any:
    answer = http.post(f"/pages/{page}/observations", json={**NEW, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


# methods


def test_head_is_get_without_a_body(http, page):
    path = f"/pages/{page}/observations/{add(http, page)['id']}"
    whole, head = http.get(path), http.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert {name: head.headers[name] for name in ("etag", "content-type", "content-length")} == {
        "etag": '"1"', "content-type": "application/json", "content-length": str(len(whole.content))
    }  # fmt: skip
    missing = http.head("/nothing")
    assert (missing.status_code, missing.content) == (404, b"")
    assert http.get(path).content == whole.content  # on the same connection


def test_head_of_a_stream_ends(http):
    head = http.head("/events", headers={"Accept": "text/event-stream"})
    assert (head.status_code, head.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
    assert http.get("/me").status_code == 200


def test_an_unknown_path_is_a_problem(http):
    assert (http.get("/nothing").status_code, slug(http.get("/nothing"))) == (404, "not-found")


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        (
            "/pages/main/observations/01m8d3",
            "id: '01m8d3' is not the id of an observation; ids are ULIDs of 26 characters",
        ),
        ("/pages/a%2Fb/observations/nope/history", "id: 'nope' is not the id of an observation"),
        ("/sessions/s1/notes/7", "note: '7' is not the id of a note, such as note_1795386035607"),
        ("/scopes/s/facts/7", "fact: '7' is not the id of a fact, such as fact_1795386035607"),
        ("/nothing/7", "there is nothing at this path; /api/v1/openapi.json lists all paths"),
    ],
)
def test_a_malformed_id_in_a_path_is_explained(http, path, detail):
    answer = http.get(path)
    assert (answer.status_code, slug(answer)) == (404, "not-found")
    assert answer.json()["detail"].startswith(detail)


# representations


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd"])
def test_a_long_answer_is_compressed_on_request(http, page, encoding):
    add(http, page, content="x" * 8_000)
    answer = http.get(f"/pages/{page}/observations", headers={"Accept-Encoding": encoding})
    assert answer.headers["content-encoding"] == encoding
    assert int(answer.headers["content-length"]) < 2_000
    assert answer.json()["items"][0]["content"] == "x" * 8_000
    plain = http.get(f"/pages/{page}/observations", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers


@pytest.mark.parametrize(
    ("accepted", "sent"),
    [
        ("gzip, deflate, br, zstd", "br"),
        ("br;q=0, gzip", "gzip"),
        ("br; q=0.0, gzip;q=0.5", "gzip"),
        ("GZIP", "gzip"),
        ("*", "br"),
        ("br;q=0, *", "gzip"),
        ("gzip, *;q=0", "gzip"),
        ("br;q=none", None),
        ("brotli, x-gzip", None),
        ("identity", None),
        ("", None),
    ],
)
def test_a_file_of_the_console_has_an_accepted_encoding(http, accepted, sent):
    answer = http.get(http.base_url.copy_with(path="/console/app.js"), headers={"Accept-Encoding": accepted})
    assert answer.headers.get("content-encoding") == sent
    assert answer.headers["etag"].startswith("W/")  # a strong one would be of one encoding only
    assert answer.text.startswith("// The shell")


@pytest.mark.parametrize(
    ("accepted", "sent"),
    [
        ("gzip;q=0", None),
        ("*;q=0", None),
        ("GZIP ; Q=0.000, br;q=0, zstd;q=0", None),
        ("*, gzip;q=0", "zstd"),
        ("zstd;q=0, br;q=0, *", "gzip"),
        ("zstd;q=0, gzip;q=0.5", "gzip"),
    ],
)
def test_a_long_answer_never_has_a_refused_encoding(http, accepted, sent):
    answer = http.get("/openapi.json", headers={"Accept-Encoding": accepted})
    assert answer.headers.get("content-encoding") == sent
    assert answer.headers["vary"] == "Accept-Encoding"
    assert answer.json()["openapi"].startswith("3.1")


@pytest.mark.parametrize(
    ("known", "status"),
    [
        ("W/{}", 304),
        ("{}", 304),
        ('"other", {}', 304),
        ('"a, b" , W/"other",W/{}', 304),
        ("*", 304),
        ('"other"', 200),
        ('W/"other", "*"', 200),
        ("", 200),
    ],
)
def test_a_known_file_of_the_console_is_not_sent_again(http, known, status):
    url = http.base_url.copy_with(path="/console/app.js")
    etag = http.get(url).headers["etag"]
    answer = http.get(url, headers={"If-None-Match": known.format(etag.removeprefix("W/"))})
    assert (answer.status_code, answer.headers["etag"]) == (status, etag)
    assert (answer.content == b"") == (status == 304)


def test_each_line_of_known_etags_counts(http):
    url = http.base_url.copy_with(path="/console/app.js")
    lines = [("If-None-Match", '"other"'), ("If-None-Match", http.get(url).headers["etag"])]
    assert http.get(url, headers=lines).status_code == 304


def test_a_stream_is_not_compressed(http):
    with http.stream("GET", "/events", headers={"Accept": "text/event-stream", "Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert "content-encoding" not in answer.headers


@pytest.mark.parametrize("field", ["expires_at", "remind_at"])
def test_a_time_without_a_zone_is_refused(http, page, field):
    refused = http.post(f"/pages/{page}/observations", json={**NEW, field: "2030-01-01T00:00:00"})
    assert (refused.status_code, slug(refused)) == (422, "invalid-field")
    with_zone = http.post(f"/pages/{page}/observations", json={**NEW, field: "2030-01-01T01:00:00+01:00"})
    assert with_zone.json()[field] == "2030-01-01T00:00:00Z"


def test_a_time_after_the_last_year_is_explained(http, page):
    """Programs write the year 9999 for "never"."""
    refused = http.post(f"/pages/{page}/observations", json={**NEW, "expires_at": "9999-12-31T23:59:59Z"})
    assert refused.json()["detail"].startswith("expires_at: '9999-12-31T23:59:59Z' is not a time from 1970 to 8999;")


def _days(year: int) -> Iterator[str]:
    for month in range(14):
        yield from (f"{year}-{month:02}-{day:02}" for day in range(33))


def test_the_pattern_of_times_has_exactly_the_days_of_the_calendar():
    for pattern in (patterns.TIME, patterns.MOMENT):
        matches = re.compile(pattern).search
        for year in (*range(1968, 2030), 2096, 2100, 2200, 2396, 2400, 3200, 3600, 5600, 7900, 8900, 8996, 8999, 9000):
            for day in _days(year):
                assert bool(matches(f"{day}T12:00:00Z")) == (_is_day(day) and 1970 <= year < 9000), day


def _is_day(text: str) -> bool:
    try:
        return bool(date.fromisoformat(text))
    except ValueError:
        return False


@pytest.mark.parametrize("day", ["2026-02-30", "2026-02-29", "2026-04-31"])
def test_a_day_that_no_calendar_has_is_422(http, page, day):
    time, path = f"{day}T12:00:00Z", f"/pages/{page}/observations"
    for where, name in ((path, "since"), (path, "at"), (f"/pages/{page}/diff", "from"), ("/events/histogram", "until")):
        refused = http.get(where, params={name: time})
        assert (refused.status_code, slug(refused)) == (422, "invalid-request")
        assert refused.json()["detail"].startswith(f"{name}: '{time}' is not a time")
    for name in ("expires_at", "remind_at", "not_before"):
        refused = http.post(path, json={**NEW, name: time})
        assert (refused.status_code, refused.json()["field"]) == (422, name)
    fact = {"subject": "api", "relation": "runs_on", "object": "Node 24", "valid_at": time}
    assert http.post(f"/scopes/{page}/facts", json=fact).status_code == 422


@pytest.mark.parametrize("name", ["since", "at"])
def test_a_moment_without_a_zone_is_refused(http, page, name):
    refused = http.get(f"/pages/{page}/observations", params={name: "2026-01-01T00:00:00"})
    assert (refused.status_code, slug(refused)) == (422, "invalid-request")


def _parameters(http: httpx2.Client) -> Iterator[tuple[str, str, str, str]]:
    """Yield the method, path, place and name of each parameter with a pattern."""
    document = http.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for parameter in operation.get("parameters", ()):
                if path.startswith("/api/v1/") and "pattern" in json.dumps(parameter.get("schema", {})):
                    yield method, path.removeprefix("/api/v1"), parameter["in"], parameter["name"]


_BAD = {"query": ("\x01", " "), "header": ("a b",), "path": ("%20",)}
_GOOD = {"page": "main", "session": "s1", "agent": "a", "scope": "a", "name": "a", "subject": "a"}
_GOOD |= {"id": "01M82NHKCCEBT4DDKQ2K3C35T3", "note": "note_1", "fact": "fact_1", "task": "task_1@s1"}


def test_no_error_shows_a_regular_expression(http):
    words = set()
    for method, path, place, name in _parameters(http):
        for bad in _BAD[place]:
            given = {name: bad}
            where = path.format(**_GOOD | (given if place == "path" else {}))
            headers = given if place == "header" else {}
            params = given if place == "query" else {}
            answer = http.request(method, where, params=params, headers=headers)
            if answer.status_code == 422 and slug(answer) == "invalid-request":
                found = [each["problem"] for each in answer.json()["errors"] if each["field"] == name]
                words |= {(place, name, each) for each in found}
    assert len({name for _, name, _ in words}) > 20, words
    assert [each for each in words if re.search(r"pattern|\^|\$|\[", each[2])] == []
    assert ("path", "page", "' ' is not a name; use 1–128 letters, digits and _.@/:-") in words


def test_an_unencoded_plus_in_a_zone_is_explained(http, page):
    refused = http.get(f"/pages/{page}/active?at=2026-11-23T00:00:00+01:00")
    assert refused.json()["detail"] == (
        "at: '2026-11-23T00:00:00 01:00' is not a time or a position; write ISO 8601 with a zone, such as "
        "2026-01-31T12:00:00Z, or a position such as 1795386035607-1; in a URL, + is %2B"
    )


def test_a_repeated_parameter_is_refused(http, page):
    path = f"/pages/{page}/observations"
    for given in ("limit=1&limit=2", "type=observation&type=risk_alert", "at=1-1&at=1-1"):
        refused = http.get(f"{path}?{given}")
        assert (refused.status_code, slug(refused)) == (422, "repeated-parameter"), given
    assert http.get(f"{path}?tag=a&tag=b").status_code == 200


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [("Idempotency-Key", "one", "two"), ("If-Match", "*", '"77"'), ("If-Match", '"0"', '"77"')],
)
def test_a_repeated_header_is_refused(http, page, name, first, second):
    path = f"/sessions/{page}/notepad"
    answer = http.put(path, json={"content": "x"}, headers=[(name, first), (name, second)])
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, name)
    assert http.get(path).json()["revision"] == 0


def test_an_invalid_field_is_explained(http, page):
    refused = http.post(f"/scopes/{page}/facts", json={"subject": "a\tb", "relation": "runs_on", "object": "x"})
    detail = "subject: 'a\\tb' is not a line of text; use printable characters, not only spaces"
    assert (refused.status_code, refused.json()["detail"]) == (422, detail)
    missing = http.get("/recall")
    assert (missing.status_code, missing.json()["detail"]) == (422, "query: is missing")
    wrong = http.put(f"/sessions/{page}/todo", json={"todos": ["call"]})
    assert (wrong.status_code, wrong.json()["detail"]) == (422, "todos.0: 'call' is not a JSON object")


def test_an_invalid_header_is_refused_before_the_body_is_read(http, page):
    for path in (f"/sessions/{page}/turns", f"/pages/{page}/clear-resolved"):
        refused = http.post(path, content="{", headers={"Idempotency-Key": "a b", "Content-Type": "application/json"})
        assert slug(refused) == "invalid-request", path
        refused = http.post(path, content="{", headers={"Content-Type": "application/json"})
        assert slug(refused) == "bad-json", path


def test_a_number_beyond_its_limit_is_explained(http, page):
    refused = http.get(f"/pages/{page}/observations", params={"limit": 5_000})
    assert refused.json()["detail"] == "limit: '5000' should be less than or equal to 1000"


def test_a_valid_request_that_the_state_forbids_is_404_or_409(http, page):
    path = f"/pages/{page}/observations"
    future = http.get(path, params={"at": "2999-01-01T00:00:00Z"})
    assert (future.status_code, slug(future)) == (404, "invalid-position")
    unknown = http.post(path, json={**NEW, "type": "no_such_type"})
    assert (unknown.status_code, slug(unknown)) == (409, "unknown-type")
    past = http.post(path, json={**NEW, "expires_at": "2000-01-01T00:00:00Z"})
    assert (past.status_code, slug(past)) == (409, "invalid-ttl")
    assert http.post(path, json={**NEW, "type": "No Such Type"}).status_code == 422
    assert http.post(path, json={**NEW, "ttl": "soon"}).status_code == 422


def test_a_valid_full_batch_that_the_state_forbids_is_409(http, page):
    path, batch = f"/pages/{page}/observations/batch", [{**NEW, "type": "no_such_type", "tags": ["x" * 99]}] * 1_000
    refused = http.post(path, json={"observations": batch})
    assert (refused.status_code, slug(refused)) == (409, "unknown-type")
    bad = http.post(path, json={"observations": [*batch[1:], {**NEW, "times": 0}]})
    assert bad.status_code == 422


def test_a_refused_body_with_too_many_values_is_422(http, page):
    batch = [{**NEW, "type": "no_such_type", "tags": ["x"] * 32}] * 1_000  # 36,000 values
    refused = http.post(f"/pages/{page}/observations/batch", json={"observations": batch})
    assert (refused.status_code, slug(refused)) == (422, "unknown-type")


# writes


def test_an_older_version_is_412_only_with_if_match(http, page):
    path = f"/pages/{page}/observations/{add(http, page)['id']}"
    http.patch(path, json={"confidence": 0.5})
    late = http.patch(path, json={"confidence": 0.7}, headers={"If-Match": '"1"'})
    assert (late.status_code, slug(late)) == (412, "version-conflict")
    assert http.patch(path, json={"confidence": 0.7}, headers={"If-Match": 'W/"2"'}).status_code == 200
    assert http.patch(path, json={"confidence": 0.8}, headers={"If-Match": "*"}).status_code == 200
    assert http.patch(path, json={"confidence": 0.9}, headers={"If-Match": '"one"'}).status_code == 422


def test_a_retry_after_a_lost_answer_gets_the_same_answer(http, bus: Bus, page):
    headers = {"Idempotency-Key": new_id()}
    first, second = (http.post(f"/pages/{page}/observations", json=NEW, headers=headers) for _ in range(2))
    assert (first.status_code, second.status_code, second.json()) == (201, 201, first.json())
    assert second.headers["location"] == first.headers["location"]
    assert second.headers["etag"] == first.headers["etag"]
    assert len(bus.page(page).list()) == 1


def test_a_retried_change_is_made_once(http, page):
    path = f"/pages/{page}/observations/{add(http, page)['id']}"
    headers = {"Idempotency-Key": new_id(), "If-Match": '"1"'}
    first, second = (http.post(f"{path}/resolve", json={}, headers=headers) for _ in range(2))
    assert (first.status_code, second.status_code, second.json()) == (200, 200, first.json())


def test_each_item_of_a_batch_has_its_own_event_id(http, bus: Bus, page):
    batch = {"observations": [{**NEW, "event_id": new_id()}, {**NEW, "event_id": new_id()}]}
    first, second = (http.post(f"/pages/{page}/observations/batch", json=batch) for _ in range(2))
    assert (first.status_code, second.status_code, second.json()) == (201, 201, first.json())
    assert len(bus.page(page).list()) == 2


def test_an_event_id_in_the_body_of_a_single_add_is_refused(http, page):
    refused = http.post(f"/pages/{page}/observations", json={**NEW, "event_id": "mine"})
    assert (refused.status_code, slug(refused)) == (422, "unknown-field")


@pytest.mark.parametrize("field", ["types", "tags"])
def test_a_text_instead_of_a_list_is_refused(http, page, field):
    refused = http.post(f"/pages/{page}/claim-next", json={field: "observation"})
    assert (refused.status_code, slug(refused)) == (422, "invalid-field")


@pytest.mark.parametrize("token", [None, 7, {}, [], ""])
def test_an_invalid_pull_token_is_refused(http, bus: Bus, page, token):
    bus.declare_subscription(page, pages=[page])
    failed = {"token": token, "position": "1-1", "reason": "away"}
    assert http.post(f"/subscriptions/{page}/nack", json=failed).status_code == 422
    assert http.post(f"/subscriptions/{page}/ack", json={"token": token, "positions": ["1-1"]}).status_code == 422


@pytest.mark.parametrize("path", ["observations", "observations/batch", "observations/{id}/resolve", "claim-next"])
def test_an_unknown_precondition_is_refused(http, page, path):
    where = f"/pages/{page}/{path.format(id=add(http, page)['id'])}"
    refused = http.post(where, json=NEW, headers={"If-None-Match": "*"})
    assert (refused.status_code, slug(refused)) == (422, "unknown-precondition")


@pytest.mark.parametrize("header", ["If-Match", "If-None-Match", "If-Unmodified-Since"])
def test_an_unknown_precondition_changes_no_subscription(http, bus: Bus, page, header):
    path, header_value = f"/subscriptions/{page}", {header: "*"}
    http.put(path, json={"types": ["observation"]})
    for refused in (
        http.put(path, json={"types": ["reminder"]}, headers=header_value),
        http.delete(path, headers=header_value),
    ):
        assert (refused.status_code, slug(refused)) == (422, "unknown-precondition")
        assert header in refused.json()["detail"]
    assert http.get(path).json()["filters"]["types"] == ["observation"]


@pytest.mark.parametrize("path", ["/verify", "/rebuild", "/types/check", "/pages/{page}/observations"])
def test_a_write_is_not_guarded_by_a_date(http, page, path):
    since = {"If-Unmodified-Since": "Sun, 29 Nov 2026 10:00:00 GMT"}
    refused = http.post(path.format(page=page), json=NEW, headers=since)
    assert (refused.status_code, slug(refused)) == (422, "unknown-precondition")


def test_if_none_match_writes_a_memory_only_once(http, page):
    path = f"/sessions/{page}/notepad"
    first, second = (http.put(path, json={"content": each}, headers={"If-None-Match": "*"}) for each in "ab")
    assert (first.status_code, second.status_code, slug(second)) == (200, 412, "revision-conflict")
    assert http.get(path).json() == {"content": "a", "revision": 1}
    both = http.put(path, json={"content": "c"}, headers={"If-None-Match": "*", "If-Match": '"1"'})
    assert (both.status_code, slug(both)) == (409, "conflicting-preconditions")
    other = http.put(path, json={"content": "c"}, headers={"If-None-Match": '"7"'})
    assert (other.status_code, slug(other)) == (422, "invalid-request")


# lists


def test_count_adds_the_number_of_all_matches(http, page):
    for _ in range(3):
        add(http, page, tags=["wanted"])
    add(http, page)
    found = http.get(f"/pages/{page}/observations", params={"tag": "wanted", "limit": 1, "count": "true"}).json()
    assert (len(found["items"]), found["total"]) == (1, 3)
    assert "total" not in http.get(f"/pages/{page}/observations").json()


def test_count_works_at_a_moment(http, page):
    first = add(http, page)
    add(http, page)
    asked = {"at": first["position"], "count": "true"}
    assert http.get(f"/pages/{page}/observations", params=asked).json()["total"] == 1


def test_the_next_link_keeps_the_filters(http, page):
    for number in range(3):
        add(http, page, content=f"a&b {number}", tags=["x y"])
    answer = http.get(f"/pages/{page}/observations", params={"limit": 2, "text": "a&b", "tag": "x y"})
    rest = http.get(answer.links["next"]["url"].removeprefix("/api/v1"))
    assert [each["content"] for each in rest.json()["items"]] == ["a&b 0"]
    assert "link" not in rest.headers


# without the engine


@pytest.fixture
def engine() -> Iterator[Server]:
    server = Server(embedded_binary(), tcp=True, **DURABLE).start()
    yield server
    server.close()


@pytest.fixture
def own_server(engine: Server) -> Iterator[Served]:
    with serving(engine.tcp_url) as served:
        yield served


@pytest.mark.slow
def test_a_server_survives_a_crash_of_its_engine(own_server: Served, engine: Server):
    with own_server.client() as http:
        kept = add(http, "main")
        engine.kill()
        for method, path in (("GET", "/pages/main/active"), ("POST", "/pages/main/observations")):
            away = http.request(method, path, json=NEW if method == "POST" else None)
            assert away.status_code == 503, away.text
            assert int(away.headers["retry-after"]) >= 1
            assert slug(away).startswith("engine-")
        assert http.get(f"{own_server.url}/healthz").status_code == 200
        assert http.get(f"{own_server.url}/readyz").status_code == 503
        engine.start()
        eventually(lambda: http.get("/pages/main/active").status_code == 200, "the engine is found again")
        assert [each["id"] for each in http.get("/pages/main/active").json()["items"]][-1] == kept["id"]
        assert http.get(f"{own_server.url}/readyz").status_code == 200
        engine.pause()
        waiting = http.get(f"{own_server.url}/readyz").json()
        engine.go_on()
        assert (waiting["status"], waiting["detail"]) == (503, "the engine did not answer within 1 s")
        with engine.client() as admin:
            admin.config_set("requirepass", "new")
            admin.client_kill_filter(_type="normal", skipme=True)
            refused = http.get(f"{own_server.url}/readyz")
            assert (refused.status_code, slug(refused)) == (503, "engine-auth")
            admin.config_set("requirepass", "")
        assert add(http, "main")["version"] == 1
    assert own_server.process.poll() is None


@pytest.mark.parametrize(
    ("verb", "body"),
    [("refute", {"reason": "x"}), ("claim", {}), ("link", {"action": "x"}), ("erase", {"reason": "x"})],
)
def test_if_match_is_refused_where_it_is_unsupported(http, bus: Bus, page, verb, body):
    found = bus.page(page).add("observation", "x")
    path = f"/pages/{page}/observations/{found.id}/{verb}"
    answer = http.post(path, json=body, headers={"If-Match": '"7"'})
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:scratchbus:problem:unknown-precondition")
    assert bus.page(page).get(found.id) == found


def test_the_console_has_the_largest_budget_of_the_api():
    view = files("scratchbus.http") / "console/views/memory/context.js"
    assert f'max="{MAX_BUDGET}"' in view.read_text()
