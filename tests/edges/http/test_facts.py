"""Facts over HTTP, compared with the Python API."""

from __future__ import annotations

from secrets import token_hex
from typing import Any
from unittest.mock import AsyncMock, Mock
from urllib.parse import quote

import httpx2
import pytest

from scratchbus import Bus, document_of, new_id
from scratchbus.errors import NotFound
from scratchbus.http.routes.facts import get_fact

MARCH, JUNE = "2026-03-01T00:00:00Z", "2026-06-01T00:00:00Z"


@pytest.fixture
def scope() -> str:
    """The name of a scope of the test's own."""
    return f"ada/{token_hex(6)}"


@pytest.fixture
def facts(scope: str) -> str:
    """The path of its facts."""
    return f"/scopes/{quote(scope, safe='')}/facts"


def assert_fact(http: httpx2.Client, path: str, subject: str, relation: str, object: str, **more: Any) -> Any:
    body = {"subject": subject, "relation": relation, "object": object, **more}
    answer = http.post(path, json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def triplets(answer: httpx2.Response) -> list[str]:
    return [f"{each['subject']} {each['relation']} {each['object']}" for each in answer.json()["items"]]


def test_a_fact_equals_that_of_python(http, bus: Bus, scope, facts):
    answer = http.post(facts, json={"subject": "api", "relation": "runs_on", "object": "Node 24"})
    (fact,) = bus.facts(scope).query("api")
    assert answer.json() == document_of(fact)
    assert http.get(facts).json() == {"items": [document_of(fact)]}
    why = http.get(answer.headers["location"].removeprefix("/api/v1")).json()
    assert why == document_of(bus.facts(scope).why(fact))


def test_a_retry_asserts_once(http, bus: Bus, scope, facts):
    body = {"subject": "api", "relation": "uses", "object": "redis"}
    first, again = (http.post(facts, json=body, headers={"Idempotency-Key": f"key-{scope}"}) for _ in range(2))
    assert first.json() == again.json()
    other = http.post(facts, json={**body, "object": "valkey"}, headers={"Idempotency-Key": f"key-{scope}"})
    assert (other.status_code, other.json()["type"]) == (409, "urn:scratchbus:problem:event-id-reused")
    assert len(bus.facts(scope).query("api")) == 1


def test_at_returns_the_facts_that_are_valid_then(http, facts):
    assert_fact(http, facts, "ada", "lives_in", "Paris", valid_at=MARCH)
    assert_fact(http, facts, "ada", "lives_in", "London", valid_at=JUNE)
    assert triplets(http.get(facts, params={"subject": "ADA"})) == ["ada lives_in London"]
    assert triplets(http.get(facts, params={"object": "Paris"})) == []
    assert triplets(http.get(facts, params={"at": "2026-04-01T00:00:00Z"})) == ["ada lives_in Paris"]
    spans = http.get(f"{facts}/timeline", params={"subject": "ada", "relation": "lives_in"}).json()["items"]
    assert [(each["begins"], each["ends"]) for each in spans] == [(MARCH, JUNE), (JUNE, None)]
    last = http.get(f"{facts}/timeline", params={"subject": "ada", "relation": "lives_in", "limit": 1}).json()["items"]
    assert last == spans[1:]


def test_known_at_returns_the_facts_known_at_a_position(http, facts):
    paris = assert_fact(http, facts, "ada", "lives_in", "Paris")
    london = assert_fact(http, facts, "ada", "lives_in", "London")
    then = {"known_at": paris["position"]}
    assert triplets(http.get(facts, params=then)) == ["ada lives_in Paris"]
    assert len(http.get(f"{facts}/timeline", params={"subject": "ada", "relation": "lives_in", **then}).json()["items"])
    assert http.get(f"{facts}/triplets", params={"budget": 100, **then}).json()["text"] == "ada -> lives_in -> Paris"
    assert http.get(f"{facts}/path", params={"a": "ada", "b": "London", **then}).json()["items"] == []
    near = http.get(f"{facts}/neighbours", params={"entity": "ada", **then}).json()["items"]
    assert [each["entity"] for each in near] == ["Paris"]
    assert triplets(http.get(facts, params={"known_at": london["position"]})) == ["ada lives_in London"]


def test_inverse_and_transitive_relations_are_followed(http, facts):
    assert_fact(http, facts, "shop", "depends_on", "api")
    assert_fact(http, facts, "api", "depends_on", "postgres")
    asked = {"subject": "shop", "relation": "depends_on"}
    assert triplets(http.get(facts, params=asked)) == ["shop depends_on api", "api depends_on postgres"]
    assert len(http.get(facts, params={**asked, "limit": 1}).json()["items"]) == 1
    assert len(http.get(facts, params={"subject": "postgres", "relation": "needed_by"}).json()["items"]) == 2
    path = http.get(f"{facts}/path", params={"a": "postgres", "b": "shop"})
    assert triplets(path) == ["api depends_on postgres", "shop depends_on api"]
    near = http.get(f"{facts}/neighbours", params={"entity": "shop", "depth": 2}).json()["items"]
    assert [(each["entity"], each["distance"]) for each in near] == [("api", 1), ("postgres", 2)]
    assert near[0]["fact"]["subject"] == "shop"


def test_distinct_facts_are_returned_once(http, facts):
    assert_fact(http, facts, "shop", "uses", "Redis")
    for _ in range(2):
        last = assert_fact(http, facts, "shop", "uses", "Docker")
    assert len(http.get(facts, params={"distinct": "false"}).json()["items"]) == 3
    found = http.get(facts, params={"distinct": "true", "limit": 2})
    assert triplets(found) == ["shop uses Docker", "shop uses Redis"]
    assert found.json()["items"][0] == last


def test_a_retracted_fact_keeps_its_history(http, facts):
    fact = assert_fact(http, facts, "api", "runs_on", "Node 26")
    gone = http.post(f"{facts}/{fact['id']}/retract", json={"reason": "it was misread"})
    assert (gone.status_code, gone.json()["retraction"]["reason"]) == (200, "it was misread")
    assert http.get(facts).json()["items"] == []
    why = http.get(f"{facts}/{fact['id']}").json()
    assert why["state"] == "retracted"
    assert [event["kind"] for event in why["events"]] == ["fact_asserted", "fact_retracted"]


@pytest.mark.parametrize(("scopes", "most"), [({"memory"}, 0), ({"memory", "read"}, None)])
async def test_evidence_that_the_caller_may_not_read_is_not_loaded(scopes, most):
    why = AsyncMock(side_effect=NotFound("no such fact"))
    bus = Mock(facts=Mock(return_value=Mock(why=why)))
    with pytest.raises(NotFound):
        await get_fact(bus, Mock(scopes=scopes), "shop", "fact_1")
    why.assert_awaited_once_with("fact_1", max_evidence=most)


def test_a_fact_has_its_evidence(http, bus: Bus, facts, page):
    seen = bus.page(page).add("observation", "Node 24 is in the logs")
    fact = assert_fact(
        http, facts, "api", "runs_on", "Node 24", evidence=[seen.id], source_text="upgraded", confidence=0.5
    )
    why = http.get(f"{facts}/{fact['id']}").json()
    assert [each["content"] for each in why["evidence"]] == ["Node 24 is in the logs"]
    assert (why["fact"]["source_text"], why["fact"]["confidence"]) == ("upgraded", 0.5)
    unknown = http.post(facts, json={"subject": "a", "relation": "uses", "object": "b", "evidence": [new_id()]})
    assert (unknown.status_code, unknown.json()["field"]) == (409, "evidence")


def test_a_text_is_ingested_all_or_nothing(http, facts):
    text = "- api -> runs_on -> Node 24\nsomething else\nstatus: green"
    found = http.post(f"{facts}/ingest", json={"text": text, "subject": "build", "valid_at": MARCH, "confidence": 0.5})
    assert triplets(found) == ["api runs_on Node 24", "build status green"]
    assert {(each["valid_at"], each["confidence"]) for each in found.json()["items"]} == {(MARCH, 0.5)}
    wrong = http.post(f"{facts}/ingest", json={"text": "a -> uses -> b\nb -> usess -> c"})
    assert (wrong.status_code, wrong.json()["nearest"]) == (409, "uses")
    assert len(http.get(facts).json()["items"]) == 2


def test_triplets_fit_a_budget(http, facts):
    for number in range(20):
        assert_fact(http, facts, "api", "uses", f"library {number}")
    whole = http.get(f"{facts}/triplets", params={"budget": 1_000, "subject": "api"}).json()
    assert len(whole["text"].splitlines()) == 20
    part = http.get(f"{facts}/triplets", params={"budget": 50}).json()
    assert part["tokens"] <= 50
    assert "more left out" in part["text"].splitlines()[-1]
    assert http.get(f"{facts}/triplets").status_code == 422


def test_same_as_joins_two_names_until_it_is_deleted(http, facts):
    assert_fact(http, facts, "NYC", "located_in", "USA")
    joined = http.post(f"{facts}/same-as", json={"a": "NYC", "b": "New York"}).json()
    assert len(http.get(facts, params={"subject": "New York", "relation": "located_in"}).json()["items"]) == 1
    why = "they are two towns"
    parted = http.delete(f"{facts}/same-as", params={"a": "new york", "b": "nyc", "reason": why}).json()["items"]
    assert [(each["id"], each["retraction"]["reason"]) for each in parted] == [(joined["id"], why)]
    assert http.get(facts, params={"subject": "New York"}).json()["items"] == []
    assert http.delete(f"{facts}/same-as", params={"a": "NYC", "b": "New York"}).status_code == 404
    http.post(f"{facts}/same-as", json={"a": "NYC", "b": "Gotham"})
    http.post(f"{facts}/same-as", json={"a": "Gotham", "b": "New York"})
    through = http.delete(f"{facts}/same-as", params={"a": "NYC", "b": "New York"})
    assert (through.status_code, "Gotham" in through.json()["detail"]) == (409, True)


def test_contested_facts_are_pending_review(http, bus: Bus, scope, facts):
    assert_fact(http, facts, "ada", "lives_in", "Paris", valid_at=MARCH)
    other = bus.facts(scope).assert_fact("ada", "lives_in", "London", valid_at=MARCH)
    (asked,) = http.get(f"{facts}/pending-review").json()["items"]
    assert other.id in asked["context"]["facts"]
    (contest,) = http.get(f"{facts}/contested", params={"subject": "Ada", "relation": "lives_in"}).json()["items"]
    assert [each["object"] for each in contest["facts"]] == ["Paris", "London"]
    assert http.get(f"{facts}/contested", params={"subject": "ada", "at": "2026-02-01T00:00:00Z"}).json()["items"] == []
    http.post(f"{facts}/{other.id}/retract", json={"reason": "wrong"})
    assert http.get(f"{facts}/pending-review").json()["items"] == []


def test_an_unknown_relation_is_refused_with_the_nearest(http, facts):
    refused = http.post(facts, json={"subject": "api", "relation": "runson", "object": "Node"})
    assert (refused.status_code, refused.json()["nearest"]) == (409, "runs_on")
    asked = http.get(facts, params={"relation": "runson"})
    assert (asked.status_code, asked.json()["type"]) == (404, "urn:scratchbus:problem:unknown-relation")


@pytest.mark.parametrize(
    "body",
    [
        {"subject": "api", "relation": "uses"},
        {"subject": "", "relation": "uses", "object": "b"},
        {"subject": "api", "relation": "uses", "object": "b", "confidence": 2},
        {"subject": "api", "relation": "uses", "object": "b", "valid_at": "yesterday"},
        {"subject": "api", "relation": "uses", "object": "b", "colour": "red"},
    ],
)
def test_an_invalid_fact_is_refused(http, facts, body):
    assert http.post(facts, json=body).status_code == 422


@pytest.mark.parametrize(
    "path", ["/fact_1", "/fact_1/retract", "/other", "?limit=0", "?at=1-1", "/neighbours?entity=a&depth=21", "?tag=x"]
)
def test_missing_facts_and_invalid_queries_are_refused(http, facts, path):
    method = "POST" if path.endswith("retract") else "GET"
    answer = http.request(method, f"{facts}{path}", json={"reason": "x"} if method == "POST" else None)
    assert answer.status_code == (422 if "?" in path else 404)
    assert answer.headers["content-type"] == "application/problem+json"
