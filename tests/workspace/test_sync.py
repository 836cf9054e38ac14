"""Files of a directory and the memory of a session are kept in sync; unsuitable files are refused."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from scratchbus import Bus, WorkspaceSync, WorkspaceSynced, watch_preferences, watch_workspace
from scratchbus.commands import replaced_files
from scratchbus.errors import Conflict, InvalidInput, SessionOver, TooLarge
from scratchbus.workspace import shared_file
from scratchbus.workspace import sync as workspace_sync
from scratchbus.workspace.merge import merge_text
from scratchbus.workspace.shared_file import MAX_BYTES, FileChanged, SharedFile
from tests.waiting import eventually


@pytest.fixture
def bus(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bus]:
    monkeypatch.setenv("SCRATCHBUS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(shared_file, "_QUIET", 0)
    with Bus.connect(f"memory://{request.node.name}", source="workspace") as opened:
        yield opened


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


@pytest.fixture
def sync(bus: Bus, project: Path) -> WorkspaceSync:
    return WorkspaceSync(bus, project, "s1")


def todos(bus: Bus) -> list[tuple[str, str, str]]:
    return [(each.id, each.content, each.status) for each in bus.todo("s1").read().todos]


def test_missing_files_are_written(bus: Bus, project: Path, sync: WorkspaceSync):
    bus.todo("s1").write(
        [{"id": "a", "content": "Survey\nall sheets"}, {"id": "b", "content": "x", "status": "completed"}]
    )
    bus.notepad("s1").write("Q3 is off")
    assert sync.run().wrote == ("TODO.md", "NOTES.md")
    assert (project / "TODO.md").read_text() == "# TODO\n\n- [ ] Survey ⏎ all sheets\n- [x] x\n"
    assert (project / "NOTES.md").read_text() == "Q3 is off"
    assert sync.run().wrote == ()
    (project / "TODO.md").unlink()
    (project / "NOTES.md").write_text("  \n")
    assert sync.run().wrote == ("TODO.md", "NOTES.md")
    assert len(todos(bus)) == 2
    assert bus.notepad("s1").read() == "Q3 is off"


def test_a_byte_order_mark_in_the_notepad_stays_there(bus: Bus, project: Path, sync: WorkspaceSync):
    bus.notepad("s1").write("\ufeffQ3 is off")
    assert sync.run().wrote == ("TODO.md", "NOTES.md")
    assert (project / "NOTES.md").read_bytes() == b"Q3 is off"
    assert sync.run().wrote == ()
    assert bus.notepad("s1").read() == "\ufeffQ3 is off"


def test_a_file_without_items_keeps_its_heading(bus: Bus, project: Path, sync: WorkspaceSync):
    (project / "TODO.md").write_text("- [ ] one\n")
    sync.run()
    bus.todo("s1").write([])
    assert sync.run().wrote == ("TODO.md",)
    assert (project / "TODO.md").read_text() == "# TODO\n\n"
    assert sync.run().wrote == ()


def test_files_of_a_project_reach_a_new_session(bus: Bus, project: Path, sync: WorkspaceSync):
    (project / "TODO.md").write_text("* [ ] one\n* [x] two\n")
    (project / "NOTES.md").write_text("mine\n")
    assert sync.run().wrote == ("todo", "notepad")
    assert todos(bus) == [("1", "one", "pending"), ("2", "two", "completed")]
    assert bus.notepad("s1").read() == "mine\n"


def test_a_ticked_box_is_an_event_and_an_event_ticks_a_box(bus: Bus, project: Path, sync: WorkspaceSync):
    file = project / "TODO.md"
    file.write_text("# Mine\n\n1) [ ] one\n2) [ ] two   \n\n*end*\n")
    sync.run()
    file.write_text(file.read_text().replace("[ ] one", "[X] one"))
    bus.todo("s1").write([{"id": "2", "status": "in_progress"}], merge=True)
    assert sync.run().wrote == ("todo", "TODO.md")
    assert todos(bus) == [("1", "one", "completed"), ("2", "two", "in_progress")]
    assert file.read_text() == "# Mine\n\n1) [X] one\n2) [>] two   \n\n*end*\n"
    assert bus.todo("s1").history()[-1].by == "workspace"


def test_an_item_keeps_its_id_when_it_is_reworded_and_moved(bus: Bus, project: Path, sync: WorkspaceSync):
    bus.todo("s1").write([{"id": name, "content": f"Look at sheet {name}"} for name in "abc"])
    sync.run()
    text = (project / "TODO.md").read_text().splitlines(keepends=True)
    text[2:] = [text[4], text[2].replace("Look at sheet a", "Look at the sheet a!"), text[3]]
    (project / "TODO.md").write_text("".join(text))
    sync.run()
    assert [id for id, *_ in todos(bus)] == ["c", "a", "b"]
    assert todos(bus)[1][1] == "Look at the sheet a!"


def test_changes_on_both_sides_are_merged_or_both_kept(bus: Bus, project: Path, sync: WorkspaceSync):
    names = ("gone here", "gone there", "reworded", "both gone", "done here", "changed though gone there")
    bus.todo("s1").write([{"id": str(n), "content": name} for n, name in enumerate(names)])
    sync.run()
    file = project / "TODO.md"
    text = file.read_text().replace("- [ ] gone here\n", "").replace("- [ ] both gone\n", "")
    text = text.replace("[ ] done here", "[x] done here").replace("[ ] reworded", "[ ] reworded in the file")
    file.write_text(text.replace("[ ] changed though", "[>] changed though"))
    left = [todo for todo in bus.todo("s1").read().todos if todo.id in ("0", "2", "4")]
    left[1] = left[1].model_copy(update={"content": "reworded on the bus"})
    left[2] = left[2].model_copy(update={"status": "in_progress"})
    bus.todo("s1").write(left)
    sync.run()
    found = {content: status for _, content, status in todos(bus)}
    assert found == {
        "reworded on the bus": "pending",
        "reworded in the file": "pending",
        "done here": "completed",
        "changed though gone there": "in_progress",
    }
    assert "gone here" not in file.read_text()


def test_an_item_that_both_sides_ended_has_the_status_of_the_file(bus: Bus, project: Path, sync: WorkspaceSync):
    bus.todo("s1").write([{"id": "a", "content": "one"}, {"id": "b", "content": "two"}])
    sync.run()
    save(project / "TODO.md", "- [x] one\n- [-] two\n")
    bus.todo("s1").write(
        [{"id": "a", "content": "one", "status": "cancelled"}, {"id": "b", "content": "two", "status": "completed"}]
    )
    sync.run()
    assert todos(bus) == [("a", "one", "completed"), ("b", "two", "cancelled")]


def test_an_agent_can_add_an_item_like_another(bus: Bus, project: Path, sync: WorkspaceSync):
    bus.todo("s1").write([{"id": "a", "content": "one"}])
    sync.run()
    bus.todo("s1").write([{"id": id, "content": "one"} for id in "ab"])
    sync.run()
    assert todos(bus) == [("a", "one", "pending"), ("b", "one", "pending")]
    assert (project / "TODO.md").read_text() == "# TODO\n\n- [ ] one\n- [ ] one\n"


def test_an_agent_can_reorder_items(bus: Bus, project: Path, sync: WorkspaceSync):
    names = ("a", "b", "c")
    bus.todo("s1").write([{"id": name, "content": name} for name in names])
    sync.run()
    bus.todo("s1").write([{"id": name, "content": name} for name in reversed(names)])
    save(project / "TODO.md", "- [x] a\n- [ ] b\n- [ ] c\n")
    sync.run()
    assert todos(bus) == [("c", "c", "pending"), ("b", "b", "pending"), ("a", "a", "completed")]
    assert sync.run().wrote == ()


def test_a_line_removed_from_the_notes_is_removed_though_an_agent_added_one(
    bus: Bus, project: Path, sync: WorkspaceSync
):
    bus.notepad("s1").write("one\ntwo\n")
    sync.run()
    save(project / "NOTES.md", "two\n")
    bus.notepad("s1").append("three\n")
    sync.run()
    assert bus.notepad("s1").read() == (project / "NOTES.md").read_text() == "two\nthree\n"


def test_the_notes_are_merged_line_by_line():
    base = "a\nb\nc\n"
    assert merge_text(base, "a\nB\nc\n", "a\nb\nc\nd\n") == "a\nB\nc\nd\n"
    assert merge_text(base, "a\nB\nc\n", "a\nb2\nc\n") == "a\nB\nb2\nc\n"
    assert merge_text(base, "a\nc\n", "a\nb2\nc\n") == "a\nb2\nc\n"
    assert merge_text("", "one", "two") == "one\ntwo"
    long, longer = ("".join(f"{letter}{n}\n" for n in range(30_000)) for letter in "ab")
    began = time.process_time()
    assert merge_text("", long, longer) == long + longer
    assert time.process_time() - began < 5  # it took half a minute
    blank = "\n" * 20_000
    assert merge_text(blank, f"{blank}x\n", f"y\n{blank}") == f"y\n{blank}x\n"


def test_another_log_does_not_empty_the_files(bus: Bus, project: Path, sync: WorkspaceSync):
    bus.todo("s1").write([{"id": "a", "content": "one"}])
    sync.run()
    bus.todo("s1").write([{"id": "b", "content": "two"}])
    with Bus.connect("memory://another-log", source="workspace") as other:
        other.todo("s1").write([{"id": "b", "content": "two"}])
        again = WorkspaceSync(other, project, "s1")
        again._state = sync._state  # as after an engine lost everything
        again.run()
        assert {content for _, content, _ in todos(other)} == {"one", "two"}


def test_an_erased_todo_list_and_notepad_are_removed_from_the_files(bus: Bus, project: Path, sync: WorkspaceSync):
    bus.todo("s1").write([{"id": "a", "content": "call Zoe"}])
    bus.notepad("s1").write("Zoe is away")
    sync.run()
    for subject in ("todo", "notepad"):
        bus.page("session:s1").erase(subject, reason="asked for")
    bus.todo("s1").write([{"id": "b", "content": "two"}])
    sync.run()
    assert {content for _, content, _ in todos(bus)} == {"two"}
    assert "Zoe" not in (project / "TODO.md").read_text() + (project / "NOTES.md").read_text()
    assert "Zoe" not in str([event.model_dump() for event in bus.events()])


@pytest.mark.parametrize("later", ["", "two\n"])
def test_erased_notes_stay_erased_when_the_file_has_changed(bus: Bus, project: Path, sync: WorkspaceSync, later: str):
    bus.notepad("s1").write("Zoe is away\n\nplan A\ncall Zoe")
    sync.run()
    save(project / "NOTES.md", "Zoe is away\n\nplan B\ncall Zoe\n")
    bus.page("session:s1").erase("notepad", reason="asked for")
    bus.notepad("s1").append(later)
    sync.run()
    assert (project / "NOTES.md").read_text() == bus.notepad("s1").read() == f"\nplan B\n{later}"
    assert "Zoe" not in str([event.model_dump() for event in bus.events()])
    assert sync.run().wrote == ()


def test_an_erased_item_stays_erased_when_its_box_was_ticked(bus: Bus, project: Path, sync: WorkspaceSync):
    bus.todo("s1").write([{"id": id, "content": "call Zoe"} for id in ("a", "b")] + [{"id": "c", "content": "two"}])
    sync.run()
    save(project / "TODO.md", "- [x] call Zoe\n- [ ] call Zoe\n- [ ] two\n- [ ] three\n")
    bus.page("session:s1").erase("todo", reason="asked for")
    sync.run()
    assert (project / "TODO.md").read_text() == "- [ ] three\n"
    assert [content for _, content, _ in todos(bus)] == ["three"]
    assert "Zoe" not in str([event.model_dump() for event in bus.events()])


def test_the_end_of_a_session_does_not_empty_the_files(bus: Bus, project: Path, sync: WorkspaceSync):
    bus.todo("s1").write([{"id": "a", "content": "one"}])
    sync.run()
    bus.end_session("s1")
    with pytest.raises(SessionOver):
        sync.run()
    assert "one" in (project / "TODO.md").read_text()


@pytest.mark.parametrize("name", ["TODO.md", "NOTES.md"])
def test_a_session_that_ends_during_a_sync_does_not_empty_the_files(
    bus: Bus, project: Path, sync: WorkspaceSync, monkeypatch: pytest.MonkeyPatch, name: str
):
    bus.todo("s1").write([{"id": "a", "content": "one"}])
    bus.notepad("s1").write("two")
    sync.run()

    def settled(path: Path, read: Callable[[], Any]) -> Any:
        if path.name == name:
            bus.end_session("s1")
        return read()

    monkeypatch.setattr(workspace_sync, "settled", settled)
    with pytest.raises(SessionOver):
        sync.run()
    assert "one" in (project / "TODO.md").read_text()
    assert (project / "NOTES.md").read_text() == "two"


def test_a_lost_log_does_not_empty_the_notes(bus: Bus, project: Path, sync: WorkspaceSync):
    bus.notepad("s1").write("one\ntwo\n")
    sync.run()
    sync.bus.notepad("s1").write("two\n")
    sync.run()
    assert (project / "NOTES.md").read_text() == "two\n"
    with Bus.connect("memory://another-log", source="workspace") as other:
        other.notepad("s1").write("three\n")
        again = WorkspaceSync(other, project, "s1")
        again._state = sync._state  # as after an engine lost everything
        again.run()
        assert other.notepad("s1").read() == (project / "NOTES.md").read_text() == "two\nthree\n"
        other.notepad("s1").write("three\n")
        again.run()
        assert (project / "NOTES.md").read_text() == "three\n"


def test_everything_can_be_removed_after_a_log_was_lost(bus: Bus, project: Path, sync: WorkspaceSync):
    bus.todo("s1").write([{"id": "a", "content": "one"}, {"id": "b", "content": "two"}])
    bus.notepad("s1").write("one\ntwo\n")
    sync.run()
    with Bus.connect("memory://yet-another-log", source="workspace") as other:
        again = WorkspaceSync(other, project, "s1")
        again._state = sync._state
        assert again.run().wrote == ("todo", "notepad")
        other.todo("s1").write([{"id": "a", "content": "one"}])
        other.notepad("s1").write("one\n")
        again.run()
        assert (project / "TODO.md").read_text() == "# TODO\n\n- [ ] one\n"
        assert (project / "NOTES.md").read_text() == "one\n"


def refuses(sync: WorkspaceSync, file: Path, problem: str, error: type[Exception] = InvalidInput) -> None:
    before = file.read_bytes() if file.is_file() else None
    with pytest.raises(error, match=problem):
        sync.run()
    assert (file.read_bytes() if file.is_file() else None) == before
    assert not list(file.parent.glob(".*.part"))


@pytest.mark.parametrize("name", ["TODO.md", "NOTES.md"])
@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"- [ ] a\0b\n", "is binary"),
        ("- [ ] Grün\n".encode("latin-1"), "not UTF-8 text .byte 0xfc at 8."),
        (b"x" * (MAX_BYTES + 1), "is larger than 1,048,576 bytes"),
    ],
)
def test_a_file_that_is_not_text_is_refused_and_unchanged(
    project: Path, sync: WorkspaceSync, name: str, data: bytes, problem: str
):
    (project / name).write_bytes(data)
    refuses(sync, project / name, problem)


def test_a_byte_order_mark_and_permissions_stay(bus: Bus, project: Path, sync: WorkspaceSync):
    file = project / "TODO.md"
    file.write_bytes(b"\xef\xbb\xbf- [ ] one\r\n")
    file.chmod(0o640)
    sync.run()
    bus.todo("s1").write([{"id": "1", "status": "completed"}], merge=True)
    sync.run()
    assert file.read_bytes() == b"\xef\xbb\xbf- [x] one\r\n"
    assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("/etc/hostname"), Path.mkdir, os.mkfifo])
def test_only_regular_files_of_the_directory_are_synced(
    project: Path, sync: WorkspaceSync, make: Callable[[Path], Any]
):
    make(project / "TODO.md")
    refuses(sync, project / "TODO.md", "is a symbolic link|is not a file")


def test_a_list_over_the_limits_is_refused_and_not_cut(bus: Bus, project: Path, sync: WorkspaceSync):
    (project / "TODO.md").write_text("".join(f"- [ ] item {n}\n" for n in range(257)))
    refuses(sync, project / "TODO.md", "257", TooLarge)
    (project / "TODO.md").write_text(f"- [ ] {'x' * 4_001}\n")
    refuses(sync, project / "TODO.md", "4,?001", TooLarge)
    assert todos(bus) == []


def test_a_list_far_over_the_limits_is_refused_before_it_is_merged(
    bus: Bus, project: Path, sync: WorkspaceSync, monkeypatch: pytest.MonkeyPatch
):
    bus.todo("s1").write([{"id": "a", "content": "one"}, {"id": "b", "content": "two"}])
    sync.run()
    bus.todo("s1").write([{"id": "b", "content": "two"}])
    file = project / "TODO.md"
    file.write_text("- [ ] one\n- [ ] two\n" + "".join(f"- [ ] item {n}\n" for n in range(255)))
    sync.run()  # one of 257 has been removed on the bus
    assert len(todos(bus)) == 256
    monkeypatch.setattr(workspace_sync, "merge_items", None)
    file.write_text("".join(f"- [ ] new {n}\n" for n in range(513)))
    refuses(sync, file, "513", TooLarge)


def test_a_notepad_over_the_limit_is_refused(bus: Bus, project: Path, sync: WorkspaceSync):
    (project / "NOTES.md").write_text("x" * 100_001)
    refuses(sync, project / "NOTES.md", "100,?001", TooLarge)
    assert bus.notepad("s1").read() == ""


def test_a_full_disk_loses_nothing(bus: Bus, project: Path, sync: WorkspaceSync, monkeypatch: pytest.MonkeyPatch):
    bus.todo("s1").write([{"id": "a", "content": "one"}])
    sync.run()
    bus.todo("s1").write([{"id": "a", "content": "one"}, {"id": "b", "content": "two"}])

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        refuses(sync, project / "TODO.md", "No space left", OSError)
    sync.run()
    assert "- [ ] two" in (project / "TODO.md").read_text()
    assert len(todos(bus)) == 2


def test_a_file_changed_since_its_read_is_not_replaced(project: Path):
    file = SharedFile(project, "TODO.md")
    for data in (None, b"one\n"):
        if data is not None:
            file.path.write_bytes(data)
        seen = file.read()
        file.path.write_text("someone else\n")
        with pytest.raises(FileChanged, match="was changed meanwhile"):
            file.replace("mine\n", seen)
        assert file.path.read_text() == "someone else\n"
    assert [path.name for path in project.iterdir()] == ["TODO.md"]


def test_files_that_a_killed_writer_left_are_deleted(bus: Bus, project: Path, sync: WorkspaceSync, tmp_path: Path):
    sync.run()
    (state,) = (tmp_path / "home").glob("workspace/*.json")
    old, new, other = (project / f".TODO.md.{name}.part" for name in ("0" * 12, "1" * 12, "theirs"))
    for each in (old, new, other):
        each.write_text("x")
    for each in (old, other):
        os.utime(each, (0, 0))
    state.with_suffix(".part").write_text("x")
    bus.todo("s1").write([{"id": "a", "content": "one"}])
    sync.run()
    assert {path.name for path in project.iterdir()} == {"TODO.md", "NOTES.md", new.name, other.name}
    assert list(state.parent.glob("*.part")) == []


def test_the_second_name_that_a_killed_writer_left_is_deleted(
    bus: Bus, project: Path, sync: WorkspaceSync, monkeypatch: pytest.MonkeyPatch
):
    sync.run()
    former = project / f".TODO.md.{'0' * 12}.old"
    os.link(project / "TODO.md", former)
    os.utime(former, (0, 0))  # the link is new, whatever the age of its content
    bus.todo("s1").write([{"id": "a", "content": "one"}])
    sync.run()
    assert former.exists()
    monkeypatch.setattr(replaced_files, "_MAX_AGE", -1)
    bus.todo("s1").write([{"id": "a", "content": "two"}])
    sync.run()
    assert {path.name for path in project.iterdir()} == {"TODO.md", "NOTES.md"}


def test_a_file_created_during_a_write_is_kept(project: Path, monkeypatch: pytest.MonkeyPatch):
    file, read = SharedFile(project, "TODO.md"), SharedFile._bytes
    seen = file.read()

    def read_and_create(self: SharedFile) -> bytes | None:
        found = read(self)
        file.path.write_text("someone else\n")
        return found

    monkeypatch.setattr(SharedFile, "_bytes", read_and_create)
    with pytest.raises(FileChanged, match="was changed meanwhile"):
        file.replace("mine\n", seen)
    assert file.path.read_text() == "someone else\n"
    assert [path.name for path in project.iterdir()] == ["TODO.md"]


def test_a_write_during_a_replacement_is_restored(project: Path, monkeypatch: pytest.MonkeyPatch):
    file, replace = SharedFile(project, "TODO.md"), Path.replace
    file.path.write_text("one\n")

    def write_and_replace(self: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", replace)
        file.path.write_text("someone else\n")
        return self.replace(target)

    seen = file.read()
    monkeypatch.setattr(Path, "replace", write_and_replace)
    with pytest.raises(FileChanged, match="was changed meanwhile"):
        file.replace("mine\n", seen)
    assert file.path.read_text() == "someone else\n"
    assert [path.name for path in project.iterdir()] == ["TODO.md"]


def test_a_target_is_reported_once_however_often_the_sync_tries(
    bus: Bus, project: Path, sync: WorkspaceSync, monkeypatch: pytest.MonkeyPatch
):
    bus.todo("s1").write([{"id": "a", "content": "zero"}])
    sync.run()
    bus.todo("s1").write([{"id": "b", "content": "three"}], merge=True)
    (project / "TODO.md").write_text("- [ ] zero\n- [ ] one\n")
    replace, appended = SharedFile.replace, ["- [ ] two\n"]

    def append_and_replace(self: SharedFile, *arguments: Any) -> Any:
        if appended:
            with (project / "TODO.md").open("a") as file:
                file.write(appended.pop())
        return replace(self, *arguments)

    monkeypatch.setattr(SharedFile, "replace", append_and_replace)
    assert sync.run().wrote == ("todo", "TODO.md")
    assert {item.content for item in bus.todo("s1").read().todos} == {"zero", "one", "two", "three"}


def test_a_constantly_changing_file_is_a_conflict(
    bus: Bus, project: Path, sync: WorkspaceSync, monkeypatch: pytest.MonkeyPatch
):
    bus.todo("s1").write([{"id": "a", "content": "one"}])

    def busy(self: SharedFile, *_: object) -> None:
        raise FileChanged("x")

    monkeypatch.setattr(SharedFile, "replace", busy)
    with pytest.raises(Conflict, match="keeps changing"):
        sync.run()


def test_a_missing_directory_is_refused(bus: Bus, tmp_path: Path):
    with pytest.raises(InvalidInput, match="is not a directory"):
        WorkspaceSync(bus, tmp_path / "nowhere", "s1")


@pytest.mark.parametrize("state", [b"", b"not JSON", b"[]", b'{"items": 1}', b'{"items": {"a": [1]}}'])
def test_a_damaged_state_loses_nothing(bus: Bus, project: Path, sync: WorkspaceSync, state: bytes):
    bus.todo("s1").write([{"id": "a", "content": "one"}])
    sync.run()
    sync._state._path.write_bytes(state)
    (project / "TODO.md").write_text("- [ ] one\n- [ ] two\n")
    bus.todo("s1").write([{"id": "c", "content": "three"}], merge=True)
    sync.run()
    assert {content for _, content, _ in todos(bus)} == {"one", "two", "three"}


def test_concurrent_syncs_of_one_directory_lose_nothing(bus: Bus, project: Path):
    (project / "TODO.md").write_text("- [ ] first\n")

    def work(number: int) -> None:
        sync = WorkspaceSync(bus, project, "s1")
        for n in range(5):
            bus.todo("s1").write([{"id": f"{number}-{n}", "content": f"item {number}-{n}"}], merge=True)
            sync.run()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    WorkspaceSync(bus, project, "s1").run()
    assert len(todos(bus)) == len({content for _, content, _ in todos(bus)}) == 21
    assert (project / "TODO.md").read_text().count("- [ ] ") == 21


def save(file: Path, content: str | bytes) -> None:
    """Replace a watched file at once: with `_QUIET` at 0, a watch would also read one that is only half written."""
    new = file.with_name(f".{file.name}.new")
    new.write_bytes(content if isinstance(content, bytes) else content.encode())
    new.replace(file)


def test_a_watch_follows_both_sides_until_stopped(bus: Bus, project: Path, sync: WorkspaceSync):
    reported: list[Any] = []
    stop = threading.Event()
    watching = threading.Thread(target=watch_workspace, args=(sync, reported.append, stop))
    watching.start()
    try:
        file = project / "TODO.md"
        eventually(file.exists)
        bus.todo("s1").write([{"id": "a", "content": "one"}])
        eventually(lambda: "- [ ] one" in file.read_text())
        save(file, file.read_text().replace("[ ]", "[x]"))
        eventually(lambda: todos(bus) == [("a", "one", "completed")])
        save(file, b"\0")
        eventually(lambda: any(isinstance(each, InvalidInput) for each in reported))
        save(file, "- [ ] one\n")
        eventually(lambda: todos(bus) == [("a", "one", "pending")])
    finally:
        stop.set()
        watching.join(30)
    assert not watching.is_alive()
    assert sum(isinstance(each, InvalidInput) for each in reported) == 1
    wrote = [each.wrote for each in reported if isinstance(each, WorkspaceSynced)]
    assert {("TODO.md",), ("todo",)} < set(wrote)
    assert () not in wrote


def test_a_watch_without_notifications_syncs_every_second(
    bus: Bus, project: Path, sync: WorkspaceSync, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: Any, **__: Any) -> Iterator[Any]:
        raise RuntimeError("Error creating recommended watcher: Too many open files (os error 24)")

    monkeypatch.setattr("watchfiles.watch", fail)
    stop = threading.Event()
    watching = threading.Thread(target=watch_workspace, args=(sync, lambda _: None, stop))
    watching.start()
    try:
        file = project / "TODO.md"
        eventually(file.exists)
        save(file, "- [x] one\n")
        eventually(lambda: todos(bus) == [("1", "one", "completed")])
    finally:
        stop.set()
        watching.join(30)
    assert not watching.is_alive()


def test_a_watch_of_preferences_follows_both_sides(bus: Bus, project: Path):
    reported: list[Any] = []
    stop = threading.Event()
    file, preferences = project / "AGENTS.md", bus.preferences("ada/shop")
    watching = threading.Thread(target=watch_preferences, args=(bus, "ada/shop", file, reported.append, stop))
    watching.start()
    try:
        preferences.remember("quotes", "double")
        eventually(lambda: file.exists() and "- **quotes**: double" in file.read_text())
        save(file, file.read_text().replace("double", "single"))
        eventually(lambda: any(each.remembered == ["quotes"] for each in reported))  # and the file is written again
        assert [each.text for each in preferences.list()] == ["single"]
        save(file, b"\xff")
        eventually(lambda: any(isinstance(each, InvalidInput) for each in reported))
        save(file, "# Rules\n")
        eventually(lambda: "- **quotes**: single" in file.read_text())
        preferences.forget("quotes")
        eventually(lambda: "quotes" not in file.read_text())
    finally:
        stop.set()
        watching.join(30)
    assert not watching.is_alive()
    assert file.read_text().startswith("# Rules\n")
    assert sum(isinstance(each, InvalidInput) for each in reported) == 1


def test_a_watch_reports_a_loop_of_links(bus: Bus, project: Path):
    file = project / "AGENTS.md"
    file.symlink_to("AGENTS.md")
    reported: list[Any] = []
    stop = threading.Event()

    def report(result: Any) -> None:
        reported.append(result)
        stop.set()

    watch_preferences(bus, "ada/shop", file, report, stop)
    (problem,) = reported
    assert isinstance(problem, InvalidInput)
