"""What a system prompt says of the tools appears exactly when they are there."""

from __future__ import annotations

import pytest

from scratchbus.context.guidance import GROUPS, guidance
from scratchbus.settings import Settings

HEADINGS = {
    "observations": "<scratch_page>",
    "notes": "<scratchpad_system>",
    "notepad": "<session_notepad>",
    "todo": "<todo_list>",
    "scratchpad": "<agent_scratchpad>",
    "context": "<assembled_context>",
    "sessions": "<sessions>",
}


@pytest.mark.parametrize("group", GROUPS)
def test_any_tool_of_a_group_brings_its_guidance_and_no_other(group):
    for tool in GROUPS[group]:
        text = guidance([tool])
        assert [heading for heading in HEADINGS.values() if heading in text] == [HEADINGS[group]]


def test_without_tools_there_is_no_guidance():
    assert guidance([]) == ""
    assert guidance(["read_file"]) == ""


def test_a_group_may_be_named_for_all_its_tools():
    assert guidance(["notes"]) == guidance(GROUPS["notes"])


def test_all_groups_come_in_one_order():
    everything = guidance([tool for names in [*GROUPS.values()][::-1] for tool in names])
    places = [everything.index(heading) for heading in HEADINGS.values()]
    assert places == sorted(places)


def test_only_the_operations_that_are_there_are_named():
    text = guidance(["search_notes", "add_note"])
    assert "**Available operations:**\nadd_note, search_notes\n</scratchpad_system>" in text


def test_the_guidance_for_notes_has_its_headings_and_limits():
    text = guidance(["notes"])
    for part in ("**When to use the scratchpad:**", "**Best practices:**", "**Available operations:**", "4000", "10"):
        assert part in text


def test_the_guidance_for_the_notepad_makes_every_point():
    text = guidance(["notepad"])
    for point in ("many steps", "plan", "findings", "compacted", "summary", "word for word", "completed step"):
        assert point in text


def test_the_limits_are_those_of_the_settings():
    text = guidance(["notes"], Settings(max_note_content=500, max_note_tags=3))
    assert "up to 500 characters and 3 tags" in text
