"""Observations over HTTP, compared with the Python API."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from scratchbus import Bus, NewObservation, document_of, new_id
from scratchbus.commands import read
from scratchbus.engine.steps import Step, ask
from scratchbus.errors import EngineUnreachable
from tests.edges.http.conftest import serving_here


def add(http: httpx2.Client, page: str, **fields: object) -> Any:
    answer = http.post(f"/pages/{page}/observations", json={"type": "observation", "content": "seen", **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_an_observation_equals_that_of_python(http, bus: Bus, page):
    answer = http.post(f"/pages/{page}/observations", json={"type": "risk_alert", "content": "x", "tags": ["a"]})
    found = answer.json()
    assert found.pop("displaced") == []
    assert found == document_of(bus.page(page).get(found["id"]))
    assert answer.headers["location"] == f"/api/v1/pages/{page}/observations/{found['id']}"
    assert answer.headers["etag"] == '"1"'
    assert http.get(answer.headers["location"].removeprefix("/api/v1")).json() == found


def test_an_idempotency_key_with_another_body_is_refused(http, page):
    headers = {"Idempotency-Key": new_id()}
    http.post(f"/pages/{page}/observations", json={"type": "observation", "content": "one"}, headers=headers)
    again = http.post(f"/pages/{page}/observations", json={"type": "observation", "content": "two"}, headers=headers)
    assert (again.status_code, again.json()["type"]) == (409, "urn:scratchbus:problem:event-id-reused")


def test_a_repeat_of_a_dedupe_key_is_counted(http, page):
    first = add(http, page, dedupe_key="k")
    second = http.post(
        f"/pages/{page}/observations", json={"type": "observation", "content": "seen", "dedupe_key": "k"}
    )
    assert (second.status_code, second.json()["id"], second.json()["occurrences"]) == (200, first["id"], 2)


def test_a_first_sighting_of_several_occurrences_is_created(http, page):
    body = {"type": "observation", "content": "seen", "times": 3, "dedupe_key": "k"}
    answer = http.post(f"/pages/{page}/observations", json=body)
    assert (answer.status_code, answer.json()["occurrences"]) == (201, 3)
    assert answer.headers["location"].endswith(answer.json()["id"])


def test_an_addition_lists_the_displaced_observation(http, bus: Bus, page):
    for number in range(100):
        add(http, page, content=str(number))
    oldest = bus.page(page).list(limit=None)[-1].id
    assert add(http, page)["displaced"] == [oldest]


def test_a_batch_lists_the_displaced_observations(http, bus: Bus, page):
    bus.page(page).add_many([NewObservation(type="observation", content=str(number)) for number in range(99)])
    oldest = [each.id for each in bus.page(page).list(limit=None)[-2:]]
    batch = [{"type": "observation", "content": "x"}] * 3
    answer = http.post(f"/pages/{page}/observations/batch", json={"observations": batch}).json()
    assert sorted(answer["displaced"]) == sorted(oldest)


def test_the_displaced_of_a_large_batch_are_read_together(http, bus: Bus, page):
    def calls() -> int:
        stats = bus.converse(ask(0, "INFO", "commandstats")).decode()
        return sum(map(int, re.findall(r"^cmdstat_eval\w*:calls=(\d+)", stats, re.MULTILINE)))

    bus.page(page).add_many([NewObservation(type="observation", content=str(number)) for number in range(100)])
    before = calls()
    batch = [{"type": "observation", "content": "x"}] * 60
    answer = http.post(f"/pages/{page}/observations/batch", json={"observations": batch}).json()
    assert len(answer["displaced"]) == 60
    assert calls() - before < 60


@pytest.mark.parametrize("path", ["observations", "observations/batch"])
def test_an_addition_succeeds_if_the_displaced_cannot_be_read(
    embedded_url: str, bus: Bus, page, path: str, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: object) -> Step[None]:
        yield from ()
        raise EngineUnreachable("gone")

    monkeypatch.setattr(read, "list_displaced", fail)
    item = {"type": "observation", "content": "x"}
    with serving_here(embedded_url) as here, here.client() as http:
        answer = http.post(f"/pages/{page}/{path}", json={"observations": [item]} if "batch" in path else item)
    assert (answer.status_code, answer.json()["displaced"]) == (201, None)
    assert len(bus.page(page).list()) == 1


def test_a_write_with_an_older_etag_is_refused(http, page):
    found = add(http, page)
    path = f"/pages/{page}/observations/{found['id']}"
    etag = http.get(path).headers["etag"]
    changed = http.patch(path, json={"confidence": 0.5}, headers={"If-Match": etag})
    assert (changed.status_code, changed.json()["confidence"], changed.headers["etag"]) == (200, 0.5, '"2"')
    late = http.patch(path, json={"confidence": 0.7}, headers={"If-Match": etag})
    assert (late.status_code, late.json()["expected"], late.json()["actual"]) == (412, 1, 2)


def test_a_change_of_the_status_keeps_its_reason(http, page):
    path = f"/pages/{page}/observations/{add(http, page)['id']}"
    changed = http.patch(path, json={"status": "pending_review", "reason": "the sensor was replaced"}).json()
    assert (changed["status"], changed["reason"]) == ("pending_review", "the sensor was replaced")
    refused = http.patch(path, json={"reason": "the sensor was replaced"})
    assert (refused.status_code, "give the new status too" in refused.text) == (422, True)


def test_a_batch_is_all_or_nothing(http, bus: Bus, page):
    good, bad = {"type": "observation", "content": "a"}, {"type": "no_such_type", "content": "b"}
    refused = http.post(f"/pages/{page}/observations/batch", json={"observations": [good, bad]})
    assert (refused.status_code, bus.page(page).list()) == (409, [])
    done = http.post(f"/pages/{page}/observations/batch", json={"observations": [good, good]})
    assert (done.status_code, len(done.json()["items"])) == (201, 2)


@pytest.mark.parametrize("name", ["self", "given", "colour"])
def test_an_unknown_field_of_an_item_is_refused(http, page, name: str):
    item = {"type": "observation", "content": "a", name: "b"}
    refused = http.post(f"/pages/{page}/observations/batch", json={"observations": [item]})
    assert (refused.status_code, refused.json()["detail"].partition(";")[0]) == (422, f"{name}: unknown field")


@pytest.mark.parametrize("name", ["confidence", "ttl", "times"])
@pytest.mark.parametrize("path", ["observations", "observations/batch"])
def test_true_is_not_a_number(http, page, path: str, name: str):
    item = {"type": "observation", "content": "a", name: True}
    refused = http.post(f"/pages/{page}/{path}", json={"observations": [item]} if "batch" in path else item)
    assert refused.status_code == 422
    assert refused.json()["detail"].startswith(f"{name}: True is not a")


def test_the_next_link_continues_a_list(http, page):
    wanted = [add(http, page, content=str(number))["id"] for number in range(5)][::-1]
    answer = http.get(f"/pages/{page}/observations", params={"limit": 2})
    found = [each["id"] for each in answer.json()["items"]]
    while "next" in answer.links:
        answer = http.get(answer.links["next"]["url"].removeprefix("/api/v1"))
        found += [each["id"] for each in answer.json()["items"]]
    assert found == wanted


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({"type": "risk_alert"}, 1),
        ({"status": ["active", "pending_review"]}, 2),
        ({"tag": ["a", "b"]}, 1),
        ({"context": '{"task":"t1"}'}, 1),
        ({"confidence": 0.9}, 1),
        ({"text": "FRAUD"}, 1),
        ({"source": "nobody"}, 0),
    ],
)
def test_filters_select_observations(http, page, query, count):
    add(http, page, type="risk_alert", content="fraud", tags=["a", "b"], confidence=0.9, context={"task": "t1"})
    add(http, page, content="calm", tags=["a"], confidence=0.2)
    assert len(http.get(f"/pages/{page}/observations", params=query).json()["items"]) == count


def test_an_unknown_filter_is_refused(http, page):
    answer = http.get(f"/pages/{page}/observations", params={"tags": "a"})
    assert answer.status_code == 422
    assert "tags: unknown query parameter; use one of:" in answer.json()["detail"]


def test_an_encoded_slash_belongs_to_the_page_name(http, bus: Bus, page):
    name = f"{page}/team a:b"[:60].replace(" ", "_")
    found = add(http, quote(name, safe=""))
    assert found["page"] == name
    assert [each.id for each in bus.page(name).list()] == [found["id"]]


def test_at_returns_the_state_of_a_moment(http, page):
    first = add(http, page, content="first")
    path = f"/pages/{page}/observations/{first['id']}"
    http.patch(path, json={"content": "changed"})
    add(http, page, content="second")
    then = http.get(f"/pages/{page}/active", params={"at": first["position"]}).json()["items"]
    assert [(each["id"], each["content"]) for each in then] == [(first["id"], "first")]
    assert http.get(path, params={"at": first["position"]}).json()["content"] == "first"


def test_without_source_leaves_out_its_observations(http, bus: Bus, page):
    bus.page(page).add("observation", "theirs")
    mine = add(http, page, content="mine")
    found = http.get(f"/pages/{page}/active", params={"without_source": "beside"}).json()["items"]
    assert [each["id"] for each in found] == [mine["id"]]


@pytest.mark.parametrize("verb", ["review", "resolve", "archive"])
def test_a_transition_needs_no_body(http, bus: Bus, page, verb):
    found = add(http, page)
    changed = http.post(f"/pages/{page}/observations/{found['id']}/{verb}")
    status = {"review": "pending_review", "resolve": "resolved", "archive": "archived"}[verb]
    assert (changed.status_code, changed.json()["status"]) == (200, status)
    assert bus.page(page).get(found["id"]).status == status


def test_an_observation_is_resolved_together_with_its_action(http, page):
    found = add(http, page)
    path = f"/pages/{page}/observations/{found['id']}"
    done = http.post(f"{path}/resolve", json={"reason": "card blocked", "action": "freeze-1"}).json()
    assert (done["status"], done["links"], done["version"]) == ("resolved", ["freeze-1"], 3)


def test_an_update_releases_the_claim(http, page):
    found = add(http, page)
    path = f"/pages/{page}/observations/{found['id']}"
    fence = http.post(f"{path}/claim", json={"ttl": "1m"}).json()["fence"]
    done = http.patch(path, json={"content": "half done", "fence": fence, "release": True}).json()
    assert (done["content"], done.get("claim")) == ("half done", None)
    http.post(f"{path}/claim", json={"ttl": "1m"})
    assert http.patch(path, json={"release": True}).json().get("claim") is None
    assert http.patch(path, json={"release": 1}).status_code == 422


def test_a_claimed_observation_is_resolved_only_with_its_fence(http, bus: Bus, page):
    found = add(http, page)
    path = f"/pages/{page}/observations/{found['id']}"
    claim = http.post(f"{path}/claim", json={"ttl": "1m"}).json()
    with pytest.raises(Exception, match="is claimed by"):
        bus.page(page).resolve(found["id"])
    assert http.post(f"{path}/resolve", json={"fence": claim["fence"] + 1}).status_code == 409
    assert http.post(f"{path}/resolve", json={"fence": claim["fence"]}).status_code == 200


def test_claim_next_claims_the_most_urgent_observation(http, page):
    assert http.post(f"/pages/{page}/claim-next").status_code == 204
    add(http, page)
    urgent = add(http, page, type="risk_alert")
    taken = http.post(f"/pages/{page}/claim-next", json={"ttl": "1m"}).json()
    assert (taken["id"], taken["claim"]["by"]) == (urgent["id"], urgent["source"])


def test_blocked_and_scheduled_observations_are_not_ready(http, page):
    wall = add(http, page)
    roof = add(http, page, type="risk_alert", blocked_by=[wall["id"]])
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert add(http, page, type="risk_alert", not_before=soon, every="0 3 * * *")["every"] == "0 3 * * *"
    add(http, page, type="risk_alert", not_before=soon)
    ready = lambda: [each["id"] for each in http.get(f"/pages/{page}/ready").json()["items"]]  # noqa: E731
    assert ready() == [wall["id"]]
    refused = http.post(f"/pages/{page}/observations/{roof['id']}/claim", json={"ttl": "1m"})
    assert (refused.status_code, "blocks it" in refused.json()["detail"]) == (409, True)
    changed = http.patch(f"/pages/{page}/observations/{roof['id']}", json={"blocked_by": []})
    assert (changed.status_code, ready()) == (200, [roof["id"], wall["id"]])
    moved = http.patch(f"/pages/{page}/observations/{wall['id']}", json={"not_before": soon})
    assert (moved.json()["not_before"], ready()) == (moved.json()["remind_at"], [roof["id"]])
    http.patch(f"/pages/{page}/observations/{wall['id']}", json={"not_before": None})
    assert ready() == [roof["id"], wall["id"]]
    wrong_changes = ({"every": "1h"}, 409), ({"every": "often"}, 422), ({"not_before": "2h"}, 422)
    for change, status in (*wrong_changes, ({"remind_at": soon}, 200)):
        assert http.patch(f"/pages/{page}/observations/{wall['id']}", json=change).status_code == status
    for wrong in ({"every": "often"}, {"not_before": "later"}, {"blocked_by": ["x"]}):
        body = {"type": "observation", "content": "x", **wrong}
        assert http.post(f"/pages/{page}/observations", json=body).status_code == 422


def test_refute_sends_dependent_observations_to_review(http, page):
    ground = add(http, page)
    resting = add(http, page, evidence=[ground["id"]])
    refused = http.post(f"/pages/{page}/observations/{ground['id']}/refute", json={})
    assert (refused.status_code, refused.json()["field"]) == (422, "reason")
    http.post(f"/pages/{page}/observations/{ground['id']}/refute", json={"reason": "wrong"})
    assert http.get(f"/pages/{page}/observations/{resting['id']}").json()["status"] == "pending_review"
    consequences = http.get(f"/pages/{page}/observations/{ground['id']}/consequences").json()
    assert resting["id"] in str(consequences)


def test_an_action_is_traced_to_its_observation(http, page):
    found = add(http, page)
    http.post(f"/pages/{page}/observations/{found['id']}/link", json={"action": "goal-17"})
    trace = http.get(f"/pages/{page}/trace", params={"action": "goal-17"}).json()
    assert list(trace["observations"]) == [found["id"]]


def test_traces_are_read_at_a_moment(http, page):
    ground = add(http, page)
    resting = add(http, page, evidence=[ground["id"]])
    changed = http.post(f"/pages/{page}/observations/{resting['id']}/link", json={"action": "goal-17"}).json()
    of_ground, of_resting = (f"/pages/{page}/observations/{each['id']}" for each in (ground, resting))
    early, late = ({"at": each["position"]} for each in (ground, changed))
    assert http.get(f"{of_ground}/consequences", params=early).json()["actions"] == []
    assert http.get(f"{of_ground}/consequences", params=late).json()["actions"] == ["goal-17"]
    assert [each["id"] for each in http.get(f"{of_resting}/evidence", params=late).json()["items"]] == [ground["id"]]
    for path in (f"{of_resting}/evidence", f"{of_resting}/exposure"):
        assert http.get(path, params=early).status_code == 404
    assert http.get(f"/pages/{page}/trace", params={"action": "goal-17", **early}).status_code == 404


def test_diff_compares_two_moments(http, page):
    found = add(http, page)
    changed = http.post(f"/pages/{page}/observations/{found['id']}/resolve").json()
    diff = http.get(f"/pages/{page}/diff", params={"from": found["position"], "to": changed["position"]}).json()
    assert [(each["id"], each["fields"]["status"]["after"]) for each in diff["items"]] == [(found["id"], "resolved")]


def test_an_erased_observation_leaves_a_tombstone(http, page):
    found = add(http, page)
    erased = http.post(f"/pages/{page}/observations/{found['id']}/erase", json={"reason": "asked to"})
    assert erased.json()["kind"] == "erased"
    assert http.get(f"/pages/{page}/observations/{found['id']}").status_code == 404
