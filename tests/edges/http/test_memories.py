"""Memories over HTTP, compared with the Python API."""

from __future__ import annotations

from secrets import token_hex
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from scratchbus import Bus, document_of, new_id
from tests.edges.http.tokens import serving_holders


@pytest.fixture
def session() -> str:
    """The name of a session of the test's own."""
    return f"s-{token_hex(6)}"


@pytest.fixture(scope="module")
def holders(embedded_url, tmp_path_factory):
    with serving_holders(embedded_url, tmp_path_factory.mktemp("tokens")) as running:
        yield running


def add_note(http: httpx2.Client, session: str, content: str = "The bank answers on Mondays", *tags: str) -> Any:
    answer = http.post(f"/sessions/{session}/notes", json={"content": content, "tags": list(tags)})
    assert answer.status_code == 201, answer.text
    return answer.json()


# -- notes


def test_a_note_equals_that_of_python(http, bus: Bus, session):
    answer = http.post(f"/sessions/{session}/notes", json={"content": "on Mondays", "tags": ["bank"]})
    (note,) = bus.notes(session).list().notes
    assert answer.json() == document_of(note)
    assert answer.headers["etag"] == '"1"'
    assert http.get(answer.headers["location"].removeprefix("/api/v1")).json() == answer.json()


def test_a_note_from_python_is_found_over_http(http, bus: Bus, session):
    note = bus.notes(session).add("The BANK is closed", ["hours", "Bank"]).note
    bus.notes(session).add("something else", ["other"])
    found = http.get(f"/sessions/{session}/notes/search", params={"query": "bank", "tag": ["HOURS", "bank"]}).json()
    assert [each["id"] for each in found["items"]] == [note.id]
    assert len(http.get(f"/sessions/{session}/notes").json()["items"]) == 2
    assert [each["id"] for each in http.get(f"/sessions/{session}/notes?tag=bank").json()["items"]] == [note.id]
    assert http.get(f"/sessions/{session}/notes/tags").json()["tags"] == {"Bank": 1, "hours": 1, "other": 1}


def test_a_note_is_changed_only_at_its_current_version(http, bus: Bus, session):
    note = add_note(http, session)
    path = f"/sessions/{session}/notes/{note['id']}"
    changed = http.patch(path, json={"tags": ["new"]}, headers={"If-Match": '"1"'})
    assert (changed.status_code, changed.headers["etag"], changed.json()["tags"]) == (200, '"2"', ["new"])
    for late in (
        http.patch(path, json={"content": "late"}, headers={"If-Match": '"1"'}),
        http.delete(path, headers={"If-Match": '"1"'}),
    ):
        assert (late.status_code, late.json()["actual"]) == (412, 2)
    assert bus.notes(session).list().notes[0].content == note["content"]


def test_a_deleted_note_keeps_its_history(http, session):
    note = add_note(http, session)
    path = f"/sessions/{session}/notes/{note['id']}"
    assert http.delete(path).json() == note
    assert http.get(path).status_code == 404
    kinds = [event["kind"] for event in http.get(f"{path}/history").json()["items"]]
    assert kinds == ["note_added", "note_deleted"]
    assert http.get(f"/sessions/{session}/notes/history").json() == http.get(f"{path}/history").json()


def test_notes_are_read_at_a_moment(http, session):
    note = add_note(http, session, "first", "a")
    http.patch(f"/sessions/{session}/notes/{note['id']}", json={"content": "changed"})
    add_note(http, session, "second")
    then = {"at": note["position"]}
    path = f"/sessions/{session}/notes"
    assert http.get(path, params=then).json()["items"] == [note]
    assert http.get(f"{path}/{note['id']}", params=then).json() == note
    assert http.get(f"{path}/search", params={"query": "FIRST", "tag": "a", **then}).json()["items"] == [note]
    assert http.get(f"{path}/search", params={"query": "changed", **then}).json()["items"] == []
    assert http.get(f"{path}/tags", params=then).json()["tags"] == {"a": 1}
    assert [each["kind"] for each in http.get(f"{path}/history", params=then).json()["items"]] == ["note_added"]


def test_a_retry_adds_a_note_once(http, bus: Bus, session):
    headers = {"Idempotency-Key": new_id()}
    answers = [http.post(f"/sessions/{session}/notes", json={"content": "x"}, headers=headers) for _ in range(2)]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    assert len(bus.notes(session).list().notes) == 1


def test_an_encoded_slash_belongs_to_the_session_name(http, bus: Bus, session):
    name = f"{session}/team:a"
    note = add_note(http, quote(name, safe=""))
    assert [each.id for each in bus.notes(name).list().notes] == [note["id"]]
    location = http.post(f"/sessions/{quote(name, safe='')}/notes", json={"content": "y"}).headers["location"]
    assert http.get(location.removeprefix("/api/v1")).json()["content"] == "y"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"content": ""},
        {"content": " \n"},
        {"content": 1},
        {"content": None},
        {"content": "x", "tags": "a"},
        {"content": "x", "tags": [1]},
        {"content": "x", "tags": [""]},
        {"content": "x", "source": "someone"},
        {"content": "x", "tags": None},
    ],
)
def test_an_invalid_note_is_refused(http, bus: Bus, session, body):
    refused = http.post(f"/sessions/{session}/notes", json=body)
    assert refused.status_code == 422, refused.text
    assert refused.headers["content-type"] == "application/problem+json"
    assert bus.notes(session).list().notes == []


# -- notepad


def test_the_notepad_is_written_read_and_edited(http, bus: Bus, session):
    path = f"/sessions/{session}/notepad"
    empty = http.get(path)
    assert (empty.json(), empty.headers["etag"]) == ({"content": "", "revision": 0}, '"0"')
    written = http.put(path, json={"content": "one two"}, headers={"If-Match": '"0"'})
    assert (written.json(), written.headers["etag"]) == ({"revision": 1}, '"1"')
    edits = [
        {"operation": "find_replace", "find": "two", "replace": "2"},
        {"operation": "prepend", "content": "zero "},
        {"operation": "append_line", "content": "three"},
        {"operation": "delete", "content": "one "},
    ]
    for revision, edit in enumerate(edits, 2):
        assert http.patch(path, json=edit).json() == {"revision": revision}
    assert bus.notepad(session).read() == http.get(path).json()["content"] == "zero 2\nthree\n"
    assert len(http.get(f"{path}/history").json()["items"]) == 5


def test_a_notepad_that_was_changed_is_not_replaced(http, bus: Bus, session):
    bus.notepad(session).write("theirs")
    refused = http.put(f"/sessions/{session}/notepad", json={"content": "mine"}, headers={"If-Match": '"0"'})
    assert (refused.status_code, refused.json()["type"]) == (412, "urn:scratchbus:problem:revision-conflict")
    assert bus.notepad(session).read() == "theirs"


def test_an_ambiguous_edit_is_a_conflict(http, bus: Bus, session):
    bus.notepad(session).write("a b a")
    path = f"/sessions/{session}/notepad"
    twice = http.patch(path, json={"operation": "find_replace", "find": "a", "replace": "x"})
    assert (twice.status_code, twice.json()["field"]) == (409, "find")
    all_of_them = {"operation": "find_replace", "find": "a", "replace": "x", "replace_all": True}
    assert http.patch(path, json=all_of_them).status_code == 200
    assert bus.notepad(session).read() == "x b x"


@pytest.mark.parametrize(
    "edit",
    [
        {},
        {"operation": "shout", "content": "x"},
        {"operation": ["append"], "content": "x"},
        {"operation": "append"},
        {"operation": "append", "content": "x", "find": "y"},
        {"operation": "delete", "content": ""},
        {"operation": "find_replace", "find": "x"},
        {"operation": "find_replace", "find": "x", "replace": "y", "replace_all": 1},
    ],
)
def test_an_invalid_edit_is_refused(http, session, edit):
    assert http.patch(f"/sessions/{session}/notepad", json=edit).status_code == 422


def test_the_notepad_is_read_at_a_moment(http, bus: Bus, session):
    bus.notepad(session).write("first")
    then = str(bus.position())
    bus.notepad(session).write("second")
    found = http.get(f"/sessions/{session}/notepad", params={"at": then})
    assert (found.json(), "etag" in found.headers) == ({"content": "first", "revision": None}, False)
    assert len(http.get(f"/sessions/{session}/notepad/history", params={"at": then}).json()["items"]) == 1


# -- todo


def test_the_todo_list_is_replaced_and_merged(http, bus: Bus, session):
    path = f"/sessions/{session}/todo"
    written = http.put(path, json={"todos": [{"id": "1", "content": "ask"}, {"id": "2", "content": "call"}]})
    assert (written.status_code, written.headers["etag"], written.json()["summary"]["pending"]) == (200, '"1"', 2)
    merged = http.patch(path, json={"todos": [{"id": "2", "status": "completed"}]}, headers={"If-Match": '"1"'})
    assert [each["status"] for each in merged.json()["todos"]] == ["pending", "completed"]
    assert [each.model_dump() for each in bus.todo(session).read().todos] == merged.json()["todos"]
    assert http.put(path, json={"todos": []}, headers={"If-Match": '"1"'}).status_code == 412
    assert len(http.get(f"{path}/history").json()["items"]) == 2


def test_a_new_todo_item_without_content_is_a_conflict(http, session):
    refused = http.patch(f"/sessions/{session}/todo", json={"todos": [{"id": "9", "status": "completed"}]})
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:scratchbus:problem:invalid-field")


@pytest.mark.parametrize(
    "todos",
    [
        None,
        "x",
        [{"content": "x"}],
        [{"id": "1", "content": " "}],
        [{"id": "1", "content": "x", "status": "maybe"}],
        [{"id": "1", "content": "x", "due": "now"}],
        [{"id": 1, "content": "x"}],
    ],
)
def test_an_invalid_todo_list_is_refused(http, bus: Bus, session, todos):
    assert http.put(f"/sessions/{session}/todo", json={"todos": todos}).status_code == 422
    assert bus.todo(session).read().todos == []


def test_the_todo_list_is_read_at_a_moment(http, bus: Bus, session):
    bus.todo(session).write([{"id": "1", "content": "first"}])
    then = str(bus.position())
    bus.todo(session).write([])
    found = http.get(f"/sessions/{session}/todo", params={"at": then}).json()
    assert [each["content"] for each in found["todos"]] == ["first"]


# -- scratchpads


def test_only_its_owner_can_use_a_scratchpad(holders):
    name = f"agent-{token_hex(4)}"
    with holders.client(name, "memory") as owner, holders.client(f"{name}-2", "memory") as other:
        path = f"/agents/{name}/scratchpad"
        assert owner.put(path, json={"content": "mine"}, headers={"If-Match": '"0"'}).json() == {"revision": 1}
        assert owner.get(path).json() == {"content": "mine", "revision": 1}
        assert [each["kind"] for each in owner.get(f"{path}/history").json()["items"]] == ["scratchpad_written"]
        for refused in (other.get(path), other.put(path, json={"content": "theirs"}), other.get(f"{path}/history")):
            assert (refused.status_code, refused.json()["agent"]) == (403, name)
        assert owner.put(path, json={"content": "late"}, headers={"If-Match": '"0"'}).status_code == 412
        with Bus.connect(holders.served.engine, source=name) as bus:
            assert bus.scratchpad(name).read() == "mine"
            then = str(bus.position())
            bus.scratchpad(name).write("newer")
        assert owner.get(path, params={"at": then}).json() == {"content": "mine", "revision": None}


def test_a_person_cannot_use_scratchpads(http, bus: Bus):
    assert http.get("/agents/beside/scratchpad").status_code == 403
    assert http.put("/agents/beside/scratchpad", json={"content": "x"}).status_code == 403


def test_a_scratchpad_beyond_the_limit_is_refused(holders):
    name = f"agent-{token_hex(4)}"
    with holders.client(name, "memory") as owner:
        refused = owner.put(f"/agents/{name}/scratchpad", json={"content": "x" * 10_001})
        assert refused.status_code == 422
        assert "exceeds maximum length of 10000 characters" in refused.json()["detail"]


@pytest.mark.parametrize(
    "path",
    [
        "/sessions", "/sessions/s/notes", "/sessions/s/notepad", "/sessions/s/todo", "/agents/x/scratchpad",
        "/sessions/s/notes/tags", "/sessions/s",
    ],
)  # fmt: skip
def test_memories_need_the_scope_memory(holders, path):
    with holders.client(f"reader-{token_hex(4)}", "read", "act", "publish", "admin") as reader:
        refused = reader.get(path)
        assert (refused.status_code, refused.json()["type"]) == (403, "urn:scratchbus:problem:insufficient-scope")


# -- contexts


def test_a_context_has_the_items_of_each_section(http, bus: Bus, page, session):
    seen = bus.page(page).add("risk_alert", "A fraud ring")
    note = bus.notes(session).add("The bank answers on Mondays").note
    bus.todo(session).write([{"id": "1", "content": "Ask the bank"}])
    asked = {"session": session, "page": page, "budget": 2000, "sections": ["You are an analyst."]}
    made = http.post("/context/assemble", json=asked).json()
    assert made["text"] == bus.context.assemble(**asked).text
    assert (made["budget"], made["exposed"], made["position"]) == (2000, {seen.id: 1}, None)
    parts = {each["name"]: each for each in made["sections"]}
    assert list(parts) == ["own", "notepad", "todo", "observations", "notes"]
    assert "\n\n".join(each["text"] for each in made["sections"]) == made["text"]
    (shown,) = parts["observations"]["items"]
    assert (shown["kind"], shown["id"], shown["page"], shown["position"]) == (
        "observation", seen.id, page, str(seen.position),
    )  # fmt: skip
    assert [(each["kind"], each["id"]) for each in parts["notes"]["items"]] == [("note", note.id)]
    assert [(each["kind"], each["id"]) for each in parts["todo"]["items"]] == [("todo", "1")]
    assert shown["text"] in parts["observations"]["text"]
    assert 0 < shown["tokens"] < parts["observations"]["tokens"] < made["tokens"]


def test_a_context_counts_the_observations_it_leaves_out(http, bus: Bus, page):
    for number in range(20):
        bus.page(page).add("observation", f"{number} " + "word " * 50)
    made = http.post("/context/assemble", json={"page": page, "budget": 300}).json()
    (part,) = made["sections"]
    assert len(part["items"]) + part["left_out"] == 20
    assert part["left_out"] == made["left_out"]["observations"] > 0


def test_a_recorded_context_is_an_exposure(http, bus: Bus, page, session):
    seen = bus.page(page).add("observation", "seen")
    made = http.post("/context/assemble", json={"page": page, "session": session, "record": True}).json()
    assert made["position"] is not None
    assert [each.session for each in bus.page(page).exposure(seen.id).seen] == [session]


def test_an_agent_cannot_record_the_context_of_another(holders, page):
    with holders.client(f"agent-{token_hex(4)}", "memory", "read") as agent:
        refused = agent.post("/context/assemble", json={"page": page, "agent": "another", "record": True})
        assert (refused.status_code, refused.json()["field"]) == (403, "agent")


def test_a_strict_context_that_does_not_fit_is_a_conflict(http, page):
    asked = {"page": page, "budget": 5, "sections": ["word " * 100], "strict": True}
    refused = http.post("/context/assemble", json=asked)
    assert (refused.status_code, refused.json()["budget"]) == (409, 5)


def test_surface_returns_matches_with_their_scores(http, bus: Bus, page):
    found = bus.page(page).add("observation", "The missing payment was returned")
    bus.page(page).add("observation", "Something else")
    surfaced = http.post("/context/surface", json={"query": "payments", "page": page}).json()
    assert [(each["kind"], each["item"]["id"]) for each in surfaced["matches"]] == [("observation", found.id)]
    assert surfaced["matches"][0]["score"] > 0


@pytest.mark.parametrize("body", [{}, {"page": "main", "budget": 0}, {"page": "main", "budget": True}, {"page": ""}])
def test_an_invalid_context_request_is_refused(http, body):
    assert http.post("/context/assemble", json=body).status_code == 422
