"""The tools for facts."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from scratchbus.errors import EngineUnreachable
from scratchbus.readmodel.fact_index import FactIndex
from tests.edges.mcp.conftest import Connect, tool_names


async def test_facts_are_asserted_queried_explained_and_retracted(connect: Connect, page_name: str):
    async with connect(page=page_name) as agent:
        await agent.do("assert_fact", subject="App", relation="runs_on", object="Node 20", valid_at="2025-01-01")
        new = await agent.do("assert_fact", subject="App", relation="upgraded to", object="Node 24", source_text="yes")
        assert (new["relation"], new["source"]) == ("runs_on", "analyst")
        assert (await agent.do("query_facts", subject="app"))["facts"] == [new]
        past = await agent.do("query_facts", subject="app", at="2025-06-01")
        assert [(each["object"], each["valid_at"]) for each in past["facts"]] == [("Node 20", "2025-01-01T00:00:00Z")]
        assert "from the text: yes" in (await agent.do("explain_fact", id=new["id"]))["explanation"]
        await agent.do("retract_fact", id=new["id"], reason="not yet")
        assert [each["object"] for each in (await agent.do("query_facts"))["facts"]] == ["Node 20"]


async def test_contested_facts_are_shown_to_those_who_assert_or_query_them(connect: Connect, page_name: str):
    since = {"subject": "App", "relation": "runs_on", "valid_at": "2026-01-01"}
    async with connect(page=page_name) as agent, connect(page=page_name, agent="critic") as critic:
        first = await agent.do("assert_fact", **since, object="Node 20")
        second = await critic.do("assert_fact", **since, object="Node 24")
        third = await critic.do("assert_fact", **since, object="Node 26")  # corrects the second
        assert ("contested" in first, second.pop("contested"), third.pop("contested")) == (
            False, [first["id"]], [first["id"]],
        )  # fmt: skip
        assert await agent.do("query_facts", subject="app", relation="upgraded to") == {
            "facts": [], "contested": [first, third],
        }  # fmt: skip
        for other in ({"relation": "depends_on"}, {"relation": "runs_on", "at": "2025-01-01"}):
            assert await agent.do("query_facts", subject="App", **other) == {"facts": []}
        uses = await agent.do("assert_fact", subject="App", relation="uses", object="npm")
        for other in ({}, {"at": "2999-01-01"}):
            found = await agent.do("query_facts", subject="App", **other)
            assert found == {"facts": [uses], "contested": [first, third]}
        assert await agent.do("query_facts", subject="App", object="npm") == {"facts": [uses]}
        await critic.do("retract_fact", id=first["id"], reason="misread")
        found = await agent.do("query_facts", subject="App")
        assert found == {"facts": [uses, third]}


async def test_what_contests_is_shown_only_while_it_would_answer_the_question(connect: Connect, page_name: str):
    async with connect(page=page_name) as agent, connect(page=page_name, agent="critic") as critic:

        async def contest(subject: str, **times: str) -> list[dict[str, Any]]:
            names = [(agent, "Acme"), (critic, "Bolt")]
            said = {"subject": subject, "relation": "works_at", **times}
            facts = [await each.do("assert_fact", **said, object=name) for each, name in names]
            return [{name: value for name, value in fact.items() if name != "contested"} for fact in facts]

        async def contested(subject: str, relation: str = "works_at", **more: str) -> list[dict[str, Any]]:
            found = await agent.do("query_facts", subject=subject, relation=relation, **more)
            assert found["facts"] == []
            return list(found.get("contested", []))

        await contest("Ann", valid_at="2999-01-01")
        assert await contested("Ann") == []
        await contest("Ann", valid_at="2020-01-01")
        now = await contest("Ann", valid_at="2021-01-01")
        assert await contested("Ann") == now
        assert await contested("Ann", object="bolt") == now
        assert await contested("Ann", object="Coop") == []
        assert sorted(each["object"] for each in await contested("bolt", "employs")) == ["Acme", "Bolt"]
        await contest("Bea", valid_at="2023-01-01")
        assert len(await contested("bolt", "employs")) == 4
        gone = await agent.do("assert_fact", subject="Ann", relation="works_at", object="Coop", valid_at="2022-01-01")
        assert "contested" not in await agent.do("query_facts", subject="Ann", relation="works_at")
        await agent.do("retract_fact", id=gone["id"], reason="misread")
        assert await contested("Ann") == now


async def test_an_explanation_is_short_however_much_evidence_there_is(connect: Connect, page_name: str):
    async with connect(page=page_name) as agent:
        items = [{"type": "observation", "content": "x" * 3_000}] * 50
        ids = (await agent.do("add_observations", observations=items))["ids"]
        said = {"subject": "App", "relation": "uses", "object": "Docker", "source_text": "y" * 50_000}
        fact = await agent.do("assert_fact", **said, evidence=ids)
        explanation = (await agent.do("explain_fact", id=fact["id"]))["explanation"]
    assert len(explanation) < 13_000
    assert explanation.count("rests on") == 11
    assert "rests on 40 more, left out here" in explanation
    assert "(… 49,000 characters left out)" in explanation


async def test_an_ended_contest_is_not_shown(connect: Connect, page_name: str):
    times: Any = {"valid_at": "2020-01-01", "invalid_at": "2021-01-01"}
    async with connect(page=page_name) as agent, connect(page=page_name, agent="critic") as critic:
        for each, name in ((agent, "Acme"), (critic, "Bolt")):
            assert each.bus is not None
            last = await each.bus.facts(page_name).assert_fact("Ann", "works_at", name, **times)
        assert "contested by" in (await agent.do("explain_fact", id=last.id))["explanation"]
        assert await agent.do("query_facts", subject="Ann", relation="works_at") == {"facts": []}


async def test_a_fact_is_asserted_though_its_rivals_cannot_be_read(
    connect: Connect, page_name: str, monkeypatch: pytest.MonkeyPatch
):
    async def unreachable(*_: object, **__: object) -> None:
        raise EngineUnreachable("it went away")

    monkeypatch.setattr("scratchbus.AsyncFacts.timeline", unreachable)
    async with connect(page=page_name) as agent:
        fact = await agent.do("assert_fact", subject="Ann", relation="works_at", object="Acme", valid_at="2020-01-01")
        assert (await agent.do("query_facts", subject="Ann"))["facts"] == [fact]


async def test_a_fact_asserted_again_hides_no_other(connect: Connect, page_name: str):
    async with connect(page=page_name) as agent:
        await agent.do("assert_fact", subject="App", relation="uses", object="Redis")
        for name in ("Docker", "docker", "DOCKER"):
            last = await agent.do("assert_fact", subject="app", relation="uses", object=name)
        found = await agent.do("query_facts", subject="App", limit=2)
        assert [each["object"] for each in found["facts"]] == ["DOCKER", "Redis"]
        assert found == {"facts": [last, found["facts"][1]]}  # an equal fact is no more


async def test_query_facts_says_whether_there_are_more(
    connect: Connect, page_name: str, monkeypatch: pytest.MonkeyPatch
):
    async with connect(page=page_name) as agent:
        for name in ("nginx", "Docker", "Redis", "Docker"):
            await agent.do("assert_fact", subject="App", relation="uses", object=name)
        fact_at = Mock(side_effect=FactIndex.fact_at, autospec=True)
        monkeypatch.setattr(FactIndex, "fact_at", lambda index, seq: fact_at(index, seq))
        found = await agent.do("query_facts", subject="App", limit=1)
        assert ([each["object"] for each in found["facts"]], found["has_more"]) == (["Docker"], True)
        assert fact_at.call_count == 2
        assert "has_more" not in await agent.do("query_facts", subject="App", limit=3)


async def test_find_connections_finds_paths_and_neighbours(connect: Connect, page_name: str):
    async with connect(page=page_name) as agent:
        await agent.do("assert_fact", subject="Ann", relation="works on", object="Heron")
        await agent.do("assert_fact", subject="Heron", relation="uses", object="Docker")
        path = await agent.do("find_connections", entity="ann", to="docker")
        assert [each["object"] for each in path["path"]] == ["Heron", "Docker"]
        near = await agent.do("find_connections", entity="Ann", depth=2)
        assert [(each["entity"], each["distance"]) for each in near["near"]] == [("Heron", 1), ("Docker", 2)]


async def test_listed_facts_have_no_detailed_schema(connect: Connect):
    async with connect(tools=["facts"]) as agent:
        schemas = {tool.name: tool.output_schema for tool in (await agent.client.list_tools()).tools}
    for tool, field in (("query_facts", "facts"), ("find_connections", "path")):
        item = schemas[tool]["properties"][field]["items"]
        assert "properties" not in item
        assert "assert_fact" in item["description"]
    assert "valid_at" in schemas["assert_fact"]["properties"]


async def test_errors_say_what_to_do(connect: Connect, page_name: str):
    async with connect(page=page_name) as agent:
        wrong = {"subject": "a", "relation": "usess", "object": "b"}
        assert "did you mean 'uses'" in await agent.fail("assert_fact", **wrong)
        assert "there is no fact_1" in await agent.fail("explain_fact", id="fact_1")
        assert (await agent.fail("find_connections", entity="\0", to="b")).startswith("entity: '\\x00' must be")
        assert (await agent.fail("find_connections", entity="a", to="\0")).startswith("to: '\\x00' must be")


async def test_the_basic_tools_include_no_fact_tools(connect: Connect):
    async with connect(tools=["basic"], session="s1") as agent:
        names = {tool.name for tool in (await agent.client.list_tools()).tools}
    assert names.isdisjoint(tool_names("facts"))
