"""The routes by which an agent begins and ends a task run."""

from __future__ import annotations

from secrets import token_hex

import pytest

from scratchbus import Bus
from tests.edges.http.tokens import serving_holders

JSON = {"Accept": "application/json"}
UPDATE = "/whoami/actions/update_scratchpad"


@pytest.fixture(scope="module")
def holders(embedded_url, tmp_path_factory):
    with serving_holders(embedded_url, tmp_path_factory.mktemp("tokens")) as running:
        yield running


@pytest.fixture
def name() -> str:
    return f"agent-{token_hex(4)}"


@pytest.fixture
def agent(holders, name):
    """A subagent with a client of its own, at the root."""
    with holders.client(name, "memory") as client:
        client.base_url = holders.served.url
        yield client


@pytest.fixture
def person(holders):
    with holders.client(f"person-{token_hex(4)}", "read", "memory", kind="person") as client:
        client.base_url = holders.served.url
        yield client


def test_a_new_agent_sees_an_empty_scratchpad(agent, name):
    answer = agent.get("/whoami")
    assert answer.headers["content-type"].startswith("text/markdown")
    assert answer.text.startswith(
        f"You are {name}, a subagent.\n\n## Your Scratchpad\n\n_Your scratchpad is empty. Use the `update_scratchpad` "
        "action to save notes for your future self._"
    )
    assert "`update_scratchpad(content)`" in answer.text


def test_a_saved_scratchpad_is_shown_next_time(agent, holders, name):
    saved = agent.post(UPDATE, json={"content": "Ask for the number first."})
    assert (saved.status_code, saved.text) == (200, "Scratchpad updated successfully.\n")
    assert "## Your Scratchpad\n\nAsk for the number first." in agent.get("/whoami").text
    with Bus.connect(holders.served.engine, source=name) as bus:
        assert bus.scratchpad(name).read() == "Ask for the number first."
        bus.scratchpad(name).write("From Python.")
    assert "From Python." in agent.get("/whoami").text


def test_whoami_answers_as_json(agent, name):
    saved = agent.post(UPDATE, json={"content": "x"}, headers=JSON)
    expected = {"action_name": "update_scratchpad", "result": "Scratchpad updated successfully.", "revision": 1}
    assert (saved.json(), saved.headers["etag"]) == (expected, '"1"')
    found = agent.get("/whoami", headers=JSON).json()
    assert (found["name"], found["kind"], found["scratchpad"]) == (name, "subagent", {"content": "x", "revision": 1})
    actions = agent.get("/whoami/actions", headers=JSON).json()["actions"]
    assert [(each["name"], each["params_string"]) for each in actions] == [("update_scratchpad", "(content)")]
    described = agent.get(UPDATE, headers=JSON).json()
    assert described["params"] == [
        {
            "name": "content",
            "type": "string",
            "description": "The new scratchpad content (max 10000 chars). Replaces existing content.",
        }
    ]
    assert described["authorization"] == "self_subagent"


def test_an_update_is_accepted_as_a_form(agent):
    assert agent.post(UPDATE, data={"content": "a b"}).status_code == 200
    assert agent.get("/whoami", headers=JSON).json()["scratchpad"]["content"] == "a b"


def test_an_empty_body_may_have_any_media_type(agent):
    refused = agent.post(UPDATE, headers={"Content-Type": "text/plain", "Accept": "application/json"})
    assert refused.status_code == 422
    assert "content" in refused.json()["detail"]


def test_another_media_type_is_refused_with_both_that_are_accepted(agent):
    refused = agent.post(UPDATE, files={"content": b"a b"})
    assert refused.status_code == 415
    assert refused.json()["detail"].endswith("send application/json or application/x-www-form-urlencoded")


def test_a_blank_text_clears_the_scratchpad(agent):
    agent.post(UPDATE, json={"content": "x"})
    agent.post(UPDATE, json={"content": " \n"})
    assert "_Your scratchpad is empty." in agent.get("/whoami").text


def test_a_text_beyond_the_limit_gets_the_specified_error(agent):
    agent.post(UPDATE, json={"content": "kept"})
    for headers in ({}, JSON):
        refused = agent.post(UPDATE, json={"content": "x" * 10_001}, headers=headers)
        assert refused.status_code == 422
        assert "Scratchpad content exceeds maximum length of 10000 characters" in refused.text
    assert refused.json()["action_name"] == "update_scratchpad"
    assert agent.get("/whoami", headers=JSON).json()["scratchpad"]["content"] == "kept"
    assert agent.post(UPDATE, json={"content": "x" * 10_000}).status_code == 200


@pytest.mark.parametrize("body", [{}, {"content": 1}, {"content": None}, {"content": "x", "agent": "another"}])
def test_an_invalid_update_is_refused(agent, body):
    assert agent.post(UPDATE, json=body).status_code == 422


def test_an_update_of_an_older_revision_is_refused(agent):
    agent.post(UPDATE, json={"content": "first"})
    late = agent.post(UPDATE, json={"content": "second"}, headers={"If-Match": '"0"'})
    assert (late.status_code, late.json()["actual"]) == (412, 1)


def test_a_person_has_no_scratchpad(person):
    who = person.get("/whoami")
    assert who.status_code == 200
    assert "Scratchpad" not in who.text
    assert "scratchpad" not in person.get("/whoami", headers=JSON).json()
    assert person.get("/whoami/actions", headers=JSON).json() == {"actions": []}
    for refused in (person.get(UPDATE), person.post(UPDATE, json={"content": "x"})):
        assert (refused.status_code, refused.text) == (403, "403 Unauthorized")
        assert refused.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize("kind", ["subagent", "daemon"])
def test_callers_without_the_scope_memory_have_no_actions(holders, kind):
    name = f"{kind}-{token_hex(4)}"
    with holders.client(name, "read", kind=kind) as client:
        who = client.get(f"{holders.served.url}/whoami", headers=JSON).json()
        assert (who["text"], who["actions"]) == (f"You are {name}, a {kind}.", [])
        assert client.post(f"{holders.served.url}{UPDATE}", json={"content": "x"}).status_code == 403


def test_whoami_needs_a_token(holders):
    with holders.served.client() as nobody:
        assert nobody.get(f"{holders.served.url}/whoami").status_code == 401
