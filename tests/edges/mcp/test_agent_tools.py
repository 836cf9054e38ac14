"""The tools of an agent in this process."""

from __future__ import annotations

import json

import pytest

from scratchbus import AsyncBus, guidance
from scratchbus.errors import InvalidField
from scratchbus.mcp.agent_tools import open_agent_tools


async def test_agent_tools_expose_only_the_tools_of_the_agent(memory_url: str):
    async with open_agent_tools("analyst", session="s1", tools=["notes"], url=memory_url) as tools:
        assert {name for name in dir(tools) if not name.startswith("_")} == {"definitions", "names", "call"}
        assert "add_note" in tools.names
        assert "add_observation" not in tools.names
        (first,) = (each for each in tools.definitions if each["name"] == "add_note")
        assert first["description"]
        assert first["input_schema"]["required"] == ["content"]
        assert "</notes>" in guidance(tools.names)


async def test_a_tool_answers_with_text_and_writes_as_its_agent(memory_url: str):
    async with AsyncBus.connect(memory_url) as bus:
        async with open_agent_tools("analyst", session="s1", tools=["notes"], url=memory_url) as tools:
            answer = await tools.call("add_note", {"content": "x", "tags": ["a"]})
            assert not answer.is_error
            id = (await bus.notes("s1").list()).notes[0].id
            assert id in json.dumps(json.loads(answer.text))
        assert [note.source for note in (await bus.notes("s1").list()).notes] == ["analyst"]


async def test_an_error_is_returned_as_an_answer(memory_url: str):
    async with open_agent_tools("analyst", session="s1", tools=["notes"], url=memory_url) as tools:
        for name, arguments, text in (
            ("add_note", {}, "content"),
            ("add_note", {"content": "x" * 4001}, "exceeds maximum length of 4000 characters (got 4001)"),
            ("add_observation", {"type": "observation", "content": "x"}, "no observations tools"),
            ("drop_everything", None, "unknown tool"),
            ("add_note", {"content": "x", "tags": "\ud800"}, "tags: is not valid Unicode text"),
            ("search_notes", {"query": "\ud800"}, "query: is not valid Unicode text"),
        ):
            answer = await tools.call(name, arguments)
            assert answer.is_error
            assert text in answer.text


@pytest.mark.parametrize("arguments", [{"query": "x\ud800"}, {"tags": ["x\ud800"]}], ids=repr)
async def test_an_argument_that_is_not_valid_unicode_is_refused(memory_url: str, arguments: dict[str, object]):
    async with open_agent_tools("analyst", session="s1", tools=["notes"], url=memory_url) as tools:
        answer = await tools.call("search_notes", arguments)
        assert answer.is_error
        assert answer.text.endswith(": is not valid Unicode text")


async def test_an_unknown_group_is_refused(memory_url: str):
    with pytest.raises(InvalidField, match="unknown group"):
        async with open_agent_tools("analyst", tools=["everything else"], url=memory_url):
            pass
