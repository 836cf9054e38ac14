"""Project rules are shown within limits, and the versions shown are recorded."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest

from scratchbus import Bus, events, read_rules
from scratchbus.cli import main
from scratchbus.errors import InvalidField
from scratchbus.workspace.rules import MAX_BYTES, MAX_FILES, MAX_TOTAL


def put(root: Path, path: str, data: str | bytes) -> str:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    whole = data if isinstance(data, bytes) else data.encode()
    file.write_bytes(whole)
    return sha256(whole).hexdigest()


def test_rules_are_read_in_order_with_their_digests(tmp_path: Path):
    agents, b = put(tmp_path, "AGENTS.md", "Test first.\n"), put(tmp_path, ".claude/rules/b.md", "B")
    claude, a = put(tmp_path, "CLAUDE.md", "Use double quotes.\n"), put(tmp_path, ".claude/rules/a.md", "A")
    put(tmp_path, ".claude/rules/a.txt", "no")
    assert [(rule.path, rule.sha256) for rule in read_rules(tmp_path)] == [
        ("CLAUDE.md", claude), ("AGENTS.md", agents), (".claude/rules/a.md", a), (".claude/rules/b.md", b),
    ]  # fmt: skip
    assert read_rules(tmp_path)[0].section == "## Rules: CLAUDE.md\nUse double quotes."


def test_copies_and_links_to_the_outside_are_left_out(tmp_path: Path):
    put(tmp_path, "secret", "password")
    put(tmp_path, "project/AGENTS.md", "Test first.")
    (tmp_path / "project/CLAUDE.md").symlink_to("AGENTS.md")
    put(tmp_path, "project/.claude/rules/copy.md", "Test first.")
    (tmp_path / "project/.claude/rules/out.md").symlink_to(tmp_path / "secret")
    (tmp_path / "project/.claude/rules/loop.md").symlink_to("loop.md")
    assert [rule.path for rule in read_rules(tmp_path / "project") if not rule.problem] == ["CLAUDE.md"]


def test_rules_have_limits(tmp_path: Path):
    long = "ä" * MAX_BYTES
    digest = put(tmp_path, "CLAUDE.md", "x" + long)
    for number in range(MAX_FILES + 5):
        put(tmp_path, f".claude/rules/{number:02}.md", f"{number} " + "x" * 4_000)
    first, *others = read_rules(tmp_path)
    assert first.sha256 == digest
    assert first.text == "x" + "ä" * (MAX_BYTES // 2 - 1)
    assert first.problem == "cut after 32,768 bytes"
    assert len(others) == MAX_FILES - 1
    assert sum(len(rule.text.encode()) for rule in (first, *others)) <= MAX_TOTAL


def test_the_section_of_a_file_says_that_it_is_cut(tmp_path: Path):
    put(tmp_path, "CLAUDE.md", "x" * (MAX_BYTES + 1))
    (rule,) = read_rules(tmp_path)
    assert rule.section == f"## Rules: CLAUDE.md (cut after 32,768 bytes)\n{'x' * MAX_BYTES}"


@pytest.mark.parametrize("start", ["", "a", "aa", "aaa"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_long_file_is_cut_between_characters(tmp_path: Path, mark: str, start: str):
    put(tmp_path, "CLAUDE.md", mark + start + "😀" * MAX_BYTES)
    (rule,) = read_rules(tmp_path)
    assert rule.problem == "cut after 32,768 bytes"
    assert rule.text.removeprefix(start) == "😀" * ((len(rule.text.encode()) - len(start)) // 4)
    assert MAX_BYTES - 8 < len(rule.text.encode()) <= MAX_BYTES


def test_rules_beyond_the_limit_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for number in range(2 * MAX_FILES):
        put(tmp_path, f".claude/rules/{number:03}.md", f"{number}")
    opened = list[Path]()
    os_open = os.open

    def counted(path: Path, flags: int) -> int:
        opened.append(path)
        return os_open(path, flags)

    monkeypatch.setattr(os, "open", counted)
    assert len(read_rules(tmp_path)) == MAX_FILES
    assert len(opened) <= MAX_FILES + 2


@pytest.mark.parametrize(
    ("data", "problem"),
    [("Grün".encode("latin-1"), "is not UTF-8"), (b"a\0b", "is binary"), (b"\xff" * 50_000, "UTF-8")],
)
def test_a_file_that_is_not_text_is_reported_and_not_shown(tmp_path: Path, data: bytes, problem: str):
    put(tmp_path, "CLAUDE.md", data)
    (rule,) = read_rules(tmp_path)
    assert rule.text == ""
    assert problem in rule.problem


def test_a_context_has_the_rules_and_records_their_versions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
):
    digest = put(tmp_path, "CLAUDE.md", "Use double quotes.")
    url = f"memory://{request.node.name}"
    with Bus.connect(url, source="me") as bus:
        assert main(["context", "--rules", str(tmp_path), "--session", "s1", "--record", "--url", url]) == 0
        assert "## Rules: CLAUDE.md\nUse double quotes." in capsys.readouterr().out
        (event,) = bus.events(kinds=["context_rendered"])
        assert isinstance(event, events.ContextRendered)
        assert (event.session, event.files, event.observations) == ("s1", {"CLAUDE.md": digest}, {})
        bus.context.assemble(session="s2", sections=["x"], files={"a": "b"}, record=True)
        *_, second = bus.events(kinds=["context_rendered"])
        assert isinstance(second, events.ContextRendered)
        assert (second.page, second.files) == ("session:s2", {"a": "b"})
        with pytest.raises(InvalidField, match="files"):
            bus.context.assemble(session="s2", files={"a": 1})  # type: ignore[dict-item]


@pytest.mark.parametrize("name", ["b\udcff.md", "b\n## Rules: c.md"])
def test_a_file_of_rules_whose_name_is_not_printable_is_left_out(tmp_path: Path, name: str):
    folder = tmp_path / ".claude/rules"
    folder.mkdir(parents=True)
    for each in ("a.md", name):
        (folder / each).write_text(each, "utf-8", "replace")
    assert [rule.path for rule in read_rules(tmp_path)] == [".claude/rules/a.md"]
