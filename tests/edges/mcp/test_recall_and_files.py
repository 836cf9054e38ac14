"""The tools for recall and private files."""

from __future__ import annotations

import pytest

from scratchbus import AsyncFiles, ScratchFile
from scratchbus.errors import EngineUnreachable
from tests.edges.mcp.conftest import Connect


async def test_recall_finds_notes_observations_facts_and_preferences(connect: Connect, page_name: str):
    async with connect(page=page_name, session=page_name, knowledge=[page_name]) as agent:
        await agent.do("add_note", content="the heron database is PostgreSQL")
        await agent.do("add_observation", type="observation", content="the heron database is slow")
        await agent.do("assert_fact", subject="Heron", relation="uses", object="PostgreSQL")
        await agent.do("remember_preference", key="heron database", text="never restart it on Fridays")
        found = (await agent.do("recall", query="heron database"))["found"]
        assert {each["kind"] for each in found} == {"note", "observation", "fact", "preference"}
        assert all(each["why"] for each in found)


async def test_private_files_are_written_read_listed_and_deleted(
    connect: Connect, page_name: str, tmp_path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SCRATCHBUS_HOME", str(tmp_path))
    async with connect(session=page_name) as agent:
        written = await agent.do("write_private_file", path="scripts/check.py", content="print(1)\n")
        assert written["size"] == 9
        listing = await agent.do("list_private_files")
        assert listing["files"] == [written]
        assert listing["directory"].startswith(str(tmp_path))
        assert (await agent.do("read_private_file", path="scripts/check.py"))["content"] == "print(1)\n"
        assert "use a relative path" in await agent.fail("read_private_file", path="../../etc/passwd")
        assert (await agent.do("delete_private_file", path="scripts/check.py"))["files"] == []


async def test_a_failing_listing_after_a_deletion_is_retried_with_its_id(
    connect: Connect, page_name: str, tmp_path, monkeypatch: pytest.MonkeyPatch
):
    """The listing may write too; the deletion was called again with the id of that write, and found no file."""
    monkeypatch.setenv("SCRATCHBUS_HOME", str(tmp_path))
    sync, calls = AsyncFiles.sync, []

    async def fail_once(self: AsyncFiles) -> list[ScratchFile]:
        calls.append(self)
        if len(calls) == 1:
            problem = EngineUnreachable("the engine does not answer")
            problem.event_id = "of-the-listing"
            raise problem
        return await sync(self)

    async with connect(session=page_name) as agent:
        await agent.do("write_private_file", path="check.py", content="print(1)\n")
        monkeypatch.setattr(AsyncFiles, "sync", fail_once)
        assert (await agent.do("delete_private_file", path="check.py"))["files"] == []
        assert len(calls) == 2
