"""Conversations over HTTP."""

from __future__ import annotations

from secrets import token_hex
from typing import Any

import httpx2
import pytest

from scratchbus import Bus, document_of


@pytest.fixture
def session() -> str:
    """The name of a session of the test's own."""
    return f"s-{token_hex(6)}"


@pytest.fixture
def turns(session: str) -> str:
    """The path of its turns."""
    return f"/sessions/{session}/turns"


def append(http: httpx2.Client, path: str, content: str, role: str = "user", **more: Any) -> Any:
    answer = http.post(path, json={"role": role, "content": content, **more})
    assert answer.status_code == 201, answer.text
    return answer.json()


def contents(answer: httpx2.Response) -> list[str]:
    return [each["content"] for each in answer.json()["items"]]


def test_a_turn_equals_that_of_python(http, bus: Bus, session, turns):
    asked = append(http, turns, "Why does it fail?", tokens=5)
    bus.turns(session).append("assistant", "The bank is closed.")
    first, second = bus.turns(session).list()
    assert asked == document_of(first)
    assert http.get(turns).json() == {"items": [asked, document_of(second)], "next": None}


def test_a_conversation_is_paged(http, turns):
    ids = [append(http, turns, f"turn {number}")["id"] for number in range(3)]
    first = http.get(turns, params={"limit": 2})
    assert (contents(first), first.json()["next"]) == (["turn 0", "turn 1"], ids[1])
    rest = http.get(first.headers["link"].partition(">")[0].removeprefix("</api/v1"))
    assert (contents(rest), rest.json()["next"]) == (["turn 2"], None)


def test_the_last_page_of_a_conversation_has_no_next_one(http, turns):
    """Also when it has as many turns as the limit allows."""
    ids = [append(http, turns, f"turn {number}")["id"] for number in range(4)]
    for query, expected in (({"limit": 4}, None), ({"limit": 2}, ids[1]), ({"limit": 2, "after": ids[1]}, None)):
        answer = http.get(turns, params=query)
        assert answer.json()["next"] == expected
        assert ("link" in answer.headers) is (expected is not None)


def test_a_retry_appends_once(http, turns):
    body = {"role": "user", "content": "once"}
    first, again = (http.post(turns, json=body, headers={"Idempotency-Key": f"key-{turns}"}) for _ in range(2))
    assert first.json() == again.json()
    assert contents(http.get(turns)) == ["once"]


def test_a_summary_replaces_turns(http, turns):
    first, second = append(http, turns, "first"), append(http, turns, "second", "assistant")
    third = append(http, turns, "third")
    made = http.post(f"{turns}/compact", json={"summary": "both", "turns": [first["id"], second["id"]], "tokens": 2})
    assert (made.status_code, made.json()["replaces"]) == (201, [first["id"], second["id"]])
    assert contents(http.get(f"{turns}/shown")) == ["both", "third"]
    assert contents(http.get(f"{turns}/shown", params={"at": third["position"]})) == ["first", "second", "third"]
    assert contents(http.get(turns)) == ["first", "second", "third"]
    assert contents(http.get(turns, params={"at": second["position"]})) == ["first", "second"]
    http.post(f"{turns}/compact", json={"summary": "all"})
    assert contents(http.get(f"{turns}/shown")) == ["all"]
    kinds = [event["kind"] for event in http.get(f"{turns}/history").json()["items"]]
    assert kinds == ["turn_appended"] * 3 + ["turns_compacted"] * 2
    then = http.get(f"{turns}/history", params={"at": second["position"]}).json()["items"]
    assert len(then) == 2


def test_the_summary_of_a_task_replaces_its_turns(http, session, turns):
    task = http.post(f"/sessions/{session}/tasks", json={"title": "Find it"}).json()["task"]
    append(http, turns, "looking", "assistant", task=task)
    http.post(f"/tasks/{task.replace('/', '%2F')}/end", json={"summary": "Found."})
    (shown,) = http.get(f"{turns}/shown").json()["items"]
    assert (shown["role"], "Found." in shown["content"]) == ("summary", True)
    elsewhere = http.post(turns, json={"role": "user", "content": "x", "task": "task_1@elsewhere"})
    assert (elsewhere.status_code, elsewhere.json()["type"]) == (409, "urn:scratchbus:problem:invalid-id")


def test_compacting_missing_turns_is_404(http, turns):
    assert http.post(f"{turns}/compact", json={"summary": "of nothing"}).status_code == 404
    assert http.post(f"{turns}/compact", json={"summary": "x", "turns": ["turn_1"]}).status_code == 404


def test_an_ended_session_refuses_turns(http, session, turns):
    append(http, turns, "last")
    http.post(f"/sessions/{session}/end")
    late = http.post(turns, json={"role": "user", "content": "late"})
    assert (late.status_code, late.json()["type"]) == (409, "urn:scratchbus:problem:session-over")


@pytest.mark.parametrize(
    "body",
    [{"role": "user"}, {"role": "summary", "content": "x"}, {"role": "A b", "content": "x"},
     {"role": "user", "content": " "}, {"role": "user", "content": "x", "tokens": -1}],
)  # fmt: skip
def test_an_invalid_turn_is_refused(http, turns, body):
    assert http.post(turns, json=body).status_code == 422


@pytest.mark.parametrize("body", [{}, {"summary": "x", "turns": []}, {"summary": "x", "turns": ["note_1"]}])
def test_an_invalid_compaction_is_refused(http, turns, body):
    assert http.post(f"{turns}/compact", json=body).status_code == 422
