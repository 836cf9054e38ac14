"""The relations of facts over HTTP: list, publish."""

from __future__ import annotations

from dataclasses import asdict
from secrets import token_hex

import pytest

from scratchbus import AsyncBus, Bus
from scratchbus.errors import EngineUnreachable
from tests.edges.http.conftest import serving, serving_here

YAML = {"Content-Type": "application/yaml"}


@pytest.fixture
def own(http) -> str:
    """The text of the current relations; a test may only add to it, as others need the shipped ones."""
    text: str = http.get("/relations").json()["text"]
    return text


def test_relations_equal_those_of_python(http, bus: Bus):
    answer = http.get("/relations")
    found = answer.json()
    relations = bus.relations()
    assert {each["name"]: each for each in found["items"]} == {
        name: {**asdict(each), "aliases": list(each.aliases)} for name, each in relations.relations.items()
    }
    assert (found["text"], found["version"]) == (relations.text, bus.relations_version)
    assert answer.headers["etag"] == f'"{found["version"]}"'


def test_published_relations_are_known_everywhere(http, bus: Bus, own):
    name, scope = f"tastes_{token_hex(4)}", f"tea-{token_hex(4)}"
    refused = http.post(f"/scopes/{scope}/facts", json={"subject": "tea", "relation": name, "object": "hay"})
    assert refused.status_code == 409
    text = own.replace("relations:\n", f"relations:\n  {name}: {{values: one}}\n", 1)
    etag = http.get("/relations").headers["etag"]
    pushed = http.put("/relations", content=text.encode(), headers={**YAML, "If-Match": etag})
    assert (pushed.status_code, pushed.json()["has_changed"]) == (200, True), pushed.text
    assert name in pushed.json()["relations"]
    bus.facts(scope).assert_fact("tea", name, "grass", valid_at="2026-01-01")
    bus.facts(scope).assert_fact("tea", name, "hay", valid_at="2026-01-02")
    asked = http.get(f"/scopes/{scope}/facts", params={"subject": "tea", "relation": name})
    assert [each["object"] for each in asked.json()["items"]] == ["hay"]
    assert http.get("/relations").headers["etag"] == pushed.headers["etag"] != etag
    again = http.put("/relations", content=text.encode(), headers=YAML).json()
    assert (again["has_changed"], again["version"]) == (False, pushed.json()["version"])
    late = http.put("/relations", content=own.encode(), headers={**YAML, "If-Match": etag})
    assert late.status_code == 412
    assert name in bus.relations().relations


def test_a_retry_publishes_once(http, bus: Bus, own):
    key, name = token_hex(8), f"smells_{token_hex(4)}"
    text = own.replace("relations:\n", f"relations:\n  {name}: {{}}\n", 1)
    answers = [
        http.put("/relations", content=text.encode(), headers={**YAML, "Idempotency-Key": key}).json() for _ in range(2)
    ]
    assert answers[0] == answers[1]
    assert answers[0]["has_changed"] is True


def test_a_retry_gets_the_first_answer_after_others_have_published(http, own):
    texts = [own.replace("relations:\n", f"relations:\n  smells_{token_hex(4)}: {{}}\n", 1) for _ in range(2)]
    headers = {**YAML, "Idempotency-Key": token_hex(8)}
    pushed = http.put("/relations", content=texts[0].encode(), headers=headers)
    later = http.put("/relations", content=texts[1].encode(), headers=YAML).json()
    again = http.put("/relations", content=texts[0].encode(), headers=headers)
    assert (again.json(), again.headers["etag"]) == (pushed.json(), pushed.headers["etag"])
    assert http.get("/relations").json()["version"] == later["version"] == pushed.json()["version"] + 1


def test_relations_are_accepted_as_json(http, bus: Bus):
    before = http.get("/relations").json()
    wrong = http.put("/relations", json={"relations": {"runs_on": {"values": "some"}}})
    assert (wrong.status_code, wrong.json()["line"], wrong.json()["key"]) == (422, None, "relations.runs_on.values")
    assert http.get("/relations").json() == before
    declared = {each["name"]: {"aliases": each["aliases"]} for each in before["items"] if each["name"] != "same_as"}
    pushed = http.put("/relations", json={"relations": declared})
    assert (pushed.status_code, pushed.json()["relations"]) == (200, sorted([*declared, "same_as"])), pushed.text
    assert http.put("/relations", content=before["text"].encode(), headers=YAML).status_code == 200


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"relations: [", "application/yaml", 422),
        (b"relations:\n  uses: {values: some}\n", "application/yaml", 422),
        (b"relations:\n  same_as: {}\n", "application/yaml", 409),
        (b"", "application/yaml", 422),
        (b"\xff", "application/yaml", 400),
        (b"{", "application/json", 400),
        (b"[]", "application/json", 422),
        (b"x", "application/pdf", 415),
    ],
)
def test_invalid_relations_are_refused(http, content, kind, status):
    before = http.get("/relations").json()
    answer = http.put("/relations", content=content, headers={"Content-Type": kind})
    assert answer.status_code == status, answer.text
    assert http.get("/relations").json() == before


def test_if_match_0_publishes_only_the_first_relations(embedded_url):
    with serving(embedded_url, SCRATCHBUS_BUS=f"bus-{token_hex(4)}") as served, served.client() as http:
        found = http.get("/relations")
        assert found.headers["etag"] == '"0"'
        text, headers = found.json()["text"].encode(), {**YAML, "If-Match": '"0"'}
        assert http.put("/relations", content=text, headers=headers).json()["version"] == 1
        assert http.put("/relations", content=text + b"\n", headers=headers).status_code == 412


def test_a_failing_read_after_a_publication_names_the_id_for_a_retry(embedded_url, own, monkeypatch):
    """With the same If-Match, which other retries would be refused for."""
    text = own.replace("relations:\n", f"relations:\n  r{token_hex(6)}: {{}}\n", 1).encode()

    async def fail(*_: object, **__: object) -> None:
        raise EngineUnreachable("the engine does not answer")

    with serving_here(embedded_url) as running, running.client() as http:
        guards = {**YAML, "If-Match": http.get("/relations").headers["etag"]}
        with monkeypatch.context() as patched:
            patched.setattr(AsyncBus, "relations", fail)
            failed = http.put("/relations", content=text, headers=guards)
        assert failed.status_code == 503
        again = http.put("/relations", content=text, headers={**guards, "Idempotency-Key": failed.json()["event_id"]})
        assert again.is_success
        assert again.headers["etag"] == http.get("/relations").headers["etag"] != guards["If-Match"]
