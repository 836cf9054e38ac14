"""The tools for the memory of agents."""

from __future__ import annotations

from typing import Any

import pytest

from tests.edges.mcp.conftest import Connect


async def test_the_notepad_is_written_edited_and_read(connect: Connect):
    async with connect(session="s1") as agent:
        assert await agent.do("read_notepad") == {"content": "", "revision": 0}
        assert await agent.do("write_notepad", content="- [ ] look\n") == {"ok": True, "revision": 1}
        await agent.do("update_notepad", operation="append", content="- [ ] fix\n")
        await agent.do("update_notepad", operation="find_replace", find="[ ] look", replace="[x] look")
        assert await agent.do("read_notepad") == {"content": "- [x] look\n- [ ] fix\n", "revision": 3}


async def test_an_ambiguous_or_unmatched_edit_is_explained(connect: Connect):
    async with connect(session="s1") as agent:
        await agent.do("write_notepad", content="a b a")
        assert "2" in await agent.fail("update_notepad", operation="find_replace", find="a", replace="c")
        assert "find" in await agent.fail("update_notepad", operation="find_replace", find="x", replace="c")
        assert "find_replace" in await agent.fail("update_notepad", operation="rewrite", content="x")
        assert await agent.do("read_notepad") == {"content": "a b a", "revision": 1}
        await agent.do("update_notepad", operation="find_replace", find="a", replace="c", replace_all=True)
        assert await agent.do("read_notepad") == {"content": "c b c", "revision": 2}


async def test_the_todo_list_is_read_and_written_with_one_tool(connect: Connect):
    async with connect(session="s1") as agent:
        assert (await agent.do("todo"))["todos"] == []
        plan = [{"id": "1", "content": "look", "status": "in_progress"}, {"id": "2", "content": "fix"}]
        written = await agent.do("todo", todos=plan)
        merged = await agent.do("todo", todos=[{"id": "1", "status": "completed"}], merge=True)
        assert await agent.do("todo") == merged
        assert "note" in await agent.fail("todo", todos=[{"id": "3", "note": "x"}])
        assert await agent.do("todo") == merged
    assert written["revision"] == 1
    assert [(each["id"], each["status"]) for each in merged["todos"]] == [("1", "completed"), ("2", "pending")]
    assert merged["summary"]["completed"] == 1


async def test_todo_items_that_do_not_fit_are_named(connect: Connect):
    async with connect(session="s1") as agent:
        full = await agent.do("todo", todos=[{"id": number, "content": "x"} for number in range(258)])
        assert (len(full["todos"]), full["dropped"]) == (256, ["256", "257"])
        merged = await agent.do(
            "todo", todos=[{"id": "0", "status": "completed"}, {"id": " new ", "content": "y"}], merge=True
        )
        assert (merged["dropped"], merged["summary"]["completed"]) == (["new"], 1)
        assert "dropped" not in await agent.do("todo", todos=[{"id": "1", "status": "completed"}], merge=True)
        assert "dropped" not in await agent.do("todo")


TEXTS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "write_notepad": ("notepad", "read_notepad", {"content": "one"}, {"content": "two"}),
    "update_scratchpad": ("scratchpad", "whoami", {"content": "one"}, {"content": "two"}),
    "todo": ("todo list", "todo", {"todos": [{"id": "1", "content": "x"}]}, {"todos": [{"id": "2", "content": "y"}]}),
}


@pytest.mark.parametrize("tool", TEXTS)
async def test_an_existing_text_is_not_overwritten_unread(connect: Connect, tool: str):
    label, reads, first, other = TEXTS[tool]
    async with connect(session="s1") as agent:
        assert (await agent.do(reads))["revision"] == 0
        written = await agent.do(tool, **first)
        error = await agent.fail(tool, **other)
        assert error.startswith(f"the {label} is not empty, so nothing was written; read it with {reads}")
        assert "overwrite=true" in error
        assert (await agent.do(reads))["revision"] == written["revision"] == 1
        assert (await agent.do(tool, **other, revision=1))["revision"] == 2
        assert "has changed since revision 1" in await agent.fail(tool, **first, revision=1)
        assert (await agent.do(tool, **first, overwrite=True))["revision"] == 3


async def test_a_cleared_text_is_written_without_a_revision(connect: Connect):
    async with connect(session="s1") as agent:
        for content in ("one", ""):
            await agent.do("write_notepad", content=content, overwrite=True)
            await agent.do("todo", todos=[{"id": "1", "content": content}] if content else [], overwrite=True)
        assert (await agent.do("write_notepad", content="two"))["revision"] == 3
        assert (await agent.do("todo", todos=[{"id": "1", "content": "two"}]))["revision"] == 3


async def test_a_revision_is_optional_for_a_merge(connect: Connect):
    async with connect(session="s1") as agent:
        await agent.do("todo", todos=[{"id": "1", "content": "x"}])
        done = [{"id": "1", "status": "completed"}]
        assert "has changed since revision 7" in await agent.fail("todo", todos=done, merge=True, revision=7)
        assert (await agent.do("todo", todos=done, merge=True))["revision"] == 2


RETRIED: dict[str, dict[str, Any]] = {
    "add_note": {"content": "x"},
    "scratch_note": {"content": "x"},
    "update_note": {"id": "NOTE", "content": "y"},
    "delete_note": {"id": "NOTE"},
    "write_notepad": {"content": "x"},
    "update_notepad": {"operation": "append", "content": "x"},
    "todo": {"todos": [{"id": "1", "content": "x"}]},
    "update_scratchpad": {"content": "x"},
    "spawn_session": {},
    "fork_session": {},
    "begin_task": {"title": "x"},
    "end_task": {"task": "TASK", "summary": "x"},
    "report_result": {"result": "x"},
}


@pytest.mark.parametrize("tool", RETRIED)
async def test_a_retry_with_the_same_event_id_changes_nothing(connect: Connect, tool: str):
    async with connect(session="s0") as parent:
        session = (await parent.do("spawn_session"))["session"]
    async with connect(session=session) as agent:
        given = dict(RETRIED[tool])
        if "id" in given:
            given["id"] = (await agent.do("add_note", content="x"))["metadata"]["note_id"]
        if "task" in given:
            given["task"] = (await agent.do("begin_task", title="x"))["task"]
        first = await agent.do(tool, **given, event_id="mine")
        end = await agent.bus.position()
        assert await agent.do(tool, **given, event_id="mine") == first
        assert await agent.bus.position() == end
        other: dict[str, Any] = {"copy_notepad": True} if tool == "spawn_session" else {}
        other |= {name: "another" for name in ("content", "title", "summary", "result") if name in given}
        if other:
            await agent.fail(tool, **{**given, **other}, event_id="mine")
        assert await agent.bus.position() == end


async def test_only_agents_of_the_same_session_share_its_memory(connect: Connect):
    async with (
        connect("analyst", session="s1") as analyst,
        connect("reviewer", session="s1") as reviewer,
        connect("reviewer", session="s2") as other,
    ):
        await analyst.do("write_notepad", content="shared")
        assert (await reviewer.do("read_notepad"))["content"] == "shared"
        assert (await other.do("read_notepad"))["content"] == ""
        (event,) = await analyst.bus.notepad("s1").history()
    assert event.by == "analyst"


async def test_an_agent_sees_only_its_own_scratchpad(connect: Connect):
    async with connect("analyst") as analyst, connect("reviewer") as reviewer:
        await analyst.do("update_scratchpad", content="The bank answers on Mondays.")
        mine, theirs = await analyst.do("whoami"), await reviewer.do("whoami")
        assert "10000" in await analyst.fail("update_scratchpad", content="x" * 10_001)
        assert "unknown argument" in await reviewer.fail("update_scratchpad", content="x", owner="analyst")
    assert (mine["agent"], mine["kind"], mine["page"]) == ("analyst", "subagent", "main")
    assert "The bank answers on Mondays." in mine["text"]
    assert "Mondays" not in theirs["text"]
    assert "update_scratchpad" in theirs["text"]


async def test_a_person_has_no_scratchpad(connect: Connect):
    async with connect("eve", kind="person", tools=["scratchpad"]) as person:
        assert "403 Unauthorized" in await person.fail("update_scratchpad", content="x")
        assert "has no notepad tools" in await person.fail("write_notepad", content="x")
        assert "unknown tool" in await person.fail("drop_everything")
        assert "## Your Scratchpad" not in (await person.do("whoami"))["text"]


async def test_a_task_is_ended_once_and_by_its_own_session(connect: Connect):
    async with connect(session="s1") as agent, connect(session="s2") as other:
        task = (await agent.do("begin_task", title="Survey the sheets"))["task"]
        assert "session s2" in await other.fail("end_task", task=task, summary="not mine")
        ended = await agent.do("end_task", task=task, summary="Six sheets.")
        assert "Six sheets." in ended["text"]
        await agent.fail("end_task", task=task, summary="Again.")


async def test_a_task_of_a_session_with_a_longer_name_is_not_ended(connect: Connect):
    async with connect(session="a@s1") as agent, connect(session="s1") as other:
        task = (await agent.do("begin_task", title="Survey the sheets"))["task"]
        assert "is not a task of session s1" in await other.fail("end_task", task=task, summary="not mine")
        await agent.do("end_task", task=task, summary="Six sheets.")


@pytest.mark.parametrize("tool", ["add_note", "read_notepad", "todo", "spawn_session"])
async def test_a_connection_without_a_session_has_no_session_tools(connect: Connect, tool: str):
    async with connect() as agent:
        assert f"{tool}: your connection has no " in await agent.fail(tool)


async def test_notes_are_added_searched_updated_and_deleted(connect: Connect):
    async with connect(session="s1") as agent:
        first = await agent.do("add_note", content="Q3 is off by 45,000", tags=["Totals", "q3"])
        second = await agent.do("scratch_note", content="ask about Q3")
        assert first["metadata"] == {"note_id": first["note"]["id"], "total_notes": 1, "total_tags": 2}
        assert second["note"]["tags"] == []
        found = await agent.do("search_notes", query="q3")
        assert [each["id"] for each in found["notes"]] == [first["note"]["id"], second["note"]["id"]]
        assert found["metadata"] == {"result_count": 2, "query": "q3", "tags": []}
        assert (await agent.do("list_tags"))["tags"] == {"Totals": 1, "q3": 1}
        changed = await agent.do("update_note", id=second["note"]["id"], tags=["totals"])
        assert (changed["note"]["content"], changed["note"]["tags"]) == ("ask about Q3", ["totals"])
        listed = await agent.do("list_notes", tag="TOTALS")
        assert listed["metadata"] == {"note_count": 2, "tag_filter": "TOTALS"}
        gone = await agent.do("delete_note", id=first["note"]["id"])
        assert (gone["metadata"]["note_id"], gone["metadata"]["total_notes"]) == (first["note"]["id"], 1)
        assert [each["id"] for each in (await agent.do("list_notes"))["notes"]] == [second["note"]["id"]]


@pytest.mark.parametrize(("tool", "given"), [("list_notes", {}), ("search_notes", {"query": "note"})])
async def test_pages_of_notes_show_every_note_once(connect: Connect, tool: str, given: dict[str, str]):
    async with connect(session="s1") as agent:
        ids = [(await agent.do("scratch_note", content=f"note {n}"))["note"]["id"] for n in range(7)]
        answer = await agent.do(tool, limit=3, **given)
        seen = [each["id"] for each in answer["notes"]]
        while "next_cursor" in answer:
            await agent.do("scratch_note", content="note 9")  # newer, so not on the next pages
            answer = await agent.do(tool, limit=3, cursor=answer["next_cursor"], **given)
            seen += [each["id"] for each in answer["notes"]]
        assert seen == ids[::-1]
        await agent.do("delete_note", id=ids[0])
        assert "start again" in await agent.fail(tool, cursor=ids[0], **given)


async def test_an_invalid_note_is_explained(connect: Connect):
    async with connect(session="s1") as agent:
        error = await agent.fail("add_note", content="x" * 4_001)
        assert "4000" in error.replace(",", "")
        assert "4001" in error.replace(",", "")
        assert "10" in await agent.fail("add_note", content="x", tags=[f"t{n}" for n in range(11)])
        assert "note_1" in await agent.fail("update_note", id="note_1", content="x")
        assert (await agent.do("list_notes"))["notes"] == []


async def test_spawned_and_forked_sessions_report_to_their_parent(connect: Connect):
    async with connect(session="s1") as parent:
        await parent.do("write_notepad", content="the plan")
        spawned = await parent.do("spawn_session")
        copied = await parent.do("spawn_session", copy_notepad=True)
        forked = await parent.do("fork_session", event_id="fork-1")
        assert await parent.do("fork_session", event_id="fork-1") == forked
        for new, content in ((spawned, ""), (copied, "the plan"), (forked, "the plan")):
            assert new["parent"] == "s1"
            async with connect("helper", session=new["session"]) as child:
                assert (await child.do("read_notepad"))["content"] == content
                await child.do("write_notepad", content="my own", overwrite=True)
                reported = await child.do("report_result", result="all is well")
                assert reported["source"] == "helper"
        assert (await parent.do("read_notepad"))["content"] == "the plan"
        reported = (await parent.do("list_observations", tags=["session_result"]))["observations"]
        assert len(reported) == 3
        assert (await parent.do("resolve_observation", id=reported[0]["id"]))["status"] == "resolved"
        await parent.fail("report_result", result="to whom?")


async def test_preferences_are_remembered_shown_and_forgotten(connect: Connect):
    async with connect(session="s1", knowledge=["ada", "ada/shop"]) as agent:
        kept = await agent.do("remember_preference", key="quotes in JS", text="always double", said_by="Ada")
        assert kept == {"key": "quotes in JS", "text": "always double", "said_by": "Ada", "scope": "ada/shop"}
        await agent.do("remember_preference", key="Quote in JS", text="single", scope="ada")
        await agent.do("remember_preference", key="tabs", text="never", scope="ada")
        text = (await agent.do("get_context"))["text"]
        assert "- quotes in JS: always double (Ada, " in text
        assert "- tabs: never (analyst, " in text
        assert "single" not in text
        assert (await agent.do("forget_preference", key="QUOTES in JS"))["text"] == "always double"
        assert "single" in (await agent.do("get_context"))["text"]
        assert "no preference" in await agent.fail("forget_preference", key="never there")
        await agent.do("remember_preference", key="reports", text="in German")
        await agent.do("remember_preference", key="tabs", text="never")
        assert (await agent.fail("forget_preference", key="never there")).endswith("its preferences: reports, tabs")
        error = await agent.fail("remember_preference", key="a", text="b", scope="eve")
        assert error == "scope: 'eve' is not one of your scopes; use one of: ada, ada/shop"


async def test_the_preference_tools_must_be_requested(connect: Connect):
    names = {}
    for tools in (["basic"], ["all"], ["preferences"]):
        async with connect(session="s1", knowledge=["ada"], tools=tools) as agent:
            names[tools[0]] = {tool.name for tool in (await agent.client.list_tools()).tools}
    async with connect(session="s1") as agent:
        names["no scope"] = {tool.name for tool in (await agent.client.list_tools()).tools}
    ours = {"remember_preference", "forget_preference"}
    assert {name for name, tools in names.items() if tools & ours} == {"all", "preferences"}
    assert names["preferences"] == ours
