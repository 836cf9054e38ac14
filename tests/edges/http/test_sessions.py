"""Sessions, tasks and pages over HTTP."""

from __future__ import annotations

from secrets import token_hex
from typing import Any
from urllib.parse import quote

import pytest

from scratchbus import AsyncBus, Bus, NewObservation, document_of, new_id
from scratchbus.errors import EngineError, EngineUnreachable, NotReplicated
from tests.edges.http.conftest import serving_here


@pytest.fixture
def session() -> str:
    """The name of a session of the test's own."""
    return f"s-{token_hex(6)}"


def get_session(http, session: str, **query: str) -> Any:
    return http.get(f"/sessions/{quote(session, safe='')}", params=query).json()


def test_sessions_are_listed_with_their_parents_and_agents(http, bus: Bus, session):
    bus.notes(session).add("x")
    answer = http.post(f"/sessions/{session}/spawn", json={"session": f"{session}/child"})
    child = answer.json()
    assert (answer.status_code, child["parent"], child["fork"], child["ended"]) == (201, session, False, False)
    assert http.get(answer.headers["location"].removeprefix("/api/v1")).json() == child
    listed = {each["id"]: each for each in http.get("/sessions").json()["items"]}
    assert listed[child["id"]] == child
    assert listed[session]["children"] == [child["id"]]
    assert listed == {each.id: each.model_dump(mode="json") for each in bus.sessions()}
    bus.notes(child["id"]).add("y")
    assert get_session(http, child["id"])["agent"] == "beside"


def test_spawn_without_a_name_makes_one(http, bus: Bus, session):
    child = http.post(f"/sessions/{session}/spawn").json()["id"]
    assert bus.session(child).parent == session


def test_a_fork_copies_the_notepad_of_its_parent(http, bus: Bus, session):
    bus.notepad(session).write("known")
    fork = http.post(f"/sessions/{session}/fork").json()
    assert (fork["fork"], bus.notepad(fork["id"]).read()) == (True, "known")
    copied = http.post(f"/sessions/{session}/spawn", json={"copy_notepad": True}).json()
    assert (copied["fork"], bus.notepad(copied["id"]).read()) == (False, "known")


def test_spawning_an_existing_session_is_a_conflict(http, bus: Bus, session):
    bus.notes(f"{session}-2").add("x")
    refused = http.post(f"/sessions/{session}/spawn", json={"session": f"{session}-2"})
    assert (refused.status_code, refused.json()["session"]) == (409, f"{session}-2")


def test_an_ended_session_refuses_notes(http, bus: Bus, session):
    bus.notes(session).add("x")
    assert http.post(f"/sessions/{session}/end").json()["ended"] is True
    assert bus.session(session).ended
    refused = http.post(f"/sessions/{session}/notes", json={"content": "late"})
    assert (refused.status_code, refused.json()["session"]) == (409, session)
    assert http.post(f"/sessions/{session}/end").status_code == 200


def test_sessions_are_read_at_a_moment(http, bus: Bus, session):
    before = str(bus.position())
    bus.notes(session).add("x")
    then = str(bus.position())
    http.post(f"/sessions/{session}/spawn", json={"session": f"{session}-2"})
    http.post(f"/sessions/{session}/end")
    found = get_session(http, session, at=then)
    assert (found["children"], found["ended"], found["agent"]) == ([], False, "beside")
    assert http.get(f"/sessions/{session}-2", params={"at": then}).status_code == 404
    assert session not in [each["id"] for each in http.get("/sessions", params={"at": before}).json()["items"]]


def test_an_unknown_session_is_not_found(http, session):
    assert http.get(f"/sessions/{session}").status_code == 404


@pytest.mark.parametrize("body", [{"session": "a b"}, {"session": None}, {"session": "x" * 121}, {"name": "x"}])
def test_an_invalid_session_name_is_refused(http, session, body):
    assert http.post(f"/sessions/{session}/spawn", json=body).status_code == 422


def test_ending_a_task_returns_the_text_that_replaces_it(http, bus: Bus, session):
    name = f"{session}/a"
    begun = http.post(f"/sessions/{quote(name, safe='')}/tasks", json={"title": "Find it"})
    assert begun.status_code == 201
    task = begun.json()["task"]
    ended = http.post(f"/tasks/{quote(task, safe='')}/end", json={"summary": "Found."})
    assert (
        ended.json()["text"]
        == bus.end_task(task, "Found.")
        == ("[Task ended: Find it — this summary replaces its steps]\nFound.")
    )
    other = http.post(f"/tasks/{quote(task, safe='')}/end", json={"summary": "Lost."})
    assert (other.status_code, http.post(f"/tasks/task_1@{session}/end", json={"summary": "x"}).status_code) == (
        409, 404,
    )  # fmt: skip


def test_a_result_is_an_observation_for_the_parent(http, bus: Bus, session):
    child = bus.spawn_session(session)
    headers = {"Idempotency-Key": new_id()}
    answers = [
        http.post(f"/sessions/{child}/result", json={"result": "It was returned"}, headers=headers) for _ in range(2)
    ]
    (reported,) = bus.page(f"session:{session}").active()
    assert [each.json() for each in answers] == [document_of(reported)] * 2
    assert http.get(answers[0].headers["location"].removeprefix("/api/v1")).json() == document_of(reported)
    assert http.post(f"/sessions/{session}/result", json={"result": "x"}).status_code == 404


def test_agents_with_a_scratchpad_are_listed(http, served):
    name = f"agent-{token_hex(4)}"
    with Bus.connect(served.engine, source=name) as bus:
        bus.notes(f"s-{name}").add("x")
        assert name not in http.get("/sessions").json()["agents"]
        bus.scratchpad(name).write("mine")
        assert name in http.get("/sessions").json()["agents"] == bus.agents()


# -- pages


def test_all_pages_are_listed_with_their_counts(http, bus: Bus, page):
    bus.page(page).add_many([NewObservation(type="observation", content=str(number)) for number in range(3)])
    bus.page(page).claim(bus.page(page).list()[0].id)
    pages = {each["name"]: each for each in http.get("/pages").json()["items"]}
    assert pages[page] == {"name": page, "open": 3, "claimed": 1}
    assert list(pages) == [each.page for each in bus.pages()]


def test_pages_are_listed_at_a_moment(http, bus: Bus, page):
    added = bus.page(page).add("observation", "x")
    before = bus.position()
    bus.page(page).archive(added.id)
    bus.page(f"{page}-later").add("observation", "y")
    pages = {each["name"]: each for each in http.get("/pages", params={"at": str(before)}).json()["items"]}
    assert pages[page] == {"name": page, "open": 1, "claimed": 0}
    assert f"{page}-later" not in pages
    assert http.get("/pages", params={"at": "2999-01-01T00:00:00Z"}).status_code == 404


def test_a_page_is_counted_by_status_and_type(http, bus: Bus, page):
    for _ in range(3):
        bus.page(page).add("observation", "x")
    alert = bus.page(page).add("risk_alert", "y")
    then = str(alert.position)
    bus.page(page).resolve(alert.id)
    counts = http.get(f"/pages/{page}").json()
    assert counts == {
        "name": page,
        "total": 4,
        "is_all": True,
        "statuses": {"active": 3, "resolved": 1},
        "types": {"observation": 3, "risk_alert": 1},
    }
    assert http.get(f"/pages/{page}", params={"at": then}).json()["statuses"] == {"active": 4}
    assert http.get(f"/pages/{page}", params={"without_source": "beside"}).json()["total"] == 0


def test_clients_do_not_learn_where_the_engine_is(embedded_url, monkeypatch, capfd):
    async def fail(*_: object, **__: object) -> None:
        raise EngineUnreachable("redis://10.0.0.7:6379 does not answer; start it with `scratchbus up`")

    with serving_here(embedded_url) as running, running.client() as http:
        monkeypatch.setattr(AsyncBus, "sessions", fail)
        failed = http.get("/sessions")
    assert (failed.status_code, failed.headers["retry-after"]) == (503, "1")
    assert failed.json()["type"].endswith(":engine-unreachable")
    assert failed.json()["detail"] == "the engine is unreachable; try again after the seconds in Retry-After"
    assert "10.0.0.7" in capfd.readouterr().err


def test_no_error_of_the_engine_tells_clients_where_it_is(embedded_url, monkeypatch, capfd):
    """`translate` starts most messages with the engine's address."""
    kinds = [*EngineError.__subclasses__(), EngineError]
    assert len(kinds) > 10
    with serving_here(embedded_url) as running, running.client() as http:
        for kind in kinds:
            error = (
                NotReplicated(0, 1) if kind is NotReplicated else kind("redis://10.0.0.7:6379 (or /srv/bus) refuses")
            )
            error.event_id = "order-17"
            error.in_doubt()

            async def fail(*_: object, error: EngineError = error, **__: object) -> None:
                raise error

            monkeypatch.setattr(AsyncBus, "sessions", fail)
            failed = http.get("/sessions")
            assert failed.status_code in (502, 503), kind
            assert "10.0.0.7" not in failed.text, kind
            assert "/srv/bus" not in failed.text, kind
            assert failed.json()["detail"].endswith("retry it with event_id='order-17'"), kind
            assert kind is NotReplicated or "10.0.0.7" in capfd.readouterr().err, kind


@pytest.mark.parametrize("change", ["spawn", "fork", "end"])
def test_a_failing_read_after_a_change_names_the_id_for_a_retry(embedded_url, monkeypatch, session, change):
    """The retry changes nothing, and answers what the change had led to."""

    async def fail(*_: object, **__: object) -> None:
        raise EngineUnreachable("the engine does not answer")

    with serving_here(embedded_url) as running, running.client() as http, Bus.connect(embedded_url) as bus:
        bus.notes(session).add("x")
        with monkeypatch.context() as patched:
            patched.setattr(AsyncBus, "sessions", fail)
            failed = http.post(f"/sessions/{session}/{change}")
        assert failed.status_code == 503
        event_id = failed.json()["event_id"]
        assert event_id in failed.json()["detail"]
        again = http.post(f"/sessions/{session}/{change}", headers={"Idempotency-Key": event_id})
        assert again.is_success
        found = {each.id: each for each in bus.sessions() if session in (each.id, each.parent)}
        assert again.json() == found[again.json()["id"]].model_dump(mode="json")
        assert len(found) == (1 if change == "end" else 2)
