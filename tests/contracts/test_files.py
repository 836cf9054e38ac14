"""The private files of a session."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import tempfile
import threading
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scratchbus import AsyncBus, Bus
from scratchbus.commands import scratch_directory
from scratchbus.commands.scratch_directory import ScratchDirectory, name_of, session_of
from scratchbus.errors import (
    EventIdReused,
    FilesUnavailable,
    InvalidField,
    InvalidInput,
    NotFound,
    ScratchbusError,
    SessionOver,
    TooLarge,
)
from scratchbus.scheduling.expiry import run_expirer
from tests.inspection import log_length, project, remembered
from tests.waiting import PATIENCE, eventually


@pytest.fixture(autouse=True)
def _temporary_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("scratchbus.commands.files.home_of", lambda settings: tmp_path / "home")


@pytest.fixture
def files(bus: Bus):
    return bus.files("s1")


def paths(found):
    return [file.path for file in found]


def test_file_content_is_on_disk_and_not_in_the_log(bus, files, tmp_path):
    written = files.write("notes/plan.md", "Zoë\n")
    assert (written.path, written.size) == ("notes/plan.md", 5)
    assert (written.sha256, written.source) == (sha256("Zoë\n".encode()).hexdigest(), "tester")
    assert files.list() == [written]
    assert files.read("notes/plan.md") == "Zoë\n".encode()
    assert files.path("notes/plan.md").read_text("utf-8") == "Zoë\n"
    assert files.path().is_relative_to(tmp_path / "home" / "brain")
    assert files.path().name == "scratch"
    assert "Zo" not in str([event.model_dump() for event in bus.events()])


def test_file_can_be_replaced_deleted_and_rewritten(bus, files):
    files.write("a", "1")
    assert files.write("a", "22").version == 2
    files.delete("a")
    assert files.list() == []
    with pytest.raises(NotFound, match="there is no file 'a'"):
        files.read("a")
    with pytest.raises(NotFound, match="there is no file 'a'"):
        files.delete("a")
    assert files.write("a", b"\x00\xff").version == 4
    assert files.read("a") == b"\x00\xff"
    assert [event.kind for event in files.history("a")] == [
        "file_written",
        "file_written",
        "file_removed",
        "file_written",
    ]


def test_writing_a_file_again_restarts_its_age(files, clock):
    files.write("a", "1")
    clock.advance("29d")
    files.write("a", "1")
    clock.advance("2d")
    assert paths(files.sync()) == ["a"]


def test_empty_directories_are_removed(files):
    files.write("a/b/c", "1")
    files.write("a/d", "2")
    files.delete("a/b/c")
    assert sorted(each.name for each in files.path("a").iterdir()) == ["d"]


def test_retry_does_not_undo_later_writes(bus, files):
    files.write("a", "1", event_id="e1")
    files.write("a", "2")
    files.write("a", "1", event_id="e1")
    assert files.read("a") == b"2"
    with pytest.raises(EventIdReused):
        files.write("a", "3", event_id="e1")
    assert files.read("a") == b"2"
    files.delete("a", event_id="e2")
    files.write("a", "4")
    files.delete("a", event_id="e2")
    assert files.read("a") == b"4"


def test_retry_deletes_a_file_that_a_program_wrote(files):
    (files.path() / "a").write_text("1")
    files.delete("a", event_id="e1")
    files.delete("a", event_id="e1")
    assert [event.kind for event in files.history("a")] == ["file_written", "file_removed"]
    with pytest.raises(EventIdReused):
        files.delete("b", event_id="e1")
    (files.path() / "link").symlink_to("a")
    files.delete("link", event_id="e2")
    assert files.list() == []
    assert list(files.path().iterdir()) == []


def test_subagents_share_files_and_forks_do_not(bus, files):
    files.write("a", "1")
    child = bus.spawn_session("s1")
    grandchild = bus.spawn_session(child)
    assert bus.files(grandchild).read("a") == b"1"
    bus.files(grandchild).write("b", "2")
    assert paths(files.list()) == paths(bus.files(child).list()) == ["a", "b"]
    fork = bus.files(bus.fork_session("s1"))
    assert fork.list() == []
    fork.write("a", "of the fork")
    assert files.read("a") == b"1"


def test_sync_records_changes_made_by_programs(bus, files):
    files.write("kept", "1")
    files.write("gone", "2")
    where = files.path()
    (where / "gone").unlink()
    (where / "scripts").mkdir()
    (where / "scripts" / "check.py").write_text("print()")
    (where / "kept").write_text("changed")
    (where / "link").symlink_to("/etc/passwd")
    os.mkfifo(where / "pipe")
    (where / "odd\nname").write_text("x")
    assert paths(files.sync()) == ["kept", "scripts/check.py"]
    length = log_length(bus)
    assert [file.sha256 for file in files.sync()] == [sha256(b"changed").hexdigest(), sha256(b"print()").hexdigest()]
    assert log_length(bus) == length
    assert files.history("gone")[-1].why == "missing"


def test_sync_lists_the_names_that_systems_give_to_files(files):
    named = [
        "Screenshot 2026-11-29 at 10.00.00\u202fAM.png",
        "\U0001f469\u200d\U0001f4bb.txt",
        "no\u00a0break",
        "全\u3000角",
    ]
    for name in named:
        (files.path() / name).write_text("x")
    assert paths(files.sync()) == sorted(named)
    assert files.read(named[0]) == b"x"


def test_sync_tells_which_names_cannot_be_listed(files, capsys):
    (files.path() / "odd\u202ename").write_text("x")
    assert files.sync() == []
    said = capsys.readouterr().err
    assert "a private file is not listed; rename it" in said
    assert "name' has a backslash, or a character that is not printable" in said


def test_files_are_evicted_by_age(bus, files, clock):
    files.write("old", "1")
    clock.advance("29d")
    files.write("new", "2")
    assert paths(files.list()) == ["new", "old"]
    clock.advance("2d")
    assert paths(files.sync()) == ["new"]
    assert not files.path("old").exists()
    assert [event.why for event in files.history("old")[1:]] == ["age"]


def test_a_file_that_cannot_be_evicted_stops_neither_writes_nor_other_evictions(files, clock, monkeypatch):
    for path in ("stuck", "old"):
        files.write(path, "1")
    clock.advance("31d")
    remove = ScratchDirectory.remove

    def failing_remove(self, path):
        if path == "stuck":
            raise FilesUnavailable("stuck", "Permission denied")
        return remove(self, path)

    monkeypatch.setattr(ScratchDirectory, "remove", failing_remove)
    assert files.write("new", "2").path == "new"
    assert paths(files.list()) == ["new", "stuck"]
    with pytest.raises(FilesUnavailable, match="Permission denied"):
        files.sync()


def test_files_are_evicted_by_total_size_oldest_first(connect):
    files = connect("tester", max_files=10).files("s1")
    for name in "abc":
        files.write(name, "1234")
    assert paths(files.list()) == ["b", "c"]
    files.write("b", "123456")  # now the newest
    files.write("d", "1")
    assert paths(files.list()) == ["b", "d"]
    assert files.history("c")[-1].why == "size"
    with pytest.raises(TooLarge, match="11 bytes is over the limit of 10"):
        files.write("e", "x" * 11)
    assert paths(files.list()) == ["b", "d"]


def test_ended_session_accepts_no_files(bus, files):
    files.write("a", "1")
    bus.end_session("s1")
    for act in (lambda: files.write("b", "2"), lambda: files.delete("a"), files.sync):
        with pytest.raises(SessionOver):
            act()
    assert files.list() == []
    assert files.read("a") == b"1"


def test_a_retry_is_recognised_after_the_session_has_ended(bus, files):
    written = files.write("a", "1", event_id="e1")
    files.delete("a", event_id="e2")
    bus.end_session("s1")
    length = log_length(bus)
    assert files.write("a", "1", event_id="e1") == written
    files.delete("a", event_id="e2")
    with pytest.raises(EventIdReused):
        files.write("a", "2", event_id="e1")
    for act in (lambda: files.write("a", "1", event_id="e3"), lambda: files.delete("a", event_id="e4")):
        with pytest.raises(SessionOver):
            act()
    assert log_length(bus) == length
    with pytest.raises(NotFound):
        files.read("a")


def test_evict_files_covers_all_sessions_even_ended_ones(bus, files, clock):
    files.write("old", "1")
    over = bus.files("a/b:c")
    over.write("d/old", "1")
    over.write("new", "2")
    bus.end_session("a/b:c")
    old, new = over.path("d/old"), over.path("new")
    os.utime(old, (0, 0))
    clock.advance("31d")
    files.path("of a program").write_text("1")
    assert bus.evict_files() == {"a/b:c": 1, "s1": 1}
    assert (old.parent.exists(), new.exists()) == (False, True)
    assert [event.why for event in files.history("old")[1:]] == ["age"]
    os.utime(new, (0, 0))
    assert bus.evict_files() == {"a/b:c": 1}
    assert not new.parent.parent.exists()
    assert files.path("of a program").exists()
    assert bus.evict_files() == {}


def test_directories_of_others_do_not_stop_an_eviction(bus, files, clock):
    files.write("old", "1")
    own = files.path().parent
    own.with_name(own.name.replace("s1", "not%20a%20session")).mkdir()
    own.with_name(own.name.replace("s1", "a-file")).write_text("")
    clock.advance("31d")
    with pytest.raises(FilesUnavailable, match="a-file"):
        bus.evict_files()
    assert files.list() == []


def test_an_eviction_without_access_raises_files_unavailable(bus, files):
    brain = files.path().parent.parent
    brain.rename(brain.with_name("moved"))
    brain.write_text("a file now")
    try:
        with pytest.raises(FilesUnavailable, match="brain: Not a directory; free space or fix the permissions"):
            bus.evict_files()
    finally:
        brain.unlink()


def test_a_file_whose_path_leads_elsewhere_is_evicted_as_missing(files, clock, bus):
    files.write("a/b", "1")
    files.write("c", "1")
    shutil.rmtree(files.path("a"))
    files.path("a").write_text("a file now")
    clock.advance("31d")
    assert bus.evict_files() == {"s1": 2}
    assert files.path("a").read_text() == "a file now"
    assert [event.why for event in files.history("a/b")[1:]] == ["missing"]


def test_expirer_evicts_old_files(bus, files, clock):
    written = files.write("old", "1")
    clock.advance("31d")
    stop = threading.Event()
    expirer = threading.Thread(target=run_expirer, args=(bus, stop))
    expirer.start()
    try:
        eventually(lambda: files.list() == [])
    finally:
        stop.set()
        expirer.join(30)
    assert [event.why for event in files.history(written.path)[1:]] == ["age"]


def test_expirer_survives_a_failing_eviction(bus, files, clock, monkeypatch):
    files.write("old", "1")
    clock.advance("31d")
    met = threading.Event()

    def full(directory: ScratchDirectory, path: str) -> bool:
        met.set()
        raise FilesUnavailable(path, "no space left on device")

    monkeypatch.setattr(ScratchDirectory, "remove", full)
    expiring = bus.page().add("observation", "x", ttl="1s")
    stop = threading.Event()
    expirer = threading.Thread(target=run_expirer, args=(bus, stop))
    expirer.start()
    try:
        assert met.wait(30)
        clock.advance("1m")
        eventually(lambda: bus.page().history(expiring.id)[-1].kind == "status_changed")
    finally:
        stop.set()
        expirer.join(30)


def test_as_of_lists_the_files_of_that_time(bus, files):
    first = files.write("a", "1")
    second = files.write("b", "2")
    changed = files.write("a", "3")
    files.delete("b")
    assert files.as_of(first.position) == [first]
    assert files.as_of(second.position) == [first, second]
    assert files.as_of(changed.position) == [changed, second]
    assert files.as_of(bus.position()) == files.list() == [changed]
    bus.end_session("s1")
    assert files.list() == files.as_of(bus.position()) == []
    assert files.as_of(second.position) == [first, second]


def test_rebuild_keeps_the_list_of_files(bus, files):
    files.write("a", "1")
    files.write("b", "1")
    files.delete("b")
    project(bus)
    before = remembered(bus)
    bus.rebuild()
    assert remembered(bus) == before
    assert paths(files.list()) == ["a"]


def test_erased_file_can_be_written_again(bus, files):
    files.write("of-zoe.md", "1")
    bus.page("session:s1").erase(files.list()[0].id, reason="asked for")
    assert files.list() == []
    assert "of-zoe" not in str([event.model_dump() for event in bus.events()])
    assert paths([files.write("of-zoe.md", "1")]) == ["of-zoe.md"]
    assert paths(files.list()) == ["of-zoe.md"]


def test_erasing_a_file_deletes_it_on_disk(bus, files):
    files.write("people/of-zoe.md", "1")
    files.write("kept.md", "2")
    (erased,) = [file for file in files.list() if "zoe" in file.path]
    incoming = files.path().parent / "incoming" / "left-by-a-killed-writer"
    incoming.write_text("1")
    bus.page("session:s1").erase(erased.id, reason="asked for")
    with pytest.raises(NotFound):
        files.read("people/of-zoe.md")
    assert not (files.path() / "people").exists()
    assert not incoming.exists()
    assert paths(files.sync()) == ["kept.md"]
    (files.path() / "of-zoe.md").write_text("1")
    (again,) = [file for file in files.sync() if "zoe" in file.path]
    bus.page("session:s1").erase(again.id, reason="asked for")
    assert paths(files.sync()) == ["kept.md"]


def test_an_erasure_without_access_to_the_files_is_done_everywhere_else_and_says_so(bus, files):
    files.write("of-zoe.md", "1")
    id, page = files.list()[0].id, bus.page("session:s1")
    brain = files.path().parent.parent
    brain.rename(brain.with_name("moved"))
    brain.write_text("a file now")
    with pytest.raises(FilesUnavailable, match="Not a directory"):
        page.erase(id, reason="asked for")
    assert [event.kind for event in page.history(id)] == ["erased"]
    brain.unlink()
    brain.with_name("moved").rename(brain)
    page.erase(id, reason="asked for")
    assert not (files.path() / "of-zoe.md").exists()


def test_a_repeated_erasure_deletes_a_file_that_a_killed_one_left(bus, files, monkeypatch):
    files.write("of-zoe.md", "1")
    id, page = files.list()[0].id, bus.page("session:s1")

    def die(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("scratchbus.commands.erase._delete_file", die)
        with pytest.raises(KeyboardInterrupt):
            page.erase(id, reason="asked for")
    assert files.read("of-zoe.md") == b"1"
    page.erase(id, reason="asked for")
    assert files.sync() == []


def test_erasing_a_file_needs_no_directory(bus, files):
    files.write("of-zoe.md", "1")
    directory = files.path().parent
    shutil.rmtree(directory)
    bus.page("session:s1").erase(files.list()[0].id, reason="asked for")
    assert not directory.exists()


def test_full_disk_raises_and_leaves_the_file_unchanged(bus, files, monkeypatch):
    files.write("a", "before")
    length = log_length(bus)

    def full(descriptor, content):
        os.write(descriptor, content[:3])
        os.close(descriptor)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(scratch_directory, "_write", full)
        with pytest.raises(FilesUnavailable, match="No space left on device; free space or fix the permissions"):
            files.write("a", "after this")
    assert files.read("a") == b"before"
    assert log_length(bus) == length
    assert list(files.path().parent.joinpath("incoming").iterdir()) == []
    files.write("a", "after")
    assert files.read("a") == b"after"


def test_leftovers_of_a_killed_writer_are_deleted(files):
    files.write("a", "1")
    left = files.path().parent / "incoming" / "0123"
    left.write_text("half")
    files.write("b", "2")
    assert not left.exists()


def test_concurrent_writers_leave_disk_and_log_equal(bus, files):
    def write(name):
        for number in range(5):
            bus.files("s1").write("shared", f"{name}{number}")
            bus.files("s1").write(f"own-{name}", f"{number}")

    writers = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    found = {file.path: file.sha256 for file in files.list()}
    assert len(found) == 5
    assert found == {path: sha256(files.read(path)).hexdigest() for path in found}


BAD: list[object] = [
    "",
    "/etc/passwd",
    "..",
    "../x",
    "a/../../x",
    "a//b",
    "a/",
    ".",
    "./a",
    "a\x00b",
    "a\nb",
    "a\\b",
    "\ud800",
    "x" * 256,
]
BAD += ["/".join("a" * 40), "é" * 600, None, 5, b"a"]


@pytest.mark.engines("memory")
@pytest.mark.parametrize("path", BAD)
def test_bad_paths_are_refused(bus, files, path):
    for act in (lambda: files.write(path, "x"), lambda: files.read(path), lambda: files.delete(path)):
        with pytest.raises(InvalidField):
            act()
    assert log_length(bus) == 0


@pytest.mark.engines("memory")
@pytest.mark.parametrize("content", [None, 5, ["x"], "\ud800"])
def test_content_that_is_not_text_or_bytes_is_refused(bus, files, content):
    with pytest.raises(InvalidField):
        files.write("a", content)
    assert log_length(bus) == 0


@pytest.mark.engines("memory")
def test_links_and_pipes_are_refused(bus, files, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    files.write("a", "1")
    where = files.path()
    (where / "dir").symlink_to(outside)
    (where / "file").symlink_to(outside / "secret")
    os.mkfifo(where / "pipe")
    for path in ("dir/secret", "dir/new", "file", "pipe"):
        for act in (lambda path=path: files.read(path), lambda path=path: files.write(path, "x")):
            with pytest.raises(InvalidField, match="symbolic link"):
                act()
    with pytest.raises(InvalidField):
        files.delete("dir/secret")
    with pytest.raises(InvalidField):
        files.read("dir")
    assert [(each.name, each.read_text()) for each in outside.iterdir()] == [("secret", "secret")]


def test_directory_swapped_for_a_link_never_escapes(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("secret")
    scratch_dir = ScratchDirectory(tmp_path / "home", "s1")
    scratch_dir.put("a/x", b"inside")
    real, spare = scratch_dir.path / "a", scratch_dir.path / "spare"
    is_done = threading.Event()

    def swap():
        while not is_done.is_set():
            with suppress(OSError):
                os.rename(real, spare)
            with suppress(OSError):
                os.symlink(outside, real)
            with suppress(OSError):
                os.unlink(real)
            with suppress(OSError):
                os.rename(spare, real)

    swapper = threading.Thread(target=swap)
    swapper.start()
    read = set[bytes]()
    try:
        for _ in range(100):
            for act in (lambda: read.add(scratch_dir.get("a/x", 100)), lambda: scratch_dir.put("a/x", b"inside")):
                with suppress(ScratchbusError):
                    act()
    finally:
        is_done.set()
        swapper.join()
    assert read <= {b"inside"}
    assert [(each.name, each.read_text()) for each in outside.iterdir()] == [("x", "secret")]


NAMES = st.sampled_from(["a", "secret", "..", ".", "", "link", "up", "file", "\x00", "é", "x" * 300]) | st.text(
    max_size=4
)
PATHS = st.builds(
    lambda start, names: start + "/".join(names),
    st.sampled_from(["", "/", "./", "link/", "up/"]),
    st.lists(NAMES, max_size=5),
)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["put", "get", "remove"]), PATHS), min_size=1, max_size=8))
def test_no_path_escapes_the_directory(acts):
    with tempfile.TemporaryDirectory() as temporary:
        top = Path(temporary)
        (top / "secret").write_text("secret")
        scratch_dir = ScratchDirectory(top / "home", "s1")
        scratch_dir.make()
        (scratch_dir.path / "link").symlink_to(top)
        (scratch_dir.path / "up").symlink_to("..")
        for verb, path in acts:
            arguments = {"put": (path, b"new"), "get": (path, 100), "remove": (path,)}[verb]
            with suppress(InvalidInput, NotFound):
                assert getattr(scratch_dir, verb)(*arguments) != b"secret"
                if verb == "put":
                    assert (scratch_dir.path / path).resolve().is_relative_to(scratch_dir.path.resolve())
        assert sorted(each.name for each in top.iterdir()) == ["home", "secret"]
        assert (top / "secret").read_text() == "secret"
        assert {each.name for each in (top / "home" / "brain" / "s1").iterdir()} <= {"incoming", "scratch"}


SESSIONS = st.text("ab./:@_-", min_size=1, max_size=12) | st.text("a/:", min_size=100, max_size=120)


@given(SESSIONS, SESSIONS, st.sampled_from(["scratchbus", "a/b", ".."]))
def test_each_session_has_its_own_directory(one, other, bus):
    name = name_of(bus, one)
    assert "/" not in name
    assert name not in (".", "..")
    assert 0 < len(name) <= 200
    assert (name == name_of(bus, other)) == (one == other)
    assert (name == name_of("other", one)) is False
    assert session_of(bus, name) == (one if "~" not in name else None)
    assert session_of("other", name) is None


async def test_async_files():
    async with AsyncBus.connect("memory://", bus="files-async", source="tester") as bus:
        written = await bus.files("s1").write("a", "1")
        assert await bus.files("s1").list() == [written]
        assert await bus.files("s1").read("a") == b"1"


async def test_a_cancelled_write_keeps_the_lock_until_its_thread_ends(monkeypatch):
    is_writing, may_go_on = threading.Event(), threading.Event()
    put = ScratchDirectory.put

    def slow_put(self: ScratchDirectory, path: str, content: bytes) -> None:
        if content == b"1":
            is_writing.set()
            assert may_go_on.wait(PATIENCE)
        put(self, path, content)

    monkeypatch.setattr(ScratchDirectory, "put", slow_put)
    async with AsyncBus.connect("memory://", bus="files-cancelled", source="tester") as bus:
        cancelled = asyncio.create_task(bus.files("s1").write("a", "1"))
        assert await asyncio.to_thread(is_writing.wait, PATIENCE)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        second = asyncio.create_task(bus.files("s1").write("a", "2"))
        await asyncio.sleep(0.1)
        assert not second.done()
        may_go_on.set()
        written = await second
        assert (await bus.files("s1").read("a"), written.size) == (b"2", 1)


def test_eviction_passes_over_an_ended_session_without_files(bus, files):
    files.sync()  # makes its directory, but none for files
    other = bus.files("s2").path("a")
    other.write_text("1")
    os.utime(other, (0, 0))
    bus.end_session("s1")
    bus.end_session("s2")
    assert bus.evict_files() == {"s2": 1}
    assert not other.parent.parent.exists()
