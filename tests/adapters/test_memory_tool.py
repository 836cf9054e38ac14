"""Anthropic's memory tool: its answers, and concurrent writers."""

from __future__ import annotations

import tempfile
import threading
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scratchbus import AsyncBus, Bus
from scratchbus.adapters.memory_tool import MemoryTool
from scratchbus.adapters.memory_tool_async import AsyncMemoryTool
from scratchbus.errors import InvalidField
from tests.inspection import log_length

pytestmark = pytest.mark.engines("memory")

HEAD = "Here're the files and directories up to 2 levels deep in"


@pytest.fixture(scope="module")
def sdk() -> ModuleType:
    """The tools of the SDK, which takes two seconds to import: too long for each process that collects tests."""
    return import_module("anthropic.tools")


@pytest.fixture(scope="module")
def adapter() -> ModuleType:
    """The adapter for the SDK."""
    return import_module("scratchbus.adapters.anthropic")


@pytest.fixture
def tool(bus: Bus) -> MemoryTool:
    return MemoryTool(bus, "project-a")


def create(tool, path, text):
    return tool({"command": "create", "path": path, "file_text": text})


def test_a_tool_refuses_a_bus_of_the_other_kind(bus):
    other: Any = object.__new__(AsyncBus)
    none: Any = None
    with pytest.raises(InvalidField, match="AsyncMemoryTool an AsyncBus"):
        AsyncMemoryTool(bus, "project-a")
    with pytest.raises(InvalidField, match="MemoryTool needs a Bus"):
        MemoryTool(other, "project-a")
    with pytest.raises(InvalidField, match="None does not fit"):
        MemoryTool(none, "project-a")


def test_a_directory_is_listed_two_levels_deep(tool):
    assert tool({"command": "view", "path": "/memories"}) == (
        f"{HEAD} /memories, excluding hidden items and node_modules:\n0B\t/memories"
    )
    for path, size in (("a.txt", 1536), ("b/c.txt", 2048), ("b/d/e.txt", 10), (".hidden/x", 5), ("node_modules/y", 1)):
        create(tool, f"/memories/{path}", "x" * size)
    assert tool({"command": "view", "path": "/memories"}).splitlines()[1:] == [
        "3.5K\t/memories",
        "1.5K\t/memories/a.txt",
        "2.0K\t/memories/b/",
        "2K\t/memories/b/c.txt",
        "10B\t/memories/b/d/",
    ]
    assert tool({"command": "view", "path": "/memories/b/"}).splitlines() == [
        f"{HEAD} /memories/b, excluding hidden items and node_modules:",
        "2.0K\t/memories/b",
        "2K\t/memories/b/c.txt",
        "10B\t/memories/b/d/",
        "10B\t/memories/b/d/e.txt",
    ]


def test_a_file_is_shown_with_line_numbers(tool):
    create(tool, "/memories/a", "one\ntwo\nthree")
    head = "Here's the content of /memories/a with line numbers:\n"
    assert tool({"command": "view", "path": "/memories/a"}) == f"{head}     1\tone\n     2\ttwo\n     3\tthree"
    for view_range, lines in (
        ([2, 3], "     2\ttwo\n     3\tthree"),
        ([3, -1], "     3\tthree"),
        ([0, 1], "     1\tone"),
    ):
        assert tool({"command": "view", "path": "/memories/a", "view_range": view_range}) == head + lines


def test_a_file_with_too_many_lines_is_not_shown(connect):
    tool = MemoryTool(connect("tester", max_text=1_000_000), "s")
    create(tool, "/memories/a", "\n" * 999_998)
    assert not tool.answer({"command": "view", "path": "/memories/a", "view_range": [1, 1]}).is_error
    tool({"command": "insert", "path": "/memories/a", "insert_line": 0, "insert_text": ""})
    assert tool({"command": "view", "path": "/memories/a"}) == (
        "File /memories/a exceeds maximum line limit of 999,999 lines."
    )


def test_a_file_is_created_once(tool):
    assert create(tool, "/memories/a", "1") == "File created successfully at: /memories/a"
    assert create(tool, "/memories/a", "2") == "Error: File /memories/a already exists"
    assert create(tool, "/memories/d/x", "1") == "File created successfully at: /memories/d/x"
    assert create(tool, "/memories/d", "1") == "Error: File /memories/d already exists"
    assert "is a text, not a directory" in create(tool, "/memories/a/b", "1")


def test_a_part_of_a_file_is_replaced(tool):
    create(tool, "/memories/a", "\n".join(f"line {number}" for number in range(1, 8)))
    edit = {"command": "str_replace", "path": "/memories/a", "old_str": "line 4", "new_str": "line 1\nand more"}
    assert tool(edit) == (
        "The memory file has been edited.\n"
        "     2\tline 2\n     3\tline 3\n     4\tline 1\n     5\tand more\n     6\tline 5\n     7\tline 6"
    )
    assert tool(edit) == "No replacement was performed, old_str `line 4` did not appear verbatim in /memories/a."
    assert tool({**edit, "old_str": "line 1"}) == (
        "No replacement was performed. Multiple occurrences of old_str `line 1` in lines: 1, 4."
        " Please ensure it is unique"
    )
    assert "did not appear verbatim" in tool({**edit, "old_str": ""})
    for path in ("/memories/none", "/memories"):
        assert tool({**edit, "path": path}) == (f"Error: The path {path} does not exist. Please provide a valid path.")
    without = {name: value for name, value in edit.items() if name != "new_str"}
    assert tool({**without, "old_str": "line 7"}).startswith("The memory file has been edited.")


def test_lines_are_inserted(tool):
    create(tool, "/memories/a", "one\nthree\n")
    insert = {"command": "insert", "path": "/memories/a", "insert_line": 1, "insert_text": "two\n"}
    assert tool(insert) == "The file /memories/a has been edited."
    assert tool({**insert, "insert_line": 3, "insert_text": "four"}) == "The file /memories/a has been edited."
    assert tool({**insert, "insert_line": 0, "insert_text": "zero"}) == "The file /memories/a has been edited."
    shown = tool({"command": "view", "path": "/memories/a"}).splitlines()[1:]
    assert [line[7:] for line in shown] == ["zero", "one", "two", "three", "four", ""]
    for line in (6, -1):
        assert tool({**insert, "insert_line": line}) == (
            f"Error: Invalid `insert_line` parameter: {line}."
            " It should be within the range of lines of the file: [0, 5]"
        )
    assert tool({**insert, "path": "/memories/none"}) == "Error: The path /memories/none does not exist"


def test_files_and_directories_are_deleted(tool):
    for path in ("a", "d/x", "d/e/y", "dx"):
        create(tool, f"/memories/{path}", "1")
    assert tool({"command": "delete", "path": "/memories/a"}) == "Successfully deleted /memories/a"
    assert tool({"command": "delete", "path": "/memories/d"}) == "Successfully deleted /memories/d"
    assert tool({"command": "delete", "path": "/memories/d"}) == "Error: The path /memories/d does not exist"
    assert tool({"command": "view", "path": "/memories/d"}) == (
        "The path /memories/d does not exist. Please provide a valid path."
    )
    assert "Cannot delete" in tool({"command": "delete", "path": "/memories/"})
    assert tool({"command": "view", "path": "/memories"}).splitlines()[1:] == ["1B\t/memories", "1B\t/memories/dx"]
    assert create(tool, "/memories/a", "2") == "File created successfully at: /memories/a"


def test_files_and_directories_are_renamed(tool):
    for path in ("a", "d/x", "d/e/y"):
        create(tool, f"/memories/{path}", f"of {path}")
    rename = {"command": "rename", "old_path": "/memories/a", "new_path": "/memories/b/c"}
    assert tool(rename) == "Successfully renamed /memories/a to /memories/b/c"
    assert tool(rename) == "Error: The path /memories/a does not exist"
    assert tool({**rename, "old_path": "/memories/d"}) == "Error: The destination /memories/b/c already exists"
    assert tool({**rename, "old_path": "/memories/d", "new_path": "/memories/b"}) == (
        "Error: The destination /memories/b already exists"
    )
    assert tool({**rename, "old_path": "/memories/d", "new_path": "/memories/f"}) == (
        "Successfully renamed /memories/d to /memories/f"
    )
    assert tool({"command": "view", "path": "/memories/f/e/y"}).endswith("     1\tof d/e/y")
    assert tool.answer({**rename, "old_path": "/memories/f", "new_path": "/memories/f/g"}).is_error
    for old, new in (("/memories", "/memories/z"), ("/memories/f", "/memories")):
        assert tool.answer({**rename, "old_path": old, "new_path": new}).is_error


def test_scopes_are_separate_and_shared_by_buses(bus, tool, connect):
    create(tool, "/memories/a", "1")
    assert (
        MemoryTool(connect("another"), "project-a").answer({"command": "view", "path": "/memories/a"}).is_error is False
    )
    assert MemoryTool(bus, "project-b").answer({"command": "view", "path": "/memories/a"}).is_error


def test_a_repeated_call_changes_nothing(bus, tool):
    calls = [
        {"command": "create", "path": "/memories/a", "file_text": "one"},
        {"command": "str_replace", "path": "/memories/a", "old_str": "one", "new_str": "one, two"},
        {"command": "insert", "path": "/memories/a", "insert_line": 1, "insert_text": "three"},
        {"command": "rename", "old_path": "/memories/a", "new_path": "/memories/b"},
        {"command": "delete", "path": "/memories/b"},
    ]
    answers = []
    for number, call in enumerate(calls):
        first = tool.answer(call, event_id=f"toolu_{number}")
        length = log_length(bus)
        assert tool.answer(call, event_id=f"toolu_{number}") == first
        assert not first.is_error
        assert log_length(bus) == length
        answers.append(first)
    for number, call in enumerate(calls):  # also when the file is gone
        assert tool.answer(call, event_id=f"toolu_{number}") == answers[number]
    assert log_length(bus) == length


@pytest.mark.engines("memory", "embedded-4-shards")
def test_concurrent_writers_lose_nothing(bus, connect):
    create(MemoryTool(bus, "s"), "/memories/a", "first\n")

    def write(name):
        tool = MemoryTool(connect(f"writer-{name}"), "s")
        for number in range(10):
            line = f"{name}{number}"
            insert = {"command": "insert", "path": "/memories/a", "insert_line": 0, "insert_text": line}
            assert tool(insert) == "The file /memories/a has been edited."
            edit = {"command": "str_replace", "path": "/memories/a", "old_str": f"{line}\n", "new_str": f"{line}!\n"}
            assert tool(edit).startswith("The memory file has been edited.")

    writers = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    lines = bus.texts("s").read("a").content.splitlines()
    assert sorted(lines) == sorted(["first", *(f"{name}{number}!" for name in "abc" for number in range(10))])


BAD = [
    None,
    "view",
    {},
    {"command": "format"},
    {"command": ["view"]},
    {"command": "view"},
    {"command": "view", "path": 5},
    {"command": "view", "path": "/etc/passwd"},
    {"command": "view", "path": "/memoriesx"},
    {"command": "view", "path": "/memories/../etc/passwd"},
    {"command": "view", "path": "/memories/a", "view_range": [1]},
    {"command": "view", "path": "/memories/a", "view_range": ["1", "2"]},
    {"command": "view", "path": "/memories/a", "view_range": [5, 2]},
    {"command": "create", "path": "/memories/b"},
    {"command": "create", "path": "/memories/b", "file_text": None},
    {"command": "create", "path": "/memories/b", "file_text": "x" * 100_001},
    {"command": "create", "path": "/memories/b", "file_text": "\ud800"},
    {"command": "create", "path": "/memories", "file_text": "x"},
    {"command": "create", "path": "/memories//b", "file_text": "x"},
    {"command": "create", "path": "/memories/b\x00", "file_text": "x"},
    {"command": "create", "path": "/memories/..", "file_text": "x"},
    {"command": "str_replace", "path": "/memories/../a", "old_str": "1", "new_str": "2"},
    {"command": "insert", "path": "/memories/a", "insert_line": True, "insert_text": "x"},
    {"command": "insert", "path": "/memories/a", "insert_line": "0", "insert_text": "x"},
    {"command": "insert", "path": "/memories/a", "insert_line": 0, "insert_text": "x" * 100_001},
    {"command": "rename", "old_path": "/memories/a", "new_path": "/memories/../b"},
    {"command": "delete", "path": "/memories/.."},
]


@pytest.mark.parametrize("given", BAD, ids=str)
def test_bad_input_gets_an_error_and_changes_nothing(bus, tool, given):
    create(tool, "/memories/a", "1")
    length = log_length(bus)
    answer = tool.answer(given)
    assert answer.is_error
    assert answer.text
    assert log_length(bus) == length


@pytest.mark.parametrize(
    "given",
    [
        {"command": "view", "path": "/memories/../etc/passwd"},
        {"command": "create", "path": "/memories/d//b", "file_text": "x"},
        {"command": "rename", "old_path": "/memories/a", "new_path": "/memories/a/b"},
    ],
    ids=str,
)
def test_the_advice_for_a_bad_path_is_not_to_leave_out_memories(tool, given):
    create(tool, "/memories/a", "1")
    assert tool(given).endswith(", and begin it with /memories/ here")


SEGMENTS = st.sampled_from(["a", "b", "..", ".", "", "memories", "%2e%2e", "é", "\x00", "\\"]) | st.text(max_size=3)
ANYWHERE = st.builds(
    lambda start, names: start + "/".join(names),
    st.sampled_from(["/memories/", "/memories", "/", ""]),
    st.lists(SEGMENTS, max_size=4),
)


@pytest.fixture(scope="module")
def any_bus():
    with Bus.connect("memory://", bus="any-path", source="tester") as bus:
        yield bus


@given(st.lists(ANYWHERE, min_size=1, max_size=5))
@settings(max_examples=50)
def test_any_path_stays_below_memories(any_bus, given_paths):
    tool = MemoryTool(any_bus, "s")
    for path in given_paths:
        answer = tool.answer({"command": "create", "path": path, "file_text": path.encode(errors="replace").decode()})
        if not answer.is_error:
            assert path.startswith("/memories/")
            assert not {"..", ".", ""} & set(path.removeprefix("/memories/").removesuffix("/").split("/"))
    for text in any_bus.texts("s").list():
        assert text.content.rstrip("/") == f"/memories/{text.path}"


PATHS = st.sampled_from(["/memories/a", "/memories/b", "/memories/d/a", "/memories/d/e/b", "/memories/d"])
LINES = st.sampled_from(["", "x", "x\ny", "x\ny\n", "y\nx\nx\n"])
CALLS = st.one_of(
    st.fixed_dictionaries({"command": st.just("create"), "path": PATHS, "file_text": LINES}),
    st.fixed_dictionaries(
        {
            "command": st.just("str_replace"),
            "path": PATHS,
            "old_str": st.sampled_from(["x", "y", "z"]),
            "new_str": LINES,
        }
    ),
    st.fixed_dictionaries(
        {
            "command": st.just("insert"),
            "path": PATHS,
            "insert_line": st.integers(0, 4),
            "insert_text": st.sampled_from(["x", "z\n"]),
        }
    ),
    st.fixed_dictionaries({"command": st.just("delete"), "path": st.sampled_from(["/memories/a", "/memories/b"])}),
)


@pytest.mark.slow
@given(st.lists(CALLS, max_size=12))
@settings(max_examples=40)
def test_calls_have_the_same_effect_as_in_the_sdk(any_bus, sdk, calls):
    with tempfile.TemporaryDirectory() as base:
        theirs = sdk.BetaLocalFilesystemMemoryTool(base)
        ours = MemoryTool(any_bus, f"sdk-{Path(base).name}")
        root = Path(base) / "memories"
        for call in calls:
            file = Path(base) / call["path"][1:]
            if call["command"] == "insert" and file.is_file() and file.read_bytes().endswith(b"\n\n"):
                continue  # the SDK drops the empty line at the end
            answer = ours.answer(call)
            try:
                result = theirs.call(call)
            except (sdk.ToolError, NotADirectoryError, FileExistsError):
                assert answer.is_error, call
            else:
                assert not answer.is_error, call
                assert str(result).splitlines()[0].startswith(answer.text.splitlines()[0])
        files = {str(each.relative_to(root)): each.read_bytes().decode() for each in root.rglob("*") if each.is_file()}
    found = any_bus.texts(f"sdk-{Path(base).name}").list()
    assert {text.path: text.content for text in found} == files


def test_the_sdk_runs_the_tool(bus, sdk, adapter):
    tool = adapter.ScratchbusMemoryTool(bus, "s", cache_control={"type": "ephemeral"})
    assert tool.to_dict() == {"type": "memory_20250818", "name": "memory", "cache_control": {"type": "ephemeral"}}
    create = {"command": "create", "path": "/memories/a", "file_text": "1"}
    assert tool.call(create) == "File created successfully at: /memories/a"
    with pytest.raises(sdk.ToolError, match="File /memories/a already exists"):
        tool.call(create)
    with pytest.raises(sdk.ToolError, match="Unknown command"):
        tool.call({"command": "format"})


async def test_the_sdk_runs_the_tool_with_asyncio(adapter):
    async with AsyncBus.connect("memory://", bus="memory-tool", source="tester") as bus:
        tool = adapter.AsyncScratchbusMemoryTool(bus, "s")
        create = {"command": "create", "path": "/memories/a", "file_text": "1"}
        assert await tool.call(create) == "File created successfully at: /memories/a"
        assert (await AsyncMemoryTool(bus, "s")({"command": "view", "path": "/memories/a"})).endswith("     1\t1")
