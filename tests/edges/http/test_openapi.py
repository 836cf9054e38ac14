"""The OpenAPI document: valid, complete and accurate."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from inspect import iscoroutinefunction, signature
from secrets import token_hex
from typing import Any

import httpx2
import pytest
from fastapi import Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import iter_route_contexts
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

from scratchbus import Bus, Event, Observation, document_of, errors
from scratchbus.domain.events import SCHEMA
from scratchbus.domain.recurrence import check_every
from scratchbus.eventlog.codec import decode_entry
from scratchbus.http import examples, patterns, problem_examples
from scratchbus.http.app import declare_app
from scratchbus.http.callers import LocalUser
from scratchbus.http.problems import json_bytes, slug_of, status_of
from scratchbus.http.server import Server
from scratchbus.projections.scratch_page import as_observation
from tests import golden
from tests.edges.http.conftest import Served, serving
from tests.edges.http.documented import Operation, operations, references, resolve
from tests.oracle.fold import fold as fold_log

PROBLEM = "application/problem+json"


@pytest.fixture(scope="module")
def document(served: Served) -> dict[str, Any]:
    with served.client() as http:
        found: dict[str, Any] = http.get("/openapi.json").json()
        return found


@pytest.fixture(scope="module")
def documented(document: dict[str, Any]) -> list[Operation]:
    return operations(document)


def all_of(dependant: Dependant) -> Iterator[Dependant]:
    """Yield a function that FastAPI calls, and those that it depends on."""
    yield dependant
    for each in dependant.dependencies:
        yield from all_of(each)


def test_endpoints_take_and_return_only_what_the_routes_can_serve():
    routes = iter_route_contexts(declare_app(Server(LocalUser("user"), {})).routes)
    endpoints = [each.dependant for each in routes if hasattr(each, "dependant")]
    for endpoint in endpoints:
        assert issubclass(signature(endpoint.call, eval_str=True).return_annotation, Response), endpoint.call
        for each in all_of(endpoint):
            assert iscoroutinefunction(each.call) or iscoroutinefunction(type(each.call).__call__), each.call
            unsupported = (
                *(each.body_params, each.cookie_params, each.response_param_name, each.background_tasks_param_name),
                *(each.security_scopes_param_name, each.http_connection_param_name, each.websocket_param_name),
            )
            assert not any(unsupported), each.call
    assert len(endpoints) > 100


def test_the_document_is_valid_openapi(document):
    assert document["openapi"].startswith("3.1")
    OPENAPI_31_VALIDATOR.validate(document)


def test_every_schema_is_a_json_schema(document):
    for schema in document["components"]["schemas"].values():
        Draft202012Validator({**schema, "components": document["components"]})  # raises if it is invalid


@pytest.mark.parametrize("version", range(1, SCHEMA + 1))
def test_what_older_versions_stored_matches_the_schema(document, version: int):
    named = document["components"]["schemas"] | {"Id": {"type": "string"}}  # the ids in these files are no ULIDs

    def check(name: str, value: object) -> None:
        schema = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": named}}
        Draft202012Validator(schema).validate(json.loads(json_bytes(document_of(value))))

    entries = golden.read(version)
    for entry in entries:
        event = decode_entry(entry, 0)
        assert isinstance(event, Event), event
        check("Event", event)
    for observation in fold_log(entries, 0).observations().values():
        check("Observation", as_observation(observation))


def test_problems_declare_the_members_that_clients_use(document):
    problem = document["components"]["schemas"]["Problem"]
    assert {"expected", "actual", "field", "known", "errors", "event_id", "signs_in_with"} <= set(problem["properties"])
    assert problem["required"] == ["type", "title", "status", "detail"]
    validator = Draft202012Validator(problem)
    for each in problem_examples.components().values():
        validator.validate(json.loads(json_bytes(each["value"])))


def test_examples_of_unknown_callers_have_the_members_of_real_answers(document, served):
    with served.client(headers={"User-Agent": "Mozilla/5.0"}) as browser:
        answer = browser.get("/me")
    assert answer.status_code == 401
    for slug in ("no-token", "wrong-token"):
        assert set(document["components"]["examples"][f"401-{slug}"]["value"]) == set(answer.json())


def test_answers_declare_reminder_triggers_and_todo_items(document):
    found = document["components"]["schemas"]
    trigger = {"$ref": "#/components/schemas/StoredTrigger"}
    for name in ("Observation", "AddedEvent"):
        assert trigger["$ref"] == found[name]["properties"]["remind_on"]["$ref"]
    assert found["TodoItem"]["required"] == ["id", "content", "status"]


def test_every_reference_has_a_target(document):
    for reference in references(document):
        assert resolve(document, reference), reference


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield all schemas of objects in a document."""
    if isinstance(schema, dict):
        if "object" in schema.get("type", ()) or isinstance(schema.get("properties"), dict):
            yield schema
        for name, inner in schema.items():
            if name not in ("example", "examples"):
                yield from objects(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from objects(inner)


def test_types_generated_from_a_schema_keep_its_fields(document):
    """Generators make an empty object of one without properties, and a union of one with alternatives beside them."""
    for schema in objects(document):
        assert {"properties", "additionalProperties", "allOf", "anyOf"} & {*schema}, schema
        assert not ({"anyOf", "oneOf"} & {*schema} and "properties" in schema), schema


def test_fields_that_are_left_out_are_not_null(document):
    schemas = document["components"]["schemas"]
    for name in ("Observation", "AddedEvent", "ClaimedEvent", "StatusChangedEvent"):
        optional = {*schemas[name]["properties"]} - {*schemas[name]["required"]} - {"displaced"}
        assert optional
        for field in optional:
            assert "null" not in str(schemas[name]["properties"][field]), f"{name}: {field}"


def test_displaced_may_be_null_in_the_answer_to_an_addition(document):
    shown = examples.OBSERVATION | {"displaced": None}
    schema = {"$ref": "#/components/schemas/AddedObservation", "components": document["components"]}
    assert Draft202012Validator(schema).is_valid(shown)
    assert not Draft202012Validator(schema).is_valid(examples.OBSERVATION)


def test_an_observation_has_one_end(document):
    schema = {"$ref": "#/components/schemas/NewObservation", "components": document["components"]}
    validator = Draft202012Validator(schema)
    assert validator.is_valid(examples.NEW_OBSERVATION | {"expires_at": None})
    assert not validator.is_valid(examples.NEW_OBSERVATION | {"expires_at": "2030-01-31T14:02:00Z"})


def test_every_operation_is_described(documented):
    for operation in documented:
        assert operation.definition.get("summary"), operation
        assert operation.definition.get("description"), operation
        assert operation.definition.get("tags"), operation
    assert len({operation.id for operation in documented}) == len(documented)


def test_every_link_leads_to_an_operation(document, documented):
    ids = {operation.id for operation in documented}
    linked = {
        link["operationId"]
        for operation in documented
        for _status, response in operation.responses()
        for link in response.get("links", {}).values()
    }
    assert {"get_observation", "update_observation", "claim_observation"} <= linked <= ids


def test_every_link_uses_parameters_of_its_operation(documented):
    for operation in documented:
        for _status, response in operation.responses():
            for name, link in response.get("links", {}).items():
                for value in link["parameters"].values():
                    part, _, parameter = value.partition("$request.path.")
                    assert part or f"{{{parameter}}}" in operation.path, f"{operation} {name}: {value}"


def test_every_request_has_a_valid_example(documented):
    for operation in documented:
        for media in operation.definition.get("requestBody", {}).get("content", {}).values():
            given = operation.examples(media)
            assert given, operation
            for example in given:
                operation.check(media["schema"], example)


def test_every_answer_has_a_valid_example(documented):
    for operation in documented:
        for status, response in operation.responses():
            for kind, media in response.get("content", {}).items():
                given = operation.examples(media)
                assert given, f"{operation} {status} {kind}"
                for example in given:
                    if media.get("schema") and kind.endswith("json"):
                        operation.check(media["schema"], example)


def test_every_operation_for_known_callers_declares_the_refusal_of_unknown_parameters(documented, http):
    undeclared = [each.path for each in documented if 422 not in dict(each.responses())]
    assert undeclared == ["/api/v1/logout", "/healthz", "/readyz"]
    assert http.get("/types", params={"colour": "red"}).status_code == 422


def test_example_problems_have_their_documented_status(documented):
    for operation in documented:
        for status, response in operation.responses():
            if status >= 400:
                kinds_of_text = ["text/plain", "text/markdown"] if "whoami" in operation.definition["tags"] else []
                assert {PROBLEM} <= {*response["content"]} <= {PROBLEM, *kinds_of_text}, f"{operation} {status}"
                for example in operation.examples(response["content"][PROBLEM]):
                    assert example["status"] == status


@pytest.mark.parametrize(("tag", "field"), [("observations", "ttl"), ("subscriptions", "retry_delay")])
def test_an_invalid_duration_is_shown_with_a_field_of_its_operation(documented, tag: str, field: str):
    shown = [
        example["detail"].partition(":")[0]
        for operation in documented
        if tag in operation.definition["tags"]
        for status, response in operation.responses()
        if status == 422
        for example in operation.examples(response["content"][PROBLEM])
        if example["type"].endswith(":invalid-ttl")
    ]
    assert {*shown} == {field}


NOT_FROM_REQUESTS = {
    errors.FileGone,  # in daemons
    errors.RulesError,
    errors.RelationsError,
    errors.SettingsError,
    errors.SettingsFileError,
    errors.InvalidExport,  # on the command line
    errors.NotEmpty,
    errors.ShardsMismatch,  # before a server starts
    errors.EngineMissing,
    errors.EngineNotStarted,
    errors.EngineMisconfigured,
    errors.EngineTooOld,
    errors.ViewClosed,  # in programs
    errors.BusClosed,
}
"""Errors that no request gets."""


def subclasses(error: type[errors.ScratchbusError]) -> Iterator[type[errors.ScratchbusError]]:
    """Yield all direct and indirect subclasses of an error."""
    for each in error.__subclasses__():
        yield each
        yield from subclasses(each)


def test_every_error_of_a_request_is_an_example(document):
    shown = {
        (example["value"]["type"].rpartition(":")[2], example["value"]["status"])
        for name, example in document["components"]["examples"].items()
        if name[:1].isdigit()
    }
    abstract = {errors.InvalidInput, errors.Conflict, errors.EngineError, errors.LogError, errors.ArchiveError}
    expected = {*subclasses(errors.ScratchbusError)} - NOT_FROM_REQUESTS - abstract
    wanted = {
        (slug_of(kind), status_of(kind.__new__(kind)))
        for kind in expected
        if kind.__module__.startswith("scratchbus.errors") and not kind.__name__.startswith("_")
    }
    assert {(slug, status) for slug, status in wanted if status != 500} - shown == set()


Prepare = Callable[[Bus, Observation, httpx2.Client], "dict[str, str] | None"]


def _claim(_bus: Bus, observation: Observation, http: httpx2.Client) -> None:
    http.post(f"/pages/{observation.page}/observations/{observation.id}/claim", json={"ttl": "1m"})


def _resolve(bus: Bus, observation: Observation, _http: httpx2.Client) -> None:
    bus.page(observation.page).resolve(observation.id)


def _link(bus: Bus, observation: Observation, _http: httpx2.Client) -> None:
    bus.page(observation.page).link(observation.id, "goal-17")


def _subscribe(bus: Bus, observation: Observation, _http: httpx2.Client) -> None:
    bus.declare_subscription(observation.page, pages=[observation.page])


def _pull(bus: Bus, observation: Observation, http: httpx2.Client) -> dict[str, str]:
    _subscribe(bus, observation, http)
    pulled = bus.pull(observation.page)
    return {
        examples.PULLED["token"]: pulled.token,
        examples.PULLED["deliveries"][0]["position"]: str(pulled.deliveries[0].position),
    }


def _begin_session(bus: Bus, observation: Observation, _http: httpx2.Client) -> dict[str, str]:
    bus.notes(observation.page).add("x")
    return {"2026-11-22T22:20:36Z": str(bus.position())}


def _add_note(bus: Bus, observation: Observation, _http: httpx2.Client) -> dict[str, str]:
    note = bus.notes(observation.page).add("The bank answers on Mondays only.", ["bank"]).note
    return {"note_1795386035607": note.id, "2026-11-22T22:20:36Z": str(note.position)}


def _write_todo(bus: Bus, observation: Observation, _http: httpx2.Client) -> None:
    bus.todo(observation.page).write([{"id": "1", "content": "Ask the bank"}])


def _begin_task(bus: Bus, observation: Observation, _http: httpx2.Client) -> dict[str, str]:
    return {"task_1795386035607@s1": bus.begin_task(observation.page, "Find the missing payment")}


def _assert_facts(bus: Bus, observation: Observation, _http: httpx2.Client) -> dict[str, str]:
    facts = bus.facts(observation.page)
    facts.same_as("NYC", "New York")
    return {"fact_1795386035607": facts.assert_fact("api", "runs_on", "Node 24", evidence=[observation.id]).id}


def _append_turn(bus: Bus, observation: Observation, _http: httpx2.Client) -> None:
    bus.turns(observation.page).append("user", "Why does the payment fail?")


def _write_file(bus: Bus, observation: Observation, _http: httpx2.Client) -> None:
    bus.files(observation.page).write("scripts/check.py", "print('checked')")


def _remember_preference(bus: Bus, observation: Observation, _http: httpx2.Client) -> None:
    bus.preferences(observation.page).remember("quotes in JS", "Double quotes.")


def _spawn_session(bus: Bus, observation: Observation, _http: httpx2.Client) -> None:
    bus.spawn_session(f"{observation.page}-parent", session=observation.page)


PREPARATIONS: dict[str, Prepare] = {
    "get_session": _begin_session,
    "get_note": _add_note,
    "update_note": _add_note,
    "delete_note": _add_note,
    "get_note_history": _add_note,
    "merge_todo": _write_todo,
    "end_task": _begin_task,
    "report_result": _spawn_session,
    "get_fact": _assert_facts,
    "retract_fact": _assert_facts,
    "part_entities": _assert_facts,
    "compact_turns": _append_turn,
    "read_file": _write_file,
    "delete_file": _write_file,
    "edit_preference": _remember_preference,
    "forget_preference": _remember_preference,
    "release_observation": _claim,
    "reopen_observation": _resolve,
    "clear_resolved": _resolve,
    "trace_action": _link,
    "get_subscription": _subscribe,
    "delete_subscription": _subscribe,
    "pull_events": _subscribe,
    "ack_events": _pull,
    "nack_event": _pull,
    "retry_dead_letters": _subscribe,
    "drop_dead_letters": _subscribe,
}
"""What the example of an operation needs before it is sent; each returns replacements for texts of the example."""


FOR_SUBAGENTS = {
    "read_scratchpad", "write_scratchpad", "get_scratchpad_history", "describe_update_scratchpad", "update_scratchpad",
}  # fmt: skip
"""Operations of subagents only: see `test_whoami.py` and `test_memories.py`."""


def test_every_request_example_is_accepted_and_answered_as_documented(documented, embedded_url, page):
    """On a bus of its own, since one example replaces the relations."""
    own = f"examples-{token_hex(4)}"
    with (
        serving(embedded_url, SCRATCHBUS_BUS=own) as served,
        served.client() as http,
        Bus.connect(embedded_url, bus=own, source="beside") as bus,
    ):
        _send_every_example(documented, served, http, bus, page)


def _send_every_example(documented: list[Operation], served: Served, http: httpx2.Client, bus: Bus, page: str) -> None:
    for number, operation in enumerate(documented):
        name = f"{page}-{number}"
        observation = bus.page(name).add("risk_alert", "The example's", tags=["fraud"])
        replacements = {"main": name, "router": name, examples.ID: observation.id}
        replacements |= {"2026-11-22T00:00:00Z": str(observation.position)}
        replacements |= {"ada/shop": name, "s1": name, "s2": f"{name}-2", "s3": f"{name}-3", '"3"': "*"}
        given = operation.request(
            replacements | (PREPARATIONS.get(operation.id, lambda *_: None)(bus, observation, http) or {})
        )
        if operation.id in FOR_SUBAGENTS or operation.id in ("log_in", "push_types"):
            continue  # no example has a valid secret, and types in use cannot be replaced
        answer = http.request(
            given.method.upper(),
            f"{served.url}{given.path}",
            params=given.params,
            headers=given.headers,
            json=given.body,
        )
        assert 200 <= answer.status_code < 300, f"{operation}: {answer.status_code} {answer.text}"
        response = dict(operation.responses())[answer.status_code]
        for header, described in response.get("headers", {}).items():
            assert header in answer.headers or not described.get("required"), f"{operation}: {header}"
        kind = answer.headers.get("content-type", "").partition(";")[0]
        assert (kind in response.get("content", {})) == bool(answer.content), f"{operation}: {kind}"
        if answer.content and kind == "application/json":
            operation.check(response["content"][kind]["schema"], answer.json())


@settings(max_examples=200, deadline=None)
@given(st.from_regex(patterns.EVERY, fullmatch=True))
def test_every_documented_interval_and_cron_line_is_accepted(text: str):
    assert check_every(text) == text
