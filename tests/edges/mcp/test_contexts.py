"""The instructions of an agent, and its contexts."""

from __future__ import annotations

from scratchbus.mcp.groups import BASIC_TOOLS
from scratchbus.telemetry.counters import counts
from tests.edges.mcp.conftest import Connect


async def test_the_instructions_are_short_and_begin_with_the_context(connect: Connect):
    async with connect("analyst", session="s1") as agent, connect("other", session="s2", tools=["basic"]) as basic:
        for text in (agent.client.instructions or "", basic.client.instructions or ""):
            first, second, *_ = text.splitlines()
            assert first.startswith("You are ")
            assert second.startswith("Call get_context first")
            assert len(text) <= 2_000
        instructions = basic.client.instructions or ""
        for word in ("Page", "Notes", "Notepad", "Todo list", "Scratchpad"):
            assert f"- {word}: " in instructions
        assert "Scratch Page" not in instructions


async def test_the_instructions_cover_only_the_tools_in_use(connect: Connect):
    async with connect("analyst", session="s1", tools=["notepad", "todo"]) as agent:
        lines = (agent.client.instructions or "").splitlines()
    assert lines[0] == "You are analyst on scratchbus, page main, session s1: a shared working memory."
    assert [line.partition(":")[0] for line in lines[1:]] == ["- Notepad", "- Todo list"]


async def test_a_client_gets_twelve_tools_unless_it_asks_for_more(connect: Connect):
    async with connect("analyst", session="s1", tools=["basic"]) as agent:
        names = [tool.name for tool in (await agent.client.list_tools()).tools]
        assert sorted(names) == sorted(BASIC_TOOLS)
        assert len(names) == 12
        assert names[0] == "get_context"
        assert "has no history tools" in await agent.fail("trace", action="x")


async def test_a_context_has_the_revisions_that_replacing_needs(connect: Connect):
    async with connect("analyst", session="s1") as agent:
        await agent.do("write_notepad", content="the plan")
        await agent.do("update_scratchpad", content="Mondays only")
        revisions = (await agent.do("get_context"))["revisions"]
        await agent.do("write_notepad", content="another plan", revision=revisions["notepad"])
        await agent.do("update_scratchpad", content="Tuesdays", revision=revisions["scratchpad"])
        await agent.do("todo", todos=[{"id": "1", "content": "look"}], revision=revisions["todo"])


async def test_a_context_has_every_section_and_is_recorded(connect: Connect):
    async with connect("reviewer") as reviewer, connect("analyst", session="s1") as agent:
        seen = await reviewer.do("add_observation", type="risk_alert", content="Fraud ring")
        await agent.do("update_scratchpad", content="Mondays only")
        await agent.do("write_notepad", content="the plan")
        await agent.do("todo", todos=[{"id": "1", "content": "look closer"}])
        await agent.do("add_note", content="Q3 is off")
        before = counts.contexts, counts.context_tokens
        made = await agent.do("get_context", budget=2_000)
        page = reviewer.bus.page("main")
        exposure = await page.exposure(seen["id"])
    for part in ("Mondays only", "## Session Notepad\nthe plan", "[ ] 1. look closer", "Fraud ring", "Q3 is off"):
        assert part in made["text"]
    assert 0 < made["tokens"] <= 2_000
    assert (counts.contexts - before[0], counts.context_tokens - before[1]) == (1, made["tokens"])
    assert "s1" in repr(exposure)
    assert "analyst" in repr(exposure)


async def test_a_small_budget_shortens_the_notepad_and_names_its_tool(connect: Connect):
    async with connect(session="s1") as agent:
        await agent.do("write_notepad", content="word " * 500)
        assert "`read_notepad` returns all of it" in (await agent.do("get_context", budget=100))["text"]
        assert "budget" in await agent.fail("get_context", budget=0)
