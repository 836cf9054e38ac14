"""Private files over HTTP: exact bytes, and no path of the server."""

from __future__ import annotations

from hashlib import sha256
from secrets import token_hex

import httpx2
import pytest

from scratchbus import Bus, document_of

BYTES = {"Content-Type": "application/octet-stream"}
RAW = bytes(range(256)) + "\u2028é".encode()


@pytest.fixture
def session() -> str:
    """The name of a session of the test's own."""
    return f"s-{token_hex(6)}"


@pytest.fixture
def files(session: str) -> str:
    """The path of its files."""
    return f"/sessions/{session}/files"


def put(http: httpx2.Client, files: str, path: str, content: bytes, **headers: str) -> httpx2.Response:
    return http.put(f"{files}/content", params={"path": path}, content=content, headers=BYTES | headers)


def problem(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["type"].rpartition(":")[2]


def test_a_file_equals_that_of_python(http, bus: Bus, session, files):
    written = put(http, files, "data/raw é.bin", RAW)
    (listed,) = bus.files(session).list()
    assert written.json() == document_of(listed)
    assert (written.json()["size"], written.json()["sha256"]) == (len(RAW), sha256(RAW).hexdigest())
    assert bus.files(session).read("data/raw é.bin") == RAW
    bus.files(session).write("notes.txt", "beside")
    assert [each["path"] for each in http.get(files).json()["items"]] == ["data/raw é.bin", "notes.txt"]


def test_files_are_listed_at_a_moment(http, files):
    first = put(http, files, "a", b"1").json()
    put(http, files, "b", b"2")
    assert http.get(files, params={"at": first["position"]}).json()["items"] == [first]
    assert problem(http.get(files, params={"at": "never"})) == (422, "invalid-request")


def test_a_file_is_downloaded_as_bytes(http, files):
    put(http, files, "page.html", b"<script>alert(1)</script>")
    found = http.get(f"{files}/content", params={"path": "page.html"})
    assert (found.content, found.headers["content-type"]) == (b"<script>alert(1)</script>", BYTES["Content-Type"])
    assert (found.headers["content-disposition"], found.headers["x-content-type-options"]) == ("attachment", "nosniff")
    put(http, files, "empty", b"")
    assert http.get(f"{files}/content", params={"path": "empty"}).content == b""


def test_a_deleted_file_keeps_its_history(http, files):
    put(http, files, "a/b.txt", b"one")
    assert http.delete(f"{files}/content", params={"path": "a/b.txt"}).status_code == 204
    assert problem(http.get(f"{files}/content", params={"path": "a/b.txt"})) == (404, "not-found")
    assert problem(http.delete(f"{files}/content", params={"path": "a/b.txt"})) == (404, "not-found")
    events = http.get(f"{files}/history", params={"path": "a/b.txt"}).json()["items"]
    assert [event["kind"] for event in events] == ["file_written", "file_removed"]


def test_a_retry_writes_once(http, files):
    key = {"Idempotency-Key": f"key-{files}"}
    first = put(http, files, "a", b"one", **key)
    put(http, files, "a", b"two")
    assert put(http, files, "a", b"one", **key).status_code == 200
    assert http.get(f"{files}/content", params={"path": "a"}).content == b"two"
    assert (first.status_code, problem(put(http, files, "a", b"three", **key))) == (200, (409, "event-id-reused"))


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "a//b", "./a", "a/", "", "a\\b", "a\nb"])
def test_an_unsafe_path_is_refused(http, files, path):
    assert problem(put(http, files, path, b"x")) == (422, "invalid-request")
    assert problem(http.get(f"{files}/content", params={"path": path})) == (422, "invalid-request")
    assert problem(http.delete(f"{files}/content", params={"path": path})) == (422, "invalid-request")


def test_a_symbolic_link_is_not_followed(http, bus: Bus, session, files):
    directory = bus.files(session).path()
    (directory / "passwd").symlink_to("/etc/passwd")
    (directory / "etc").symlink_to("/etc")
    for path in ("passwd", "etc/passwd"):
        assert problem(http.get(f"{files}/content", params={"path": path})) == (404, "invalid-field")
        assert problem(put(http, files, path, b"x")) == (409, "invalid-field")


def test_no_answer_shows_the_directory_of_the_files(http, bus: Bus, session, files):
    directory = bus.files(session).path()
    (directory / "link").symlink_to("/etc")
    answers = [
        put(http, files, "a/b", b"x"),
        put(http, files, "a", b"x"),
        put(http, files, "link/a", b"x"),
        http.get(files),
        http.get(f"{files}/content", params={"path": "none"}),
        http.get(f"{files}/content", params={"path": "a"}),
        http.get(f"{files}/history", params={"path": "a/b"}),
    ]
    blocked = f"{session}-blocked"
    (directory.parent.parent / blocked).write_text("a file where the directory would be")
    answers += [unavailable := put(http, f"/sessions/{blocked}/files", "a", b"x")]
    assert (problem(unavailable), unavailable.headers["retry-after"]) == ((503, "files-unavailable"), "1")
    for answer in answers:
        assert str(directory.parent.parent) not in answer.text
        assert str(directory.parent.parent) not in str(answer.headers)


def test_only_octet_streams_are_accepted(http, files):
    as_json = http.put(f"{files}/content", params={"path": "a"}, json={"content": "x"})
    assert problem(as_json) == (415, "unsupported-media-type")
    assert http.get(files).json()["items"] == []


def test_an_ended_session_refuses_files(http, session, files):
    put(http, files, "a", b"x")
    http.post(f"/sessions/{session}/end")
    assert problem(put(http, files, "b", b"x")) == (409, "session-over")
    assert problem(http.delete(f"{files}/content", params={"path": "a"})) == (409, "session-over")
