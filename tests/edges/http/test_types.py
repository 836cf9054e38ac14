"""The observation types over HTTP: list, check, publish."""

from __future__ import annotations

from secrets import token_hex

import pytest

from scratchbus import Bus, document_of, parse_registry
from tests.edges.http.conftest import serving

YAML = {"Content-Type": "application/yaml"}
PRICES = "types:\n  price_alert:\n    description: A price has moved 💶\n    priority: 60\n"


@pytest.fixture
def own(http, bus: Bus):
    """The text of the current types; a test may only add to it, as others need the shipped ones."""
    return bus.types.text


def test_types_equal_those_of_python(http, bus: Bus):
    answer = http.get("/types")
    bus.refresh_types()
    found = answer.json()
    assert {each["name"]: each for each in found["items"]} == {
        name: document_of(kind) for name, kind in bus.types.types.items()
    }
    assert [each["priority"] for each in found["items"]] == sorted(
        (each["priority"] for each in found["items"]), reverse=True
    )
    assert (found["text"], found["version"]) == (bus.types.text, bus.types_version)
    assert answer.headers["etag"] == f'"{bus.types_version}"'


def test_checking_a_valid_registry_lists_its_changes(http):
    checked = http.post("/types/check", content=PRICES.encode(), headers=YAML).json()
    assert (checked["is_valid"], checked["problems"], checked["added"]) == (True, [], ["price_alert"])
    assert "risk_alert" in checked["removed"]


def test_checking_reports_the_line_column_and_key_of_a_problem(http):
    text = "types:\n  price_alert:\n    priority: high\n"
    checked = http.post("/types/check", content=text, headers=YAML).json()
    (problem,) = checked["problems"]
    assert (checked["is_valid"], problem["line"], problem["column"], problem["key"]) == (
        False, 3, 5, "types.price_alert.priority",
    )  # fmt: skip
    assert problem["problem"] == "'high' is not a whole number from 0 to 100"


def test_a_registry_is_accepted_as_json(http):
    kind = {"description": "A price has moved 💶 \u2028 \x7f", "priority": 60, "default_ttl": "2h"}
    checked = http.post("/types/check", json={"types": {"price_alert": kind}}).json()
    assert (checked["is_valid"], checked["added"]) == (True, ["price_alert"])
    wrong = http.post("/types/check", json={"types": {"price_alert": {"colour": "red"}}}).json()["problems"][0]
    assert (wrong["line"], wrong["key"]) == (None, "types.price_alert.colour")
    assert "unknown key 'colour'" in wrong["problem"]


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"types: [", "application/yaml", 200),
        (b"\xff", "application/yaml", 400),
        (b"{", "application/json", 400),
        (b"[]", "application/json", 422),
        (b"[" * 300 + b"]" * 300, "application/json", 400),
        (b'{"types":' * 150 + b"1" + b"}" * 150, "application/json", 200),
        (b"x", "application/pdf", 415),
        (b"types: {x: {priority: !!bool 5}}", "application/yaml", 200),
    ],
)
def test_an_invalid_registry_is_refused(http, content, kind, status):
    answer = http.post("/types/check", content=content, headers={"Content-Type": kind})
    assert answer.status_code == status, answer.text
    assert status != 200 or answer.json()["is_valid"] is False


def test_a_published_type_is_known_everywhere(http, bus: Bus, page, own):
    name = f"price_{token_hex(4)}"
    text = own.replace("types:\n", f"types:\n  {name}:\n    priority: 61\n", 1)
    etag = http.get("/types").headers["etag"]
    pushed = http.put("/types", content=text.encode(), headers={**YAML, "If-Match": etag})
    assert (pushed.status_code, pushed.json()["has_changed"], pushed.json()["added"]) == (200, True, [name])
    assert bus.page(page).add(name, "moved").priority == 61
    assert http.get("/types").headers["etag"] == pushed.headers["etag"] != etag
    again = http.put("/types", content=text.encode(), headers=YAML).json()
    assert (again["has_changed"], again["version"]) == (False, pushed.json()["version"])
    late = http.put("/types", content=own.encode(), headers={**YAML, "If-Match": etag})
    assert late.status_code == 412
    assert name in [each["name"] for each in http.get("/types").json()["items"]]


def test_a_retry_gets_the_first_answer_after_others_have_published(http, own):
    names = [f"price_{token_hex(4)}" for _ in range(2)]
    first, second = (own.replace("types:\n", f"types:\n  {name}:\n    priority: 61\n", 1) for name in names)
    second = second.replace("types:\n", f"types:\n  {names[0]}:\n    priority: 61\n", 1)
    headers = {**YAML, "Idempotency-Key": token_hex(8)}
    pushed = http.put("/types", content=first.encode(), headers=headers)
    assert pushed.json()["added"] == [names[0]]
    for text in (first, second):
        http.put("/types", content=text.encode(), headers=YAML)
        again = http.put("/types", content=first.encode(), headers=headers)
        assert (again.json(), again.headers["etag"]) == (pushed.json(), pushed.headers["etag"])
    assert names[1] in [each["name"] for each in http.get("/types").json()["items"]]


def test_the_key_of_another_source_is_another_key(http, bus: Bus, own):
    names, key = [f"price_{token_hex(4)}" for _ in range(2)], token_hex(8)
    first, second = (own.replace("types:\n", f"types:\n  {name}:\n    priority: 61\n", 1) for name in names)
    bus.push_types(parse_registry(first, "first"), event_id=key)
    pushed = http.put("/types", content=second.encode(), headers={**YAML, "Idempotency-Key": key})
    assert (pushed.json()["added"], pushed.json()["removed"]) == ([names[1]], [names[0]])
    assert pushed.json()["version"] == http.get("/types").json()["version"]


def test_a_retry_of_the_first_publication_gets_its_answer(embedded_url):
    with serving(embedded_url, SCRATCHBUS_BUS=f"bus-{token_hex(4)}") as served, served.client() as http:
        headers = {**YAML, "Idempotency-Key": token_hex(8)}
        first, again = (http.put("/types", content=PRICES.encode(), headers=headers).json() for _ in range(2))
    assert (first["version"], first["added"]) == (1, ["price_alert"])
    assert again == first


def test_an_invalid_registry_is_not_published(http):
    before = http.get("/types").json()
    refused = http.put("/types", content="types:\n  x: 1\n", headers=YAML)
    assert (refused.status_code, refused.json()["line"], refused.json()["key"]) == (422, 2, "types.x")
    assert http.get("/types").json() == before


@pytest.mark.parametrize("value", ["!!bool 5", "!!int ''", "!!timestamp soon"])
def test_a_tag_that_does_not_fit_its_value_is_not_published(http, value: str):
    answer = http.put("/types", content=f"types: {{x: {{priority: {value}}}}}", headers=YAML)
    assert answer.status_code == 422, answer.text


def test_a_type_in_use_is_not_removed(http, bus: Bus, page):
    bus.page(page).add("risk_alert", "open")
    refused = http.put("/types", content=PRICES.encode(), headers=YAML)
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:scratchbus:problem:type-in-use")
    assert refused.json()["open"] > 0
