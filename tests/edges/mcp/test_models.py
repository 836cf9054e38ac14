"""What models see: schemas, errors, notices, prompts and resources, and how many tokens they cost."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from mcp import MCPError
from mcp_types import PromptReference, ResourceTemplateReference

from scratchbus import Registry
from scratchbus.domain.registry_yaml import parse_registry
from scratchbus.domain.tokens import estimate_tokens
from scratchbus.mcp import notices
from scratchbus.mcp.tool_parameters import with_types
from tests.edges.mcp.conftest import Connect

REMINDED = {"type": "reminder", "content": "call back"}


def schemas_in(schema: Any) -> Iterator[Any]:
    """Yield a schema and all schemas in it."""
    yield schema
    if not isinstance(schema, dict):
        return
    for name in ("properties",):
        for each in schema.get(name, {}).values():
            yield from schemas_in(each)
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict | bool) and schema.get(name) is not False:
            yield from schemas_in(schema[name])
    for each in schema.get("anyOf", []):
        yield from schemas_in(each)


async def test_every_schema_has_a_type_that_its_default_matches(connect: Connect):
    known: dict[str, Any] = {
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "array": list,
        "object": dict,
    }
    async with connect(session="s1") as agent:
        tools = (await agent.client.list_tools()).tools
    for tool in tools:
        for schema in (*schemas_in(tool.input_schema), *schemas_in(tool.output_schema)):
            assert isinstance(schema, dict), (tool.name, schema)
            assert {"type", "anyOf", "const", "enum"} & set(schema), (tool.name, schema)
            if "default" in schema and "type" in schema:
                assert isinstance(schema["default"], known[schema["type"]]), (tool.name, schema)


async def test_the_basic_tools_and_instructions_cost_few_tokens(connect: Connect):
    """They have 7,799 characters."""
    async with connect("analyst", session="s1", tools=["basic"]) as agent:
        tools = (await agent.client.list_tools()).tools
        instructions = agent.client.instructions or ""
    shown = [{"name": x.name, "description": x.description, "input_schema": x.input_schema} for x in tools]
    text = json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
    assert len(text) + len(instructions) <= 7_800
    assert estimate_tokens(instructions) <= 450


async def test_an_answer_with_twenty_observations_is_short(connect: Connect):
    async with connect(tools=["basic"]) as agent:
        for number in range(20):
            await agent.do("add_observation", type="observation", content=f"The build fails on main ({number})")
        found = await agent.do("list_observations")
    assert set(found["observations"][0]) == {"id", "type", "content", "source", "age"}
    assert len(json.dumps(found, separators=(",", ":"))) <= 20 * 170


async def test_types_are_an_enum_with_descriptions(connect: Connect):
    async with connect(tools=["basic"]) as agent:
        (tool,) = [each for each in (await agent.client.list_tools()).tools if each.name == "add_observation"]
        registry: Registry = agent.bus.types
    type = tool.input_schema["properties"]["type"]
    assert type["enum"] == list(registry.types)
    assert "Security or safety concern" in type["description"]
    assert with_types({"x-types": False}, registry) == {"enum": list(registry.types)}


def test_a_type_without_a_description_is_listed_by_its_name():
    registry = parse_registry("types:\n  spill: {}\n  leak: {description: Water escapes.}\n", "types.yaml")
    described = {"enum": ["spill", "leak"], "description": "In this order: spill; Water escapes"}
    assert with_types({"x-types": True}, registry) == described


async def test_former_names_of_tools_still_work(connect: Connect):
    async with connect(session="s1", tools=["notes"]) as agent, connect(session="s1", tools=["basic"]) as basic:
        for number in range(12):
            await basic.do("scratch_note", content=f"{number}", tags=[f"t{number % 2}"])
        listed = await agent.do("list_notes")
        assert [each["content"] for each in listed["notes"]] == [f"{number}" for number in reversed(range(12))]
        assert listed["metadata"] == {"note_count": 12, "tag_filter": None}
        tagged = await basic.do("list_notes", tag="t1", limit=2)
        assert [each["content"] for each in tagged["notes"]] == ["11", "9"]
        assert tagged["metadata"] == {"note_count": 6, "tag_filter": "t1"}
        assert "scratch_note" not in await agent.fail("whoami")
        assert {"scratch_note", "list_notes"}.isdisjoint(x.name for x in (await agent.client.list_tools()).tools)


async def test_errors_name_only_tools_of_the_connection(connect: Connect):
    async with connect(session="s1", tools=["basic"]) as agent, connect(tools=["scratchpad"]) as other:
        await agent.do("update_scratchpad", content="first")
        assert "read it with get_context and pass its revision" in await agent.fail("update_scratchpad", content="x")
        revision = (await agent.do("get_context"))["revisions"]["scratchpad"]
        await agent.do("update_scratchpad", content="second", revision=revision)
        assert "read it with whoami" in await other.fail("update_scratchpad", content="x")
        assert "whoami: your connection does not have this tool; it has: get_context" in await agent.fail("whoami")


async def test_notes_and_observations_are_found_by_words(connect: Connect):
    async with connect(session="s1") as agent:
        for tool, more in (("add_note", {}), ("add_observation", {"type": "observation"})):
            await agent.do(tool, content="the build fails on main", **more)
            await agent.do(tool, content="lunch is at noon", **more)
        notes = (await agent.do("search_notes", query="build main"))["notes"]
        found = (await agent.do("list_observations", text="failing builds"))["observations"]
        part = (await agent.do("list_observations", text="unch is"))["observations"]
        pages = await agent.do("list_observations", text="the build noon", limit=1)
        rest = await agent.do("list_observations", text="the build noon", limit=1, cursor=pages["next_cursor"])
    assert [each["content"] for each in notes] == ["the build fails on main"]
    assert [each["content"] for each in found] == ["the build fails on main"]
    assert [each["content"] for each in part] == ["lunch is at noon"]
    assert pages["observations"] != rest["observations"]
    assert pages["more"] == 1
    assert "more" not in rest


async def test_every_specified_field_is_accepted_and_returned(connect: Connect):
    when = "2100-01-01T00:00:00Z"
    async with connect() as agent:
        added = await agent.do(
            "add_observation", type="observation", content="x", status="pending_review", expires_at=when,
            owner="user", confidence=0.5, context={"task_id": "T-1"}, tags=["a"], metadata={"k": 1},
        )  # fmt: skip
        later = "2101-01-01T00:00:00Z"
        await agent.do("update_observation", id=added["id"], expires_at=later)
        got = (await agent.do("get_observation", id=added["id"]))["observation"]
        bare = await agent.do("add_observation", type="observation", content="y", ttl="never")
        empty = (await agent.do("get_observation", id=bare["id"]))["observation"]
        missing = await agent.do("get_observation", id="01M7ZNQZHB25T9J0CB63CKMM6Q")
    fields = {
        "id", "type", "content", "source", "owner", "status", "confidence", "context", "tags", "created_at",
        "updated_at", "expires_at", "metadata",
    }  # fmt: skip
    assert fields <= set(got)
    assert fields <= set(empty)
    assert (got["status"], got["expires_at"][:4], got["metadata"]) == ("pending_review", "2101", {"k": 1})
    assert (empty["owner"], empty["expires_at"], empty["tags"]) == (None, None, [])
    assert missing["observation"] is None
    assert "list_observations" in missing["hint"]


async def test_a_ttl_is_accepted_in_seconds(connect: Connect):
    async with connect() as agent:
        added = await agent.do("add_observation", type="observation", content="x", ttl=60)
        assert added["expires_at"]
        assert (await agent.do("claim_observation", id=added["id"], ttl=60))["fence"]


async def test_a_reminder_needs_a_time_or_an_event(connect: Connect):
    async with connect() as agent:
        assert "remind_at: is missing" in await agent.fail("add_observation", **REMINDED)
        assert "remind_at: is missing" in await agent.fail("add_observations", observations=[REMINDED])
        for when in ("tomorrow 9:00", "2100-01-01T00:00:00", 5e30, True):
            error = await agent.fail("add_observation", **REMINDED, remind_at=when)
            assert error.endswith(": input should be a time with its zone, such as 2026-01-31T09:00:00Z")
        await agent.do("add_observation", **REMINDED, remind_at="2100-01-01T00:00:00Z")
        await agent.do("add_observation", **REMINDED, remind_on={"type": "risk_alert"})


async def test_an_unknown_todo_status_is_refused(connect: Connect):
    async with connect(session="s1") as agent:
        error = await agent.fail("todo", todos=[{"id": "1", "content": "x", "status": "doing"}])
        assert error.startswith("todos[0].status: 'doing' is not a status; use one of: pending")
        assert (await agent.do("todo"))["todos"] == []


async def test_errors_name_no_commands(connect: Connect):
    async with connect(session="s1") as agent:
        error = await agent.fail("add_observation", type="risk_alerts", content="x")
        assert "did you mean 'risk_alert'" in error
        nowhere = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
        errors = [
            error,
            await agent.fail("add_observation", type="observation", content="x", evidence=[nowhere]),
            await agent.fail("get_observation", id="x"),
            await agent.fail("resolve_observation", id=nowhere),
            await agent.fail("trace", action="nothing"),
            await agent.fail("update_note", id="x", content="y"),
            await agent.fail("delete_note", id="note_1"),
        ]
        tools = {tool.name for tool in (await agent.client.list_tools()).tools}
    quoted = set(re.findall("`([^`]+)`", " ".join(errors)))
    assert quoted <= {*tools, "links"}, quoted


async def test_several_observations_are_added_all_or_nothing(connect: Connect):
    async with connect() as agent:
        items = [{"type": "observation", "content": f"{n}", "tags": ["b"]} for n in range(3)]
        ids = (await agent.do("add_observations", observations=items))["ids"]
        assert len(set(ids)) == 3
        assert "unknown observation type" in await agent.fail(
            "add_observations", observations=[*items, {"type": "nonsense", "content": "x"}]
        )
        assert len((await agent.do("list_observations"))["observations"]) == 3


async def test_claim_next_claims_by_priority(connect: Connect):
    async with connect() as agent:
        await agent.do("add_observation", type="observation", content="later")
        alert = await agent.do("add_observation", type="risk_alert", content="now")
        first = await agent.do("claim_next")
        assert first["observation"]["id"] == alert["id"] == first["claim"]["id"]
        await agent.do("resolve_observation", id=alert["id"], fence=first["claim"]["fence"], action="commit-1")
        assert await agent.do("claim_next", types=["risk_alert"]) == {"observation": None}


async def test_history_traces_past_pages_and_refutations_are_available(connect: Connect):
    async with connect() as agent:
        seen = await agent.do("add_observation", type="observation", content="smoke")
        alert = await agent.do("add_observation", type="risk_alert", content="fire", evidence=[seen["id"]])
        then = (await agent.do("changes_since"))["next_cursor"]
        await agent.do("resolve_observation", id=alert["id"], action="ticket-7")
        events = (await agent.do("history", id=alert["id"]))["events"]
        traced = await agent.do("trace", action="ticket-7")
        past = await agent.do("as_of", when=then)
        await agent.do("refute_observation", id=seen["id"], reason="it was steam")
        gone = (await agent.do("get_observation", id=seen["id"]))["observation"]
    assert [each["kind"] for each in events] == ["added", "linked", "status_changed"]
    assert [(each["depth"], each["id"]) for each in traced["tree"]] == [(0, alert["id"]), (1, seen["id"])]
    assert traced["motives"][0]["by"] == "analyst"
    assert {each["id"] for each in past["observations"]} == {seen["id"], alert["id"]}
    assert gone["status"] == "archived"


async def test_history_cuts_a_long_reason(connect: Connect):
    async with connect() as agent:
        seen = await agent.do("add_observation", type="observation", content="smoke")
        await agent.do("resolve_observation", id=seen["id"], reason="x" * 1_000)
        last = (await agent.do("history", id=seen["id"]))["events"][-1]
    assert last["reason"] == "resolved: " + "x" * 189 + "…"


async def test_history_says_why_a_status_changed_and_which_action_was_linked(connect: Connect):
    async with connect() as agent:
        seen = await agent.do("add_observation", type="observation", content="smoke")
        start = (await agent.do("changes_since"))["next_cursor"]
        await agent.do("resolve_observation", id=seen["id"], action="ticket-7", reason="put out")
        await agent.do("update_observation", id=seen["id"], status="active")
        await agent.do("refute_observation", id=seen["id"], reason="it was steam")
        events = (await agent.do("history", id=seen["id"]))["events"]
        changes = (await agent.do("changes_since", cursor=start))["changes"]
    assert [each.get("action") for each in events] == [None, "ticket-7", None, None, None]
    assert [each.get("reason") for each in events] == [
        None, None, "resolved: put out", "reopened", "refuted: it was steam"
    ]  # fmt: skip
    assert [(each.get("action"), each.get("reason")) for each in changes] == [
        (each.get("action"), each.get("reason")) for each in events[1:]
    ]


async def test_a_spawned_session_is_entered_and_ended(connect: Connect):
    async with connect(session="s1") as agent, connect("other", session="s2") as other:
        await agent.do("write_notepad", content="the plan")
        child = (await agent.do("fork_session"))["session"]
        await agent.do("add_note", content="of the parent")
        assert await agent.do("enter_session", session=child) == {"session": child}
        assert (await agent.do("whoami"))["session"] == child
        assert (await agent.do("read_notepad"))["content"] == "the plan"
        assert (await agent.do("search_notes"))["notes"] == []
        reported = await agent.do("report_result", result="all is well")
        ended = await agent.do("end_session", event_id="e-1")
        assert ended == {"ended": child, "session": "s1"} == await agent.do("end_session", event_id="e-1")
        assert [each["content"] for each in (await agent.do("search_notes"))["notes"]] == ["of the parent"]
        assert (await agent.do("get_observation", id=reported["id"]))["observation"]["content"] == "all is well"
        assert (await agent.do("list_observations", tags=["session_result"]))["observations"]
        assert "has ended" in await agent.fail("enter_session", session=child)
        assert "was not started from your session" in await other.fail("enter_session", session=child)


async def test_a_session_that_is_entered_again_is_ended_once(connect: Connect):
    async with connect(session="s1") as agent:
        child = (await agent.do("spawn_session"))["session"]
        for _ in range(2):  # the answer to the first call may have been lost
            assert await agent.do("enter_session", session=child) == {"session": child}
        assert await agent.do("end_session") == {"ended": child, "session": "s1"}


async def test_a_connection_cannot_end_its_own_session(connect: Connect):
    async with connect(session="s1") as agent:
        error = await agent.fail("end_session", event_id="e-1")
        assert "only a session that you entered with enter_session" in error
        assert await agent.fail("end_session", event_id="e-1") == error
        await agent.do("add_note", content="still there")


async def test_notices_ask_to_save_work_and_update_the_scratchpad(connect: Connect, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(notices, "UNSAVED_LIMIT", 1_000)
    async with connect(session="s1", tools=["basic"]) as agent:
        await agent.do("add_observation", type="observation", content="x" * 900)
        notices_given = [(await agent.do("list_observations")).get("notice") for _ in range(3)]
        (notice,) = filter(None, notices_given)  # once per occasion
        assert "review your session notepad" in notice
        await agent.do("update_notepad", operation="append", content="what I found")
        assert "notice" not in await agent.do("list_observations")
        doing = await agent.do("todo", todos=[{"id": "1", "content": "look", "status": "in_progress"}])
        assert "scratchpad" not in doing.get("notice", "")
        done = await agent.do("todo", todos=[{"id": "1", "status": "completed"}], merge=True)
        assert "update your scratchpad" in done["notice"]


@pytest.mark.parametrize(
    ("tools", "offered"),
    [
        (["notes"], ["end_of_run"]),
        (["observations"], ["handover", "end_of_run"]),
        (["notepad", "todo"], ["before_compaction", "end_of_run"]),
        (["context"], ["begin_session", "start", "end_of_run"]),
        (["basic"], ["begin_session", "start", "handover", "before_compaction", "end_of_run"]),
    ],
)
async def test_prompts_show_nothing_that_the_tools_do_not(connect: Connect, tools: list[str], offered: list[str]):
    """A token for notes once read the page, the notepad and the scratchpad by a prompt."""
    async with connect(session="s1", tools=tools) as agent:
        assert [each.name for each in (await agent.client.list_prompts()).prompts] == offered
        for name in {"begin_session", "start"} - set(offered):
            with pytest.raises(MCPError, match=f"'{name}': unknown prompt; available: "):
                await agent.client.get_prompt(name, {"task": "read it all"})


async def test_prompts_cover_the_stages_of_a_session(connect: Connect):
    async with connect(session="s1") as agent:
        await agent.do("write_notepad", content="the plan")
        names = [each.name for each in (await agent.client.list_prompts()).prompts]

        async def prompt(name: str, **given: str) -> str:
            (message,) = (await agent.client.get_prompt(name, given)).messages
            return message.content.text

        assert names == ["begin_session", "start", "handover", "before_compaction", "end_of_run"]
        assert "the plan" in await prompt("start", task="find the leak")
        begun = await prompt("begin_session")
        assert "the plan" in begun
        assert "where it stands" in begun
        assert "make bob its owner" in await prompt("handover", to="bob")
        assert "will be compacted after your next response" in await prompt("before_compaction")
        asked = await prompt("end_of_run", task="find the leak", outcome="error", summary="no leak")
        assert "**Outcome**: error" in asked
        assert "Steps taken" not in asked
        assert "**Steps taken**: 7\n" in await prompt("end_of_run", task="find the leak", steps="7")
        with pytest.raises(MCPError, match="steps: 'x' is not a whole number"):
            await agent.client.get_prompt("end_of_run", {"task": "find the leak", "steps": "x"})
        with pytest.raises(MCPError, match="is not a whole number"):
            await agent.client.get_prompt("end_of_run", {"task": "find the leak", "steps": "7" * 5_000})
        assert '{"scratchpad": null}' in asked
        with pytest.raises(MCPError, match="task is missing"):
            await agent.client.get_prompt("start", {})
        with pytest.raises(MCPError, match="available: begin_session, start"):
            await agent.client.get_prompt("stop", {})


async def test_arguments_are_completed(connect: Connect):
    async with connect(session="s1") as agent:
        id = (await agent.do("add_observation", type="observation", content="x"))["id"]

        async def values(ref: Any, name: str, typed: str) -> list[str]:
            return (await agent.client.complete(ref, {"name": name, "value": typed})).completion.values

        template = ResourceTemplateReference(uri="observation://{id}")
        assert await values(template, "id", id[:4]) == [id]
        assert await values(template, "id", id[-6:].lower()) == [id]
        assert await values(template, "type", "risk") == ["risk_alert"]
        assert await values(PromptReference(name="end_of_run"), "outcome", "err") == ["error"]
        assert await values(PromptReference(name="end_of_run"), "summary", "") == []


async def test_the_memories_of_a_session_are_resources(connect: Connect):
    async with connect(session="s1") as agent:
        await agent.do("write_notepad", content="the plan")
        await agent.do("add_note", content="a finding")
        await agent.do("todo", todos=[{"id": "1", "content": "look"}])
        listed = {each.name: each.uri for each in (await agent.client.list_resources()).resources}

        async def read(name: str) -> str:
            (content,) = (await agent.client.read_resource(listed[name])).contents
            return content.text

        assert await read("notepad") == "the plan"
        assert "a finding" in await read("notes")
        assert "look" in await read("todo")
        assert "the plan" in await read("context")
        with pytest.raises(MCPError, match="your connection is for session s1"):
            await agent.client.read_resource("notepad://s2")
