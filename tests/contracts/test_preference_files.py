"""Preferences synced with a file."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scratchbus import AsyncBus, Bus, Synced
from scratchbus.commands import replaced_files
from scratchbus.domain import preference_file
from scratchbus.domain.preference_file import BEGIN, END, find_section
from scratchbus.errors import InvalidField
from scratchbus.memory import preference_sync

pytestmark = pytest.mark.engines("memory")


@pytest.fixture
def preferences(bus: Bus):
    return bus.preferences("ada/shop")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "AGENTS.md"


def texts(found):
    return {each.key: each.text for each in found}


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new), "utf-8")


def test_a_sync_writes_preferences_and_appends_file_edits(preferences, file):
    preferences.remember("quotes", "double")
    assert preferences.sync(file) == ([], [], [], True)
    assert "- **quotes**: double\n" in file.read_text()
    edit(file, "double", "single")
    edit(file, END, f"- tabs: never\n{END}")
    assert preferences.sync(file) == (["quotes", "tabs"], [], [], True)
    assert texts(preferences.list()) == {"quotes": "single", "tabs": "never"}
    assert preferences.history("quotes")[-1].text == "single"
    edit(file, "- **quotes**: single\n", "")
    preferences.remember("names", "short")
    assert preferences.sync(file) == ([], ["quotes"], [], True)
    assert texts(preferences.list()) == {"tabs": "never", "names": "short"}
    assert "- **names**: short\n" in file.read_text()
    assert preferences.sync(file) == ([], [], [], False)


def test_the_result_of_a_sync_says_whether_it_wrote_on_either_side(preferences, file):
    preferences.remember("quotes", "double")
    assert preferences.sync(file).wrote
    assert not preferences.sync(file).wrote
    assert Synced(["quotes"], [], [], is_written=False).wrote
    assert Synced([], ["quotes"], [], is_written=False).wrote


def test_an_erased_preference_is_removed_from_the_file(bus, preferences, file):
    preferences.remember("address", "5 Main Street")
    preferences.remember("quotes", "double")
    preferences.sync(file)
    erased = next(each.id for each in preferences.list() if each.key == "address")
    bus.page("knowledge:ada/shop").erase(erased, reason="asked for")
    assert preferences.sync(file) == ([], [], [], True)
    assert "Main Street" not in file.read_text()
    assert "Main Street" not in str([event.model_dump() for event in bus.events()])
    edit(file, END, f"- address: 6 Main Street\n{END}")
    assert preferences.sync(file) == (["address"], [], [], True)
    assert texts(preferences.list()) == {"quotes": "double", "address": "6 Main Street"}


def test_the_file_wins_a_conflict_and_history_keeps_the_other_text(preferences, file):
    preferences.remember("quotes", "double")
    preferences.sync(file)
    preferences.edit("quotes", "typographic")
    edit(file, "double", "single")
    assert preferences.sync(file).conflicts == ["quotes"]
    assert texts(preferences.list()) == {"quotes": "single"}
    assert [event.text for event in preferences.history("quotes")] == ["double", "typographic", "single"]


def test_a_change_wins_over_a_deletion_on_either_side(preferences, file):
    for key in ("a", "b"):
        preferences.remember(key, "old")
    preferences.sync(file)
    edit(file, "- **a**: old\n- **b**: old", "- **b**: new")
    preferences.edit("a", "new")
    preferences.forget("b")
    preferences.sync(file)
    assert texts(preferences.list()) == {"a": "new", "b": "new"}


@pytest.mark.parametrize(
    "around",
    [
        b"# Rules\n\nno end of line",
        b"\xef\xbb\xbf# With a mark\r\nand CRLF\r\n",
        b"",
        "Zoë\t \n\n\n".encode(),
        b"a\rb\x0cc\n",
    ],
)
def test_text_outside_the_marks_is_unchanged(preferences, file, around: bytes):
    preferences.remember("quotes", "double")
    file.write_bytes(around)
    preferences.sync(file)
    once = file.read_bytes()
    assert once.startswith(around)
    file.write_bytes(once + around)
    preferences.edit("quotes", "single")
    preferences.sync(file)
    assert file.read_bytes().startswith(around)
    assert file.read_bytes().endswith(f"{END}".encode() + once[once.index(END.encode()) + len(END) :] + around)
    assert preferences.sync(file).is_written is False


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"Caf\xe9\nx", "is not UTF-8 (the byte 0xe9 in line 1)"),
        ("# Rules".encode("utf-16"), "is not UTF-8 (the byte 0xff in line 1)"),
        ("# Rules".encode("utf-16-le"), "is not a text: it has null bytes"),
        (b"x" * (4 * 1024 * 1024 + 1), "is larger than 4 MiB"),
        (f"{BEGIN}\nfree text\n{END}".encode(), "line 2: 'free text' is not a preference"),
        (f"{BEGIN}\n".encode(), "has these marks: begin in line 1"),
        (f"{BEGIN}\n<!-- scope eve. -->\n{END}".encode(), "has the preferences of scope 'eve'"),
    ],
)
def test_an_invalid_file_is_refused_and_nothing_changes(bus, preferences, file, content: bytes, said: str):
    preferences.remember("quotes", "double")
    file.write_bytes(content)
    before = bus.position()
    with pytest.raises(InvalidField) as refused:
        preferences.sync(file)
    assert said in str(refused.value)
    assert str(file) in str(refused.value)
    assert (file.read_bytes(), bus.position()) == (content, before)


def test_a_file_of_exactly_the_largest_size_is_synced(preferences, file):
    file.write_bytes(b"x" * (4 * 1024 * 1024))
    preferences.remember("quotes", "double")
    assert preferences.sync(file).is_written
    assert "- **quotes**: double\n" in file.read_text()


def test_a_path_that_is_not_a_file_is_refused(preferences, tmp_path, file):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, said in (
        (".", "cannot be read: Is a directory; check the path"),
        ("pipe", "is not a regular file"),
        ("loop", "cannot be read: .*loop"),
        ("null\0byte", "cannot be read: embedded null byte"),
        ("missing/AGENTS.md", "cannot be written: the directory '.*missing' does not exist"),
    ):
        with pytest.raises(InvalidField, match=f"file: .*{said}"):
            preferences.sync(tmp_path / name)


def test_a_sync_keeps_symlinks_and_permissions(preferences, tmp_path, file):
    preferences.remember("quotes", "double")
    target = tmp_path / "CLAUDE.md"
    target.write_text("# Rules\n")
    target.chmod(0o640)
    file.symlink_to(target)
    preferences.sync(file)
    assert file.is_symlink()
    assert "double" in target.read_text()
    assert target.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["AGENTS.md", "CLAUDE.md"]


def test_a_symlink_to_another_directory_is_refused(preferences, bus, tmp_path, file):
    preferences.remember("quotes", "double")
    elsewhere = tmp_path / "elsewhere" / "hosts"
    elsewhere.parent.mkdir()
    elsewhere.write_text("127.0.0.1 localhost\n")
    file.symlink_to(elsewhere)
    before = bus.position()
    with pytest.raises(InvalidField, match=r"^file: \S*: is a link to .*hosts', in another directory; name that file$"):
        preferences.sync(file)
    assert (elsewhere.read_text(), bus.position()) == ("127.0.0.1 localhost\n", before)
    assert preferences.sync(elsewhere).is_written


def test_a_full_disk_leaves_the_file_unchanged(preferences, file, monkeypatch):
    preferences.remember("quotes", "double")
    file.write_text("# Rules\n")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(InvalidField, match="No space left on device"):
            preferences.sync(file)
    assert file.read_text() == "# Rules\n"
    assert [path.name for path in file.parent.iterdir()] == ["AGENTS.md"]
    assert preferences.sync(file).is_written


def test_an_edit_during_the_sync_is_not_overwritten(preferences, file, monkeypatch):
    preferences.remember("quotes", "double")
    preferences.sync(file)
    preferences.edit("quotes", "single")
    fsync, edits = os.fsync, ["- tabs: never"]

    def sync_and_edit(descriptor: int) -> None:
        fsync(descriptor)
        if edits:
            edit(file, END, f"{edits.pop()}\n{END}")

    monkeypatch.setattr(os, "fsync", sync_and_edit)
    assert preferences.sync(file) == (["tabs"], [], [], True)
    assert texts(preferences.list()) == {"quotes": "single", "tabs": "never"}


def test_an_edit_during_the_file_replacement_is_kept(preferences, file, monkeypatch):
    preferences.remember("quotes", "double")
    preferences.sync(file)
    preferences.edit("quotes", "single")
    replace, edits = Path.replace, ["- tabs: never"]

    def edit_and_replace(self: Path, target: Path) -> Path:
        if edits:
            edit(file, END, f"{edits.pop()}\n{END}")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", edit_and_replace)
    assert preferences.sync(file) == (["tabs"], [], [], True)
    assert texts(preferences.list()) == {"quotes": "single", "tabs": "never"}
    assert "- **tabs**: never\n" in file.read_text()
    assert [path.name for path in file.parent.iterdir()] == ["AGENTS.md"]


def test_a_file_created_during_a_sync_is_kept(preferences, file, monkeypatch):
    preferences.remember("quotes", "double")
    read, texts_of_others = preference_sync._read, ["", "# Rules\n"]

    def read_and_create(path: Path):
        found = read(path)
        if texts_of_others and (text := texts_of_others.pop(0)):  # after the check before the write
            file.write_text(text)
        return found

    monkeypatch.setattr(preference_sync, "_read", read_and_create)
    assert preferences.sync(file).is_written
    assert file.read_text().startswith("# Rules\n")
    assert "- **quotes**: double\n" in file.read_text()


def test_files_that_a_killed_sync_left_are_deleted(preferences, file, monkeypatch):
    preferences.remember("quotes", "double")
    part, former, other = (
        file.with_name(f".AGENTS.md.{name}") for name in (f"{'0' * 12}.part", f"{'0' * 12}.old", "20260101")
    )
    for each in (part, former, other):
        each.write_text("x")
    assert preferences.sync(file).is_written
    assert {path.name for path in file.parent.iterdir()} == {file.name, part.name, former.name, other.name}
    monkeypatch.setattr(replaced_files, "_MAX_AGE", -1)
    preferences.edit("quotes", "single")
    assert preferences.sync(file).is_written
    assert {path.name for path in file.parent.iterdir()} == {file.name, other.name}


def test_a_concurrent_edit_on_the_bus_stays_in_the_history(preferences, file, connect, monkeypatch):
    preferences.remember("quotes", "double")
    preferences.sync(file)
    edit(file, "double", "single")
    other, merge = connect("another").preferences("ada/shop"), preference_file.merge
    faster = ["typographic"]

    def merge_and_edit(*sides):
        merged = merge(*sides)
        if faster:
            other.edit("quotes", faster.pop())
        return merged

    monkeypatch.setattr(preference_sync, "merge", merge_and_edit)
    assert preferences.sync(file).conflicts == ["quotes"]
    assert [event.text for event in preferences.history("quotes")] == ["double", "typographic", "single"]


def test_a_conflict_is_reported_once_however_often_the_sync_tries(preferences, file, connect, monkeypatch):
    preferences.remember("quotes", "double")
    preferences.sync(file)
    edit(file, "double", "single")
    preferences.remember("quotes", "none")
    write, tries = preference_sync._write, []

    def interrupted(*arguments):
        tries.append(1)
        if len(tries) < 3:
            connect("ada").preferences("ada/shop").remember("quotes", f"other {len(tries)}")
        return (yield from write(*arguments))

    monkeypatch.setattr(preference_sync, "_write", interrupted)
    assert preferences.sync(file) == (["quotes"], [], ["quotes"], True)
    assert len(tries) == 3


def test_a_key_is_reported_once_however_often_the_sync_tries(preferences, file, connect, monkeypatch):
    for key in ("quotes", "tabs"):
        preferences.remember(key, "old")
    preferences.sync(file)
    edit(file, "old", "new")
    write, written, other = preference_sync._write, [], connect("another").preferences("ada/shop")

    def interrupted(core, page, change, stored):
        written.append(change.key)
        if written == ["quotes", "tabs"]:
            for key in written:
                other.edit(key, "other")
        return (yield from write(core, page, change, stored))

    monkeypatch.setattr(preference_sync, "_write", interrupted)
    assert preferences.sync(file).remembered == ["quotes", "tabs"]
    assert written == ["quotes", "tabs", "quotes", "tabs"]


def test_a_relative_path_in_a_deleted_directory_is_refused(preferences, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(InvalidField, match=r"AGENTS\.md: cannot be written"):
        preferences.sync("AGENTS.md")


async def test_a_sync_does_not_block_the_event_loop(file, monkeypatch):
    threads = []
    for name in ("_read", "_replace"):
        function = getattr(preference_sync, name)

        def called(*arguments, function=function):
            threads.append(threading.get_ident())
            return function(*arguments)

        monkeypatch.setattr(preference_sync, name, called)
    async with AsyncBus.connect("memory://", bus="preferences-async", source="tester") as bus:
        await bus.preferences("ada").remember("quotes", "double")
        assert (await bus.preferences("ada").sync(file)).is_written
    assert len(threads) >= 2
    assert threading.get_ident() not in threads


def test_a_section_of_another_bus_deletes_nothing(preferences, file, connect):
    other = connect(bus=f"{preferences._bus.core.log.bus}-2").preferences("ada/shop")
    other.remember("quotes", "single")
    preferences.remember("quotes", "double")
    preferences.sync(file)
    edit(file, "- **quotes**: double\n", "- **tabs**: never\n")
    other.remember("names", "short")  # so that its log has the position in the file
    other.sync(file)
    assert texts(other.list()) == {"quotes": "single", "names": "short", "tabs": "never"}


KEYS = st.sampled_from("abc")
TEXTS = st.sampled_from(["one", "two", "three\nlines\n\nof text"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("bus"), KEYS, TEXTS | st.none()),
        st.tuples(st.just("file"), KEYS, TEXTS | st.none()),
        st.just(("sync", "", None)),
    ),
    max_size=12,
)


@pytest.mark.slow
@pytest.mark.real
@settings(max_examples=40)
@given(steps=STEPS)
def test_both_sides_converge_and_every_text_stays_in_the_history(new_bus, tmp_path_factory, steps):
    with new_bus() as bus:
        assert_converges(bus.preferences("ada"), tmp_path_factory.mktemp("sync") / "AGENTS.md", steps)


def assert_converges(preferences, file, steps):
    preferences.remember("z", "there")
    preferences.sync(file)
    synced: set[tuple[str, str]] = set()
    for where, key, text in steps:
        if where == "bus" and text is not None:
            preferences.remember(key, text)
        elif where == "bus" and key in texts(preferences.list()):
            preferences.forget(key)
        elif where == "file":
            write_item(file, key, text)
        elif where == "sync":
            synced |= {*items_of(file).items()}
            preferences.sync(file)
            assert items_of(file) == texts(preferences.list())
    synced |= {*items_of(file).items()}
    preferences.sync(file)
    assert items_of(file) == texts(preferences.list())
    assert preferences.sync(file) == ([], [], [], False)
    said = {(event.key, event.text) for event in preferences.history() if event.kind == "preference_remembered"}
    assert synced <= said


def items_of(file: Path) -> dict[str, str]:
    return {item.key: item.text for item in find_section(file.read_text(), "preference_").items.values()}


def write_item(file: Path, key: str, text: str | None) -> None:
    """Edit the section as a person would: replace, add or delete an item."""
    items = items_of(file)
    if text is None:
        items.pop(key, None)
    else:
        items[key] = text
    head, _, rest = file.read_text().partition("## Preferences\n")
    lines = [f"- {name}: " + value.replace("\n", "\n  ") for name, value in items.items()]
    file.write_text("\n".join([f"{head}## Preferences", *lines, rest[rest.index(END) :]]))


@pytest.mark.parametrize("file", [7, None, b"CLAUDE.md"])
def test_a_file_that_is_no_path_is_refused(bus, file):
    with pytest.raises(InvalidField, match=r"file: .* is not a path"):
        bus.preferences("ada").sync(file)
