"""Preferences and recall over HTTP."""

from __future__ import annotations

from secrets import token_hex
from urllib.parse import quote

import pytest

from scratchbus import Bus, document_of


@pytest.fixture
def scope() -> str:
    """The name of a scope of the test's own."""
    return f"ada/{token_hex(6)}"


@pytest.fixture
def preferences(scope: str) -> str:
    """The path of its preferences."""
    return f"/scopes/{quote(scope, safe='')}/preferences"


QUOTES = {"key": "Quotes in JS", "text": "Single quotes."}


def test_a_preference_equals_that_of_python(http, bus: Bus, scope, preferences):
    first = http.put(preferences, json={**QUOTES, "said_by": "ada"})
    (kept,) = bus.preferences(scope).list()
    assert (first.json(), first.headers["etag"], kept.said_by) == (document_of(kept), '"1"', "ada")
    bus.preferences(scope).remember("tests", "Short ones.")
    keys = [each["key"] for each in http.get(preferences).json()["items"]]
    assert keys == ["Quotes in JS", "tests"]


def test_a_preference_is_replaced_only_at_its_current_version(http, bus: Bus, scope, preferences):
    assert http.put(preferences, json=QUOTES, headers={"If-Match": '"0"'}).status_code == 200
    changed = http.put(preferences, json={"key": "quote in js", "text": "Double."}, headers={"If-Match": '"1"'})
    assert (changed.status_code, changed.headers["etag"]) == (200, '"2"')
    for late in (
        http.put(preferences, json=QUOTES, headers={"If-Match": '"1"'}),
        http.patch(preferences, json=QUOTES, headers={"If-Match": '"1"'}),
        http.delete(preferences, params={"key": "quotes in js"}, headers={"If-Match": '"1"'}),
    ):
        assert (late.status_code, late.json()["actual"]) == (412, 2)
    assert [each.text for each in bus.preferences(scope).list()] == ["Double."]


def test_a_precondition_that_no_revision_meets_is_refused(http, preferences):
    refused = http.put(preferences, json={"key": "new", "text": "x"}, headers={"If-Match": "*"})
    assert refused.status_code == 422
    assert http.get(preferences).json()["items"] == []


def test_only_an_existing_preference_is_edited(http, preferences):
    assert http.patch(preferences, json=QUOTES).status_code == 404
    http.put(preferences, json=QUOTES)
    assert http.patch(preferences, json={**QUOTES, "text": "Double."}).json()["text"] == "Double."


def test_a_forgotten_preference_keeps_its_history(http, preferences):
    taken = http.put(preferences, json=QUOTES).json()
    other = http.put(preferences, json={"key": "tests", "text": "Short ones."}).json()
    assert http.delete(preferences, params={"key": "quotes in js"}).json() == taken
    assert http.get(preferences).json()["items"] == [other]
    assert http.delete(preferences, params={"key": "quotes in js"}).status_code == 404
    events = http.get(f"{preferences}/history", params={"key": "quotes in JS"}).json()["items"]
    assert [event["kind"] for event in events] == ["preference_remembered", "preference_forgotten"]
    assert len(http.get(f"{preferences}/history").json()["items"]) == 3
    then = {"at": taken["position"]}
    assert len(http.get(f"{preferences}/history", params=then).json()["items"]) == 1
    assert http.get(preferences, params=then).json()["items"] == [taken]
    assert http.get(f"{preferences}/history", params={"key": "never"}).status_code == 404


def test_a_retry_remembers_once(http, preferences):
    for _ in range(2):
        again = http.put(preferences, json=QUOTES, headers={"Idempotency-Key": f"key-{preferences}"})
        assert again.headers["etag"] == '"1"'
    assert len(http.get(f"{preferences}/history").json()["items"]) == 1


@pytest.mark.parametrize("body", [{"key": "a"}, {"key": "!", "text": "x"}, {"key": "a", "text": " "}, {"key": "a\nb"}])
def test_an_invalid_preference_is_refused(http, preferences, body):
    assert http.put(preferences, json=body).status_code == 422


def test_recall_searches_every_kind_of_memory(http, bus: Bus, scope, page):
    bus.preferences(scope).remember("database", "Postgres, never MySQL.")
    bus.facts(scope).assert_fact("shop", "depends_on", "postgres")
    bus.notes(page).add("The postgres password is in the vault")
    seen = bus.page(page).add("observation", "postgres is slow")
    bus.notes(f"{page}-2").add("postgres elsewhere")
    asked = {"query": "which postgres?", "scope": [scope], "session": [page], "page": page}
    found = http.get("/recall", params=asked).json()["items"]
    assert {each["kind"] for each in found} == {"preference", "fact", "note", "observation"}
    assert found == [
        document_of(each) for each in bus.recall("which postgres?", scopes=[scope], sessions=[page], page=page)
    ]
    assert all(any(reason["by"] == "postgres" for reason in each["reasons"]) for each in found)
    assert len(http.get("/recall", params={**asked, "session": [page, f"{page}-2"]}).json()["items"]) == 5
    assert len(http.get("/recall", params={**asked, "limit": 1}).json()["items"]) == 1
    only = http.get("/recall", params={"query": "postgres", "page": page}).json()["items"]
    assert [each["id"] for each in only] == [seen.id]


def test_recall_works_at_a_moment(http, bus: Bus, scope):
    first = bus.preferences(scope).remember("database", "MySQL.")
    bus.preferences(scope).remember("database", "Postgres.")
    asked = {"query": "database", "scope": scope}
    assert "Postgres" in http.get("/recall", params=asked).json()["items"][0]["text"]
    assert "MySQL" in http.get("/recall", params={**asked, "at": str(first.position)}).json()["items"][0]["text"]


@pytest.mark.parametrize(
    "params", [{}, {"query": "x", "scope": "a b"}, {"query": "x", "limit": 0}, {"query": "x", "scopes": "y"}]
)
def test_an_invalid_recall_query_is_refused(http, params):
    assert http.get("/recall", params=params).status_code == 422
