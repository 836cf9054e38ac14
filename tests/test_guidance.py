"""The guidance for a system prompt covers exactly the available tools."""

from __future__ import annotations

import pytest

from scratchbus.context.guidance import guidance
from scratchbus.context.tool_groups import TOOLS_OF_GROUPS
from scratchbus.errors import InvalidField
from scratchbus.settings import Settings

HEADINGS = {
    "observations": "<scratch_page>",
    "notes": "<notes>",
    "notepad": "<session_notepad>",
    "todo": "<todo_list>",
    "scratchpad": "<scratchpad>",
    "context": "<assembled_context>",
    "sessions": "<sessions>",
    "preferences": "<preferences>",
    "facts": "<facts>",
    "recall": "<recall>",
    "files": "<private_files>",
}


@pytest.mark.parametrize("group", HEADINGS)
def test_a_tool_adds_the_guidance_of_its_group_only(group):
    for tool in TOOLS_OF_GROUPS[group]:
        text = guidance([tool])
        assert [heading for heading in HEADINGS.values() if heading in text] == [HEADINGS[group]]


@pytest.mark.parametrize("name", ["notepad", "read_notepad"])
def test_a_single_name_needs_no_list(name):
    assert guidance(name) == guidance([name])
    assert HEADINGS["notepad"] in guidance(name)


def test_each_group_uses_only_its_own_term():
    words = {
        "observations": "scratch page",
        "notes": "notes",
        "notepad": "notepad",
        "todo": "todo",
        "scratchpad": "scratchpad",
    }
    for group in words:
        text = guidance([group]).lower().replace("scratch_page", "scratch page").replace("scratch_note", "")
        others = {"scratch page", "notepad", "scratchpad"} - {words[group]}
        assert not [word for word in others if word in text], group


def test_no_tools_give_no_guidance():
    assert guidance([]) == ""
    assert guidance(["read_file"]) == ""


@pytest.mark.parametrize("tools", [5, None, [5], [["notes"]]])
def test_anything_but_names_is_refused(tools):
    with pytest.raises(InvalidField, match="tools"):
        guidance(tools)


def test_a_group_name_stands_for_all_its_tools():
    assert guidance(["notes"]) == guidance(TOOLS_OF_GROUPS["notes"])


def test_groups_have_a_fixed_order():
    everything = guidance([tool for names in [*TOOLS_OF_GROUPS.values()][::-1] for tool in names])
    places = [everything.index(heading) for heading in HEADINGS.values()]
    assert places == sorted(places)


def test_only_available_operations_are_named():
    text = guidance(["search_notes", "add_note"])
    assert "**Available operations:**\nadd_note, search_notes\n</notes>" in text


@pytest.mark.parametrize(
    ("tools", "advice"),
    [
        (["scratchpad"], "Call `whoami` to read it when you start; you will be asked"),
        (["update_scratchpad", "get_context"], "Call `get_context` to read it when you start; you will be asked"),
        (["update_scratchpad"], "outlives this run. You will be asked"),
    ],
)
def test_the_scratchpad_is_read_with_an_available_tool(tools, advice):
    text = guidance(tools)
    assert advice in text
    assert ("whoami" in text) is (tools == ["scratchpad"])


def test_a_session_does_not_promise_copies_of_notes():
    assert "a copy of your notepad and of\nthe conversation. Neither has your notes or your todo list" in guidance(
        "sessions"
    )


def test_notes_guidance_has_its_headings_and_limits():
    text = guidance(["notes"])
    limits = "- A note holds up to 4000 characters and 10 tags; split longer ones\n"
    assert (
        text.replace(limits, "", 1)
        == """\
<notes>
You have access to persistent notes during task execution.

**When to use notes:**
- Storing findings from file analysis or searches
- Tracking multi-step task progress
- Building context incrementally
- Avoiding redundant expensive operations
- Organizing complex information

**Best practices:**
- Use descriptive tags for easy filtering
- Keep notes focused and actionable
- Update notes as information evolves
- Search before creating duplicates
- Clean up notes when tasks complete

**Available operations:**
{}
</notes>""".format(", ".join(TOOLS_OF_GROUPS["notes"]))
    )
    assert limits in text


def test_notepad_guidance_is_complete():
    text = " ".join(guidance(["notepad"]).split())
    assert (
        "For multi-step or complex tasks, use the session notepad to track your plan and record findings as you work. "
        "The notepad survives context compaction — conversation details may be summarized, but the notepad is "
        "preserved in full. Update it after significant findings or completed steps."
    ) in text


def test_guidance_states_the_limits_of_the_settings():
    text = guidance(["notes"], Settings(max_note_content=500, max_note_tags=3))
    assert "up to 500 characters and 3 tags" in text
