"""The tools for observations."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from scratchbus import document_of
from scratchbus.commands import read
from scratchbus.engine.embedded import server
from scratchbus.engine.steps import Step, ask
from scratchbus.errors import EngineUnreachable
from scratchbus.mcp.groups import GROUPS
from scratchbus.mcp.identity import Identity
from scratchbus.mcp.sdk_server import server_of
from scratchbus.mcp.workspace import Workspace
from scratchbus.readmodel.catch_up import catch_up
from scratchbus.telemetry.counters import counts
from tests.edges.mcp.conftest import Agent, Connect, text_of, tool_names


async def test_every_tool_has_a_title_a_description_and_all_hints(connect: Connect):
    async with connect(session="s1", knowledge=["ada"]) as agent:
        tools = (await agent.client.list_tools()).tools
    assert [tool.name for tool in tools] == [name for group in GROUPS for name in tool_names(group)]
    for tool in tools:
        assert tool.title
        assert tool.description
        hints = tool.annotations
        assert None not in (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint)
        assert hints.open_world_hint is False
        assert not (hints.read_only_hint and hints.destructive_hint)
        assert tool.input_schema["additionalProperties"] is False
        assert tool.output_schema["type"] == "object"
        assert "$ref" not in json.dumps(tool.output_schema)


async def test_times_have_the_format_of_documents(connect: Connect):
    async with connect() as agent:
        id = (await agent.do("add_observation", type="observation", content="x"))["id"]
        shown = (await agent.do("get_observation", id=id))["observation"]
        found = document_of(await agent.bus.page("main").get(id))
    assert shown["created_at"] == found["created_at"]


async def test_an_added_observation_has_the_agent_as_its_source(connect: Connect):
    async with connect("analyst") as agent:
        added = await agent.do("add_observation", type="observation", content="The build is red", tags=["ci"])
        found = await agent.bus.page("main").get(added["id"])
        (event,) = await agent.bus.page("main").history(added["id"])
    assert (added["source"], added["status"], added["tags"]) == ("analyst", "active", ["ci"])
    assert (found.source, event.by) == ("analyst", "analyst")


@pytest.mark.parametrize("name", ["source", "by", "agent", "page", "session", "kind", "instance"])
async def test_a_forged_identity_is_refused(connect: Connect, name: str):
    async with connect() as agent:
        error = await agent.fail("add_observation", type="observation", content="x", **{name: "boss"})
        assert "your connection sets this" in error
        assert await agent.do("list_observations") == {"observations": []}


async def test_an_unknown_argument_gets_the_known_ones(connect: Connect):
    async with connect() as agent:
        assert "takes: limit, cursor" in await agent.fail("get_active_observations", count=3)


async def test_invalid_arguments_get_one_line_with_every_problem(connect: Connect):
    async with connect() as agent:
        error = await agent.fail("add_observation", confidence="very")
    assert error.startswith("type: field required; content: field required; confidence: 'very': ")


async def test_a_null_argument_counts_as_missing(connect: Connect):
    async with connect(session="s1") as agent:
        assert await agent.do("get_active_observations", limit=None, cursor=None) == {"observations": []}
        assert (await agent.do("search_notes", query=None, tags=None))["metadata"]["query"] == ""
        assert await agent.fail("write_notepad", content=None) == "content: field required"


async def test_an_error_of_the_bus_is_one_line_with_advice(connect: Connect):
    async with connect() as agent:
        error = await agent.fail("add_observation", type="risk_alerts", content="x")
        assert "did you mean 'risk_alert'" in error
        assert "ULIDs" in await agent.fail("get_observation", id="nonsense")
        error = await agent.fail("resolve_observation", id="01M7ZNQZHB25T9J0CB63CKMM6Q")
        assert "list" in error
        assert "`" not in error  # a model has no command line


async def test_an_internal_error_shows_the_client_no_details(connect: Connect, monkeypatch: pytest.MonkeyPatch):
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the secret")

    async with connect() as agent:
        with monkeypatch.context() as patch:
            patch.setattr("scratchbus.page_async.AsyncPage.add", broken)
            error = await agent.fail("add_observation", type="observation", content="x")
        assert "secret" not in error
        assert "bug in the server" in error
        await agent.do("add_observation", type="observation", content="x")


async def test_an_unknown_tool_gets_the_known_ones(connect: Connect):
    async with connect(tools=["observations"]) as agent:
        assert "add_observation" in await agent.fail("remember")


async def test_the_text_of_an_answer_equals_its_structured_content(connect: Connect):
    async with connect() as agent:
        result = await agent.client.call_tool("add_observation", {"type": "observation", "content": "Zürich ☃"})
    assert json.loads(text_of(result)) == result.structured_content


async def test_lists_shorten_long_content(connect: Connect):
    content = "long " * 1000
    async with connect() as agent:
        added = await agent.do("add_observation", type="observation", content=content)
        (listed,) = (await agent.do("list_observations"))["observations"]
        got = (await agent.do("get_observation", id=added["id"]))["observation"]
    assert len(listed["content"]) == 500
    assert listed["content"].endswith("…")
    assert listed["full_length"] == 5000
    assert got["content"] == content
    assert "full_length" not in got


async def test_pages_of_a_list_show_every_observation_once(connect: Connect):
    async with connect() as agent:
        ids = [(await agent.do("add_observation", type="observation", content=f"{n}"))["id"] for n in range(7)]
        answer = await agent.do("list_observations", limit=3)
        seen = [each["id"] for each in answer["observations"]]
        while "next_cursor" in answer:
            answer = await agent.do("list_observations", limit=3, cursor=answer["next_cursor"])
            seen += [each["id"] for each in answer["observations"]]
    assert seen == ids[::-1]


async def test_pages_of_active_observations_continue_after_changes(connect: Connect):
    async with connect() as agent:
        for type in ("observation", "risk_alert", "reminder", "risk_alert", "observation"):
            when = {"remind_at": "2100-01-01T00:00:00Z"} if type == "reminder" else {}
            await agent.do("add_observation", type=type, content="x", **when)
        every = [each["id"] for each in (await agent.do("get_active_observations"))["observations"]]
        first = await agent.do("get_active_observations", limit=2)
        await agent.do("resolve_observation", id=every[1])
        await agent.do("add_observation", type="risk_alert", content="new, and above")
        second = await agent.do("get_active_observations", limit=3, cursor=first["next_cursor"])
    assert [each["id"] for each in first["observations"]] == every[:2]
    assert [each["id"] for each in second["observations"]] == every[2:]
    assert "next_cursor" not in second


@pytest.mark.parametrize("tool", ["get_active_observations", "list_observations"])
async def test_an_invalid_cursor_is_refused(connect: Connect, tool: str):
    async with connect() as agent:
        assert "next_cursor" in await agent.fail(tool, cursor="over there")


async def test_list_filters_by_type_tags_text_and_owner(connect: Connect):
    async with connect() as agent:
        wanted = await agent.do(
            "add_observation", type="risk_alert", content="Fraud ring", tags=["a", "b"], owner="eve"
        )
        await agent.do("add_observation", type="risk_alert", content="Fraud ring", tags=["a"], owner="eve")
        await agent.do("add_observation", type="observation", content="Fraud ring", tags=["a", "b"])
        found = await agent.do("list_observations", type="risk_alert", tags=["a", "b"], text="RING", owner="eve")
    assert [each["id"] for each in found["observations"]] == [wanted["id"]]


async def test_list_filters_by_context_and_time(connect: Connect):
    async with connect() as agent:
        old, wanted = [
            (await agent.do("add_observation", type="observation", content="x", context={"task": task}))["id"]
            for task in ("t1", "t2")
        ]
        found = await agent.do("list_observations", context={"task": "t2"})
        assert [each["id"] for each in found["observations"]] == [wanted]
        every = await agent.do("list_observations", since="2020-01-01T00:00:00+01:00")
        assert [each["id"] for each in every["observations"]] == [wanted, old]
        assert await agent.do("list_observations", since="9000-01-01T00:00:00Z") == {"observations": []}
        assert "since" in await agent.fail("list_observations", since="2020-01-01T00:00:00")


async def test_times_adds_several_occurrences_at_once(connect: Connect):
    async with connect() as agent:
        seen = {"type": "observation", "content": "x", "dedupe_key": "k"}
        assert (await agent.do("add_observation", **seen, times=3))["occurrences"] == 3
        assert (await agent.do("add_observation", **seen, times=2))["occurrences"] == 5
        assert "times" in await agent.fail("add_observation", **seen, times=0)


async def test_a_claim_blocks_other_agents(connect: Connect):
    async with connect("analyst") as analyst, connect("reviewer") as reviewer:
        id = (await analyst.do("add_observation", type="observation", content="x"))["id"]
        claim = await reviewer.do("claim_observation", id=id, ttl="10m")
        assert "reviewer" in await analyst.fail("resolve_observation", id=id)
        assert (await analyst.do("get_observation", id=id))["observation"]["claimed_by"] == "reviewer"
        done = await reviewer.do("resolve_observation", id=id, fence=claim["fence"], reason="fixed")
    assert done["status"] == "resolved"


async def test_an_update_can_release_the_claim(connect: Connect):
    async with connect("analyst") as analyst, connect("reviewer") as reviewer:
        id = (await analyst.do("add_observation", type="observation", content="x"))["id"]
        mine = {"id": id, "release": True}
        for change in ({"status": "pending_review"}, {}):
            claim = await reviewer.do("claim_observation", id=id)
            given_back = await reviewer.do("update_observation", **mine, **change, fence=claim["fence"])
            assert "claimed_by" not in given_back
            await analyst.do("update_observation", id=id, content="y")
        assert "claim" in await reviewer.fail("update_observation", **mine)
    assert given_back["status"] == "pending_review"


async def test_a_change_of_the_status_keeps_its_reason(connect: Connect):
    async with connect() as agent:
        id = (await agent.do("add_observation", type="observation", content="x"))["id"]
        await agent.do("update_observation", id=id, status="pending_review", reason="one source")
        assert (await agent.do("get_observation", id=id))["observation"]["reason"] == "one source"
        assert "give the new status too" in await agent.fail("update_observation", id=id, reason="one source")


async def test_a_refused_release_changes_nothing(connect: Connect):
    async with connect() as agent:
        id = (await agent.do("add_observation", type="observation", content="x"))["id"]
        error = await agent.fail("update_observation", id=id, content="y", release=True)
        assert (f"{id} is not claimed" in error, "nothing was written" in error) == (True, True)
        assert (await agent.do("get_observation", id=id))["observation"]["content"] == "x"
        assert (await agent.fail("update_observation", id=id, release=True)).startswith(id)


async def test_an_update_that_releases_is_one_write(connect: Connect):
    async with connect() as agent:
        id = (await agent.do("add_observation", type="observation", content="x"))["id"]
        fence = (await agent.do("claim_observation", id=id))["fence"]
        call = {"id": id, "content": "y", "fence": fence, "event_id": "e" * 200}
        done = await agent.do("update_observation", **call, release=True)
        assert (done["content"], "claim" in done) == ("y", False)
        assert await agent.do("update_observation", **call, release=True) == done
        assert "other arguments" in await agent.fail("update_observation", **call)


async def test_a_refused_resolution_links_no_action(connect: Connect):
    async with connect("analyst") as agent, connect("reviewer") as other:
        id = (await agent.do("add_observation", type="observation", content="x"))["id"]
        await other.do("claim_observation", id=id)
        assert "reviewer" in await agent.fail("resolve_observation", id=id, action="goal-17")
        assert "links" not in (await agent.do("get_observation", id=id))["observation"]


@pytest.mark.parametrize(
    ("first", "second"),
    [({"action": "act-2"}, {"action": "act-3"}), ({}, {"action": "act-2"}), ({"action": "act-2"}, {})],
    ids=["another action", "an action", "no action"],
)
async def test_a_retry_of_a_resolution_with_another_action_is_refused(connect: Connect, first: Any, second: Any):
    async with connect() as agent:
        id = (await agent.do("add_observation", type="observation", content="x"))["id"]
        done = await agent.do("resolve_observation", id=id, event_id="E", **first)
        assert "other arguments" in await agent.fail("resolve_observation", id=id, event_id="E", **second)
        assert await agent.do("resolve_observation", id=id, event_id="E", **first) == done


async def test_an_update_sends_an_observation_to_review(connect: Connect):
    async with connect() as agent:
        id = (await agent.do("add_observation", type="observation", content="x"))["id"]
        sent = await agent.do("update_observation", id=id, status="pending_review", content="y", expected_version=1)
        assert (sent["status"], sent["content"]) == ("pending_review", "y")
        assert "version" in await agent.fail("update_observation", id=id, content="z", expected_version=1)
        assert "nothing to update" in await agent.fail("update_observation", id=id)


async def test_refused_resolve_with_an_action_links_nothing(connect: Connect):
    async with connect() as agent:
        id = (await agent.do("add_observation", type="observation", content="x"))["id"]
        first = await agent.do("resolve_observation", id=id, action="commit-1", event_id="done")
        assert first["links"] == ["commit-1"]
        assert "is resolved" in await agent.fail("resolve_observation", id=id, action="commit-2")
        assert (await agent.do("get_observation", id=id))["observation"]["links"] == ["commit-1"]
        assert await agent.do("resolve_observation", id=id, action="commit-1", event_id="done") == first


async def test_observations_are_linked_cleared_and_archived(connect: Connect):
    async with connect() as agent:
        first, second = [
            (await agent.do("add_observation", type="observation", content=f"{n}"))["id"] for n in range(2)
        ]
        assert (await agent.do("link_observation", id=first, action="goal-17"))["links"] == ["goal-17"]
        await agent.do("resolve_observation", id=first)
        assert second in await agent.fail("clear_resolved", ids=[first, second])
        assert len((await agent.do("list_observations"))["observations"]) == 2
        assert await agent.do("clear_resolved", ids=[first]) == {"cleared": [first]}
        assert (await agent.do("archive_observation", id=second, reason="old"))["status"] == "archived"


async def test_a_retry_with_an_event_id_adds_nothing(connect: Connect):
    async with connect() as agent:
        new = {"type": "observation", "content": "x", "event_id": "mine-1"}
        assert await agent.do("add_observation", **new) == await agent.do("add_observation", **new)
        assert "mine-1" in await agent.fail("add_observation", **{**new, "content": "y"})


async def test_changes_since_returns_the_changes_after_a_cursor(connect: Connect):
    async with connect("analyst") as analyst, connect("reviewer") as reviewer:
        start = await analyst.do("changes_since")
        assert start["changes"] == []
        id = (await reviewer.do("add_observation", type="observation", content="x"))["id"]
        await analyst.do("get_context")  # reading is not a change
        await reviewer.do("resolve_observation", id=id)
        first = await analyst.do("changes_since", cursor=start["next_cursor"], limit=1)
        rest = await analyst.do("changes_since", cursor=first["next_cursor"])
        nothing = await analyst.do("changes_since", cursor=rest["next_cursor"])
    assert [(each["kind"], each["id"], each["by"]) for each in first["changes"]] == [("added", id, "reviewer")]
    assert [(each["type"], each["content"]) for each in first["changes"]] == [("observation", "x")]
    assert first["has_more"] is True
    assert [(each["kind"], each["status"]) for each in rest["changes"]] == [("status_changed", "resolved")]
    assert nothing == {"changes": [], "next_cursor": rest["next_cursor"], "has_more": False}


async def test_the_cursor_of_changes_since_passes_the_events_of_other_pages(connect: Connect):
    """Else each call reads all of them again, until they have left the log and the cursor is lost."""
    async with connect() as agent, connect(page="elsewhere") as other:
        start = (await agent.do("changes_since"))["next_cursor"]
        await other.do("add_observation", type="observation", content="x")
        position = (await other.do("changes_since", cursor=start))["changes"][0]["position"]
        quiet = await agent.do("changes_since", cursor=start)
        assert quiet == {"changes": [], "next_cursor": position, "has_more": False}
        id = (await agent.do("add_observation", type="observation", content="y"))["id"]
        assert [each["id"] for each in (await agent.do("changes_since", cursor=position))["changes"]] == [id]


async def test_changes_since_a_trimmed_position_says_how_to_go_on(connect: Connect):
    async with connect() as agent:
        await agent.do("add_observation", type="observation", content="x")
        cursor = (await agent.do("changes_since"))["next_cursor"]
        for _ in range(3):
            await agent.do("add_observation", type="observation", content="x")
        assert agent.bus is not None
        await agent.bus.converse(catch_up(agent.bus.core.log, 0))
        await agent.bus.converse(ask(0, "XTRIM", agent.bus.core.log.keys(0).log, "MAXLEN", 1))
        refusal = await agent.fail("changes_since", cursor=cursor)
        assert "trimmed past" in refusal
        assert "for later changes, changes_since without a cursor" in refusal


@pytest.mark.parametrize("cursor", ["1-1", "9999999999999-9"])
async def test_changes_since_a_position_that_the_log_does_not_have_says_how_to_go_on(connect: Connect, cursor: str):
    async with connect() as agent:
        await agent.do("add_observation", type="observation", content="x")
        refusal = await agent.fail("changes_since", cursor=cursor)
        assert cursor in refusal
        assert "for later changes, changes_since without a cursor" in refusal


async def test_changes_since_includes_the_memories_of_a_session_page(connect: Connect):
    async with connect(page="session:s1", session="s1") as agent:
        start = await agent.do("changes_since")
        note = (await agent.do("add_note", content="x"))["note"]["id"]
        id = (await agent.do("add_observation", type="observation", content="y"))["id"]
        news = await agent.do("changes_since", cursor=start["next_cursor"])
        assert [(each["kind"], each["id"]) for each in news["changes"]] == [("note_added", note), ("added", id)]


async def test_an_addition_lists_the_displaced_observations(memory_url: str):
    settings: dict[str, Any] = {"url": memory_url, "max_observations": 3}
    async with (
        Workspace.opened(Identity.of("analyst", tools=["all"]), **settings) as workspace,
        Client(server_of(workspace)) as client,
    ):
        agent = Agent(client, workspace.bus)
        old = [
            (await agent.do("add_observation", type="observation", content=f"{number}", dedupe_key=f"{number}"))["id"]
            for number in range(3)
        ]
        again = await agent.do("add_observation", type="observation", content="2", dedupe_key="2")
        assert (again["id"], "displaced" in again) == (old[2], False)
        new = await agent.do("add_observation", type="risk_alert", content="new")
        assert new["displaced"] == [old[0]]
        items = [{"type": "risk_alert", "content": f"{number}"} for number in range(2)]
        assert (await agent.do("add_observations", observations=items))["displaced"] == old[1:]
        rest = await agent.do("add_observations", observations=[*items, items[0]])
        assert len(rest["displaced"]) == 3


async def test_an_answer_says_that_what_made_room_is_not_known(memory_url: str, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> Step[None]:
        yield from ()
        raise EngineUnreachable("gone")

    async with (
        Workspace.opened(Identity.of("analyst", tools=["all"]), url=memory_url) as workspace,
        Client(server_of(workspace)) as client,
    ):
        agent = Agent(client, workspace.bus)
        monkeypatch.setattr(read, "list_displaced", fail)
        item = {"type": "observation", "content": "x"}
        assert (await agent.do("add_observation", **item))["displaced"] is None
        assert (await agent.do("add_observations", observations=[item]))["displaced"] is None


async def test_reads_are_recorded_if_the_settings_say_so(memory_url: str):
    async with (
        Workspace.opened(Identity.of("analyst", tools=["all"]), url=memory_url, log_reads=1) as workspace,
        Client(server_of(workspace)) as client,
    ):
        agent = Agent(client, workspace.bus)
        ids = [(await agent.do("add_observation", type="observation", content=f"fire {n}"))["id"] for n in range(2)]

        async def read(tool: str, **given: Any) -> list[int]:
            await agent.do(tool, **given)
            seen = [(await workspace.page.exposure(id)).seen for id in ids]
            return [each[0].times if each else 0 for each in seen]

        assert await read("list_observations", limit=1) == [0, 1]  # only what was shown
        assert await read("list_observations", text="fire") == [1, 2]
        assert await read("get_active_observations") == [2, 3]
        assert await read("get_observation", id=ids[0]) == [3, 3]
        for uri in ("scratch://main/active", f"observation://{ids[0]}"):
            await client.read_resource(uri)
        assert await read("get_observation", id=ids[1]) == [5, 5]


async def test_list_filters_by_metadata_and_confidence(connect: Connect):
    async with connect() as agent:
        sure = await agent.do("add_observation", type="observation", content="a", metadata={"job": 7}, confidence=0.9)
        await agent.do("add_observation", type="observation", content="b", metadata={"job": 8}, confidence=0.5)
        for narrow in ({"metadata": {"job": 7}}, {"confidence": 0.8}):
            (only,) = (await agent.do("list_observations", **narrow))["observations"]
            assert only["id"] == sure["id"]


async def test_past_pages_and_histories_are_paged(connect: Connect):
    async with connect() as agent:
        ids = [(await agent.do("add_observation", type="observation", content=f"{n}"))["id"] for n in range(3)]
        for number in range(4):
            await agent.do("update_observation", id=ids[0], content=f"now {number}")
        then = (await agent.do("changes_since"))["next_cursor"]
        first = await agent.do("as_of", when=then, limit=2)
        assert [each["id"] for each in first["observations"]] == [ids[2], ids[1]]
        assert first["more"] == 1
        rest = await agent.do("as_of", when=then, limit=2, cursor=first["next_cursor"])
        assert [each["id"] for each in rest["observations"]] == [ids[0]]
        assert "more" not in rest
        events = await agent.do("history", id=ids[0], limit=3)
        assert (len(events["events"]), events["more"]) == (3, 2)
        rest = await agent.do("history", id=ids[0], cursor=events["next_cursor"])
        assert [each["kind"] for each in rest["events"]] == ["updated", "updated"]
        assert "more" not in rest


async def test_an_invalid_item_of_several_is_named(connect: Connect):
    async with connect() as agent:
        good = {"type": "observation", "content": "fine"}
        for bad in (
            {"type": "reminder", "content": "x"},
            {"type": "no_such", "content": "x"},
            {"type": "observation", "content": "x", "ttl": "soon"},
            {"type": "observation"},
        ):
            error = await agent.fail("add_observations", observations=[good, bad])
            assert re.match(r"observations[.\[]1\b|item 2 of 2: ", error), error


async def test_an_error_gives_a_model_no_advice_on_connections(connect: Connect):
    async with connect("analyst") as analyst, connect("reviewer") as reviewer:
        id = (await analyst.do("add_observation", type="observation", content="x"))["id"]
        await analyst.do("claim_observation", id=id)
        error = await reviewer.fail("claim_observation", id=id)
        assert error.endswith("Wait until then or choose another")


async def test_invalid_texts_are_refused_and_the_server_continues(connect: Connect):
    async with connect() as agent:
        assert "65" in await agent.fail("add_observation", type="observation", content="x" * 70_000)
        assert "content" in await agent.fail("add_observation", type="observation", content="")
        assert "content" in await agent.fail("add_observation", type="observation", content="half \ud800 a pair")
        await agent.do("add_observation", type="observation", content="x" * 60_000)


async def test_json_in_a_text_stays_text_and_in_a_list_is_parsed(connect: Connect):
    async with connect() as agent:
        added = await agent.do("add_observation", type="observation", content='{"a": 1}', tags='["x", "y"]')
        changed = await agent.do("update_observation", id=added["id"], content='["b"]')
    assert (added["content"], added["tags"]) == ('{"a": 1}', ["x", "y"])
    assert changed["content"] == '["b"]'


async def test_a_write_of_another_agent_is_seen_at_once(connect: Connect):
    async with connect("analyst") as analyst, connect("reviewer") as reviewer:
        for number in range(20):
            id = (await analyst.do("add_observation", type="observation", content=f"{number}"))["id"]
            assert (await reviewer.do("get_observation", id=id))["observation"]["content"] == f"{number}"


async def test_calls_and_errors_are_counted_by_tool(connect: Connect):
    before = Counter(counts.tool_calls), Counter(counts.tool_errors)
    async with connect() as agent:
        await agent.do("list_observations")
        await agent.fail("list_observations", type="nonsense")
        await agent.fail("made_up_by_the_client")
    assert Counter(counts.tool_calls) - before[0] == {"list_observations": 2}
    assert Counter(counts.tool_errors) - before[1] == {"list_observations": 1, "unknown": 1}


async def test_a_stopped_engine_is_reported_and_found_when_restarted(short_directory: Path):
    directory = short_directory / "mcp"
    try:
        async with (
            Workspace.opened(Identity.of("analyst", tools=["observations"]), url=f"embedded:{directory}") as workspace,
            Client(server_of(workspace)) as client,
        ):
            agent = Agent(client, workspace.bus)
            first = await agent.do("add_observation", type="observation", content="x")
            await agent.do("get_active_observations")
            server.stop(directory)
            assert "was stopped" in await agent.fail("get_active_observations")
            assert "was stopped" in await agent.fail("add_observation", type="observation", content="y")
            server.ensure_running(directory)
            second = await agent.do("add_observation", type="observation", content="z")
            active = (await agent.do("get_active_observations"))["observations"]
    finally:
        server.stop(directory)
    assert [each["id"] for each in active] == [second["id"], first["id"]]


# -- claims ----------------------------------------------------------------------------------------------------------

_UNDER_A_FENCE = {
    "update_observation": {"content": "mine"},
    "resolve_observation": {},
    "archive_observation": {},
    "claim_observation": {},
    "link_observation": {"action": "goal-1"},
}


@pytest.mark.parametrize("intruder", ["reviewer", "analyst"])
async def test_a_fence_from_another_server_is_refused(connect: Connect, intruder: str):
    async with connect("analyst") as analyst, connect(intruder) as other:
        id = (await analyst.do("add_observation", type="observation", content="x"))["id"]
        assert (await analyst.do("claim_observation", id=id))["fence"] == 1
        for tool, more in _UNDER_A_FENCE.items():
            error = await other.fail(tool, id=id, fence=1, **more)
            assert "is claimed by analyst until" in error
            assert "pass" not in error
        assert "is claimed by analyst until" in await other.fail("resolve_observation", id=id)
        assert "your_fence" not in (await other.do("get_observation", id=id))["observation"]
        assert (await analyst.do("resolve_observation", id=id, fence=1))["status"] == "resolved"


async def test_an_agents_own_claim_shows_its_fence(connect: Connect):
    async with connect("analyst") as analyst:
        id = (await analyst.do("add_observation", type="observation", content="x"))["id"]
        fence = (await analyst.do("claim_observation", id=id))["fence"]
        assert (await analyst.do("get_observation", id=id))["observation"]["your_fence"] == fence


async def test_a_second_claim_of_the_holder_is_told_the_fence(connect: Connect):
    async with connect("analyst") as analyst:
        id = (await analyst.do("add_observation", type="observation", content="x"))["id"]
        claim = await analyst.do("claim_observation", id=id)
        error = await analyst.fail("claim_observation", id=id)
        assert error == f"you already hold {id}: its fence is 1; pass it to hold it longer"
        assert (await analyst.do("claim_observation", id=id, fence=1, ttl=600))["until"] > claim["until"]


async def test_a_huge_number_of_times_is_refused(connect: Connect):
    huge = {"type": "observation", "content": "x", "dedupe_key": "k", "times": 6 * 10**4299}
    async with connect() as agent:
        for _ in range(2):
            error = await agent.fail("add_observation", **huge)
            assert "times" in error
            assert len(error) < 1_000
        assert await agent.do("list_observations") == {"observations": []}
        await agent.do("add_observation", **huge | {"times": 1_000_000_000})
        assert len((await agent.do("get_active_observations"))["observations"]) == 1


async def test_a_duration_of_true_is_refused(connect: Connect):
    async with connect() as agent:
        new = {"type": "observation", "content": "x"}
        assert "True is not a valid duration" in await agent.fail("add_observation", **new, ttl=True)
        error = await agent.fail("add_observations", observations=[{**new, "ttl": True}])
        assert "True is not a valid duration" in error
        id = (await agent.do("add_observation", **new))["id"]
        assert "True is not a valid duration" in await agent.fail("claim_observation", id=id, ttl=True)


@pytest.mark.parametrize(
    ("tool", "arguments", "field"),
    [
        ("add_observation", {"type": "observation", "content": "x", "times": True}, "times"),
        ("add_observation", {"type": "observation", "content": "x", "confidence": False}, "confidence"),
        ("list_observations", {"limit": True}, "limit"),
        ("write_notepad", {"content": "new", "revision": True}, "revision"),
        (
            "add_observations",
            {"observations": [{"type": "observation", "content": "x", "confidence": False}]},
            "observations.0.confidence",
        ),
    ],
)
async def test_true_and_false_are_not_numbers(connect: Connect, tool: str, arguments: dict[str, Any], field: str):
    async with connect(session="s1") as agent:
        await agent.do("write_notepad", content="old")
        assert (await agent.fail(tool, **arguments)).startswith(f"{field}: ")
        assert (await agent.do("read_notepad"))["content"] == "old"
        assert (await agent.do("get_active_observations"))["observations"] == []


@pytest.mark.parametrize(
    ("tool", "arguments", "error"),
    [
        ("add_observation", {"ttl": 1.5}, 'ttl: 1.5: input should be whole seconds, or a text such as "2h"'),
        ("claim_next", {"ttl": []}, 'ttl: []: input should be whole seconds, or a text such as "2h"'),
        ("add_observation", {"remind_on": "x"}, "remind_on: 'x': input should be an object"),
        ("add_observations", {"observations": ["x"]}, "observations.0: 'x': input should be an object"),
        (
            "add_observations",
            {"observations": [{"type": "observation", "content": "x", "int": 1}]},
            "observations.0.int: 1: extra inputs are not permitted",
        ),
    ],
)
async def test_an_argument_of_a_wrong_type_gets_one_error_in_json_words(
    connect: Connect, tool: str, arguments: dict[str, Any], error: str
):
    given = {"type": "observation", "content": "x"} if tool == "add_observation" else {}
    async with connect() as agent:
        assert await agent.fail(tool, **given, **arguments) == error


async def test_an_update_without_changes_names_the_arguments_of_the_tool(connect: Connect):
    async with connect() as agent:
        id = (await agent.do("add_observation", type="observation", content="x"))["id"]
        (tool,) = [each for each in (await agent.client.list_tools()).tools if each.name == "update_observation"]
        error = await agent.fail("update_observation", id=id)
        assert set(error.split("give one of: ")[1].split(", ")) < set(tool.input_schema["properties"])


async def test_changes_since_refuses_what_is_no_cursor(connect: Connect):
    async with connect() as agent:
        for cursor in ("", "x"):
            error = await agent.fail("changes_since", cursor=cursor)
            assert error.startswith(f"cursor: '{cursor}' is not a cursor from this tool")


async def test_a_fence_of_true_is_refused(connect: Connect):
    async with connect() as agent:
        id = (await agent.do("add_observation", type="observation", content="x"))["id"]
        assert (await agent.do("claim_observation", id=id))["fence"] == 1
        assert "fence: True: input should be a valid number" in await agent.fail(
            "update_observation", id=id, content="y", fence=True
        )
        assert (await agent.do("get_observation", id=id))["observation"]["content"] == "x"


async def test_claim_next_skips_blocked_and_scheduled_observations(connect: Connect):
    soon = "2031-01-01T09:00:00Z"
    async with connect(tools=["observations"]) as agent:
        wall = (await agent.do("add_observation", type="observation", content="Wall"))["id"]
        roof = (await agent.do("add_observation", type="risk_alert", content="Roof", blocked_by=[wall]))["id"]
        paint = (await agent.do("add_observation", type="reminder", content="Paint", not_before=soon))["id"]
        full = {id: (await agent.do("get_observation", id=id))["observation"] for id in (roof, paint)}
        assert (full[roof]["blocked_by"], full[paint]["not_before"][:16]) == ([wall], soon[:16])
        assert (await agent.do("claim_next"))["observation"]["id"] == wall
        await agent.do("update_observation", id=paint, not_before="2020-01-01T00:00:00Z")
        assert (await agent.do("claim_next"))["observation"]["id"] == paint
        await agent.do("update_observation", id=paint, not_before=soon, release=True)
        assert (await agent.do("claim_next"))["observation"] is None
