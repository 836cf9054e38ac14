"""What an agent is told: its instructions, and the context it asks for."""

from __future__ import annotations

from scratchbus.context.guidance import GROUPS as GUIDED
from scratchbus.context.guidance import guidance
from scratchbus.mcp.groups import GROUPS
from scratchbus.telemetry.counters import counts
from tests.edges.mcp.conftest import Connect


def test_the_guidance_knows_the_tools_of_each_group():
    assert {name: tuple(sorted(group.names())) for name, group in GROUPS.items()} == {
        name: tuple(sorted(tools)) for name, tools in GUIDED.items()
    }


async def test_the_instructions_are_the_guidance_of_the_tools_in_use(connect: Connect):
    async with connect("analyst", session="s1", tools=["notepad", "todo"]) as agent:
        said = agent.client.instructions
    assert said == (
        "You are analyst on scratchbus, page main, session s1. What you write is recorded as yours.\n\n"
        + guidance(["notepad", "todo"])
    )


async def test_a_context_has_it_all_and_is_recorded_as_seen(connect: Connect):
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


async def test_a_budget_that_does_not_even_hold_the_notepad_is_refused(connect: Connect):
    async with connect(session="s1") as agent:
        await agent.do("write_notepad", content="word " * 500)
        assert "notepad" in await agent.fail("get_context", budget=100)
        assert "budget" in await agent.fail("get_context", budget=0)
