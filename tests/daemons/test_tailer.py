"""A log file is read completely, despite truncation and rotation."""

import importlib
import os
import shutil

import pytest
from structlog.testing import capture_logs

from daemons import log_file
from daemons.bookmark import Bookmark, BookmarkFile, default_path
from daemons.tailer import Tailer
from scratchbus.errors import FileGone, InvalidInput


@pytest.fixture
def log(tmp_path):
    return tmp_path / "auth.log"


def append(log, text):
    with log.open("ab") as file:
        file.write(text.encode())


def texts(tailer, final=False):
    return [line.text for line in tailer.lines(final)]


def names(tailer, final=False):
    return [(line.identity, line.offset) for line in tailer.lines(final)]


def test_lines_have_no_line_ends(log):
    log.write_bytes(b"one\r\ntwo\n\nthree\n")
    assert texts(Tailer(log)) == ["one", "two", "", "three"]


def test_invalid_utf8_is_replaced(log):
    log.write_bytes(b"caf\xe9 \xff\n")
    assert texts(Tailer(log)) == ["caf\ufffd \ufffd"]


def test_each_line_is_yielded_once_as_the_file_grows(log):
    tailer = Tailer(log)
    append(log, "one\n")
    assert texts(tailer) == ["one"]
    append(log, "two\nthree\n")
    assert texts(tailer) == ["two", "three"]
    assert texts(tailer) == []


def test_a_line_waits_until_it_is_finished(log):
    tailer = Tailer(log)
    append(log, "one\ntw")
    assert texts(tailer) == ["one"]
    append(log, "o\n")
    assert texts(tailer) == ["two"]


def test_a_final_read_takes_an_unfinished_line_once(log):
    append(log, "one\ntwo")
    first = Tailer(log)
    assert texts(first, final=True) == ["one", "two"]
    assert texts(Tailer(log, first.position), final=True) == []
    append(log, "\nthree\n")
    assert texts(Tailer(log, first.position), final=True) == ["three"]


def test_a_completed_line_keeps_the_name_of_its_beginning(log):
    append(log, "one\ntw")
    first = Tailer(log)
    (_, name) = names(first, final=True)
    append(log, "o\n")
    assert [(line.text, line[1:]) for line in Tailer(log, first.position).lines()] == [("two", name)]


def test_a_line_over_many_blocks_stays_whole(log):
    long = "x" * 300_000
    append(log, f"{long}\nshort\n")
    assert texts(Tailer(log)) == [long, "short"]


def test_a_line_over_the_limit_is_split(log, monkeypatch):
    monkeypatch.setattr(log_file, "MAX_LINE", 4)
    monkeypatch.setattr(log_file, "_BLOCK", 4)
    append(log, "123456789\nab\n")
    assert texts(Tailer(log)) == ["1234", "5678", "9", "ab"]


def test_reading_continues_at_the_saved_position(log):
    append(log, "one\ntwo\n")
    first = Tailer(log)
    texts(first)
    append(log, "three\n")
    assert texts(Tailer(log, first.position)) == ["three"]


def test_the_position_stays_before_an_unprocessed_line(log):
    append(log, "one\ntwo\nthree\n")
    first = Tailer(log)
    lines = first.lines()
    next(lines), next(lines)  # crashes over "two"
    assert texts(Tailer(log, first.position)) == ["two", "three"]


def test_rereading_gives_lines_the_same_names(log):
    append(log, "one\ntwo\n")
    first = Tailer(log)
    before = names(first)
    append(log, "three\n")
    assert names(Tailer(log, first.position, from_start=True))[:2] == before
    assert names(Tailer(log))[:2] == before
    assert len(set(before)) == 2


def test_equal_lines_of_two_files_have_different_names(log, tmp_path):
    append(log, "one\n")
    shutil.copy(log, tmp_path / "copy.log")
    assert names(Tailer(log)) != names(Tailer(tmp_path / "copy.log"))


def test_a_truncated_file_is_reread_with_new_names(log):
    append(log, "one\ntwo\n")
    tailer = Tailer(log)
    before = names(tailer)
    os.truncate(log, 0)
    append(log, "one\n")
    (after,) = names(tailer)
    assert after not in before
    assert names(Tailer(log, tailer.position, from_start=True)) == [after]


def test_a_truncated_and_regrown_file_is_read_from_its_start(log):
    append(log, "one\n")
    first = Tailer(log)
    texts(first)
    log.write_text("another, and much longer\nthan before\n")
    assert texts(Tailer(log, first.position)) == ["another, and much longer", "than before"]


@pytest.mark.parametrize("after", ["three\n", "another, and much longer\nthan before\n"])
def test_a_truncation_between_two_looks_is_noticed_and_logged(log, after):
    append(log, "one\ntwo\n")
    tailer = Tailer(log)
    texts(tailer)
    os.truncate(log, 0)
    append(log, after)
    with capture_logs() as logs:
        assert texts(tailer) == after.splitlines()
        assert texts(tailer) == []
    assert [entry["log"] for entry in logs if "may be missing" in entry["event"]] == [str(log)]


@pytest.mark.parametrize("final", [False, True])
def test_a_truncation_during_a_look_is_noticed(log, monkeypatch, final):
    monkeypatch.setattr(log_file, "_BLOCK", 4)
    append(log, "one\ntwo\n")
    tailer = Tailer(log)
    lines = tailer.lines(final)
    assert next(lines).text == "one"
    os.truncate(log, 0)
    append(log, "three\nfour\nfive\nsix")
    assert list(lines) == []
    assert texts(tailer) == ["three", "four", "five"]


def test_a_hole_left_by_truncation_is_skipped(log):
    log.write_bytes(b"\0" * 100 + b"one\n")
    assert texts(Tailer(log)) == ["one"]


def rotate(log):
    log.rename(log.with_name("auth.log.1"))


def test_a_rotated_file_is_read_to_its_end_before_the_new_one(log):
    append(log, "one\n")
    tailer = Tailer(log)
    assert texts(tailer) == ["one"]
    append(log, "two\nunfinished")
    rotate(log)
    append(log, "new\n")
    assert texts(tailer) == ["two", "unfinished", "new"]


def test_the_old_file_is_read_while_the_new_one_is_empty(log):
    append(log, "one\n")
    tailer = Tailer(log)
    texts(tailer)
    rotate(log)
    log.touch()
    append(log.with_name("auth.log.1"), "late\n")
    assert texts(tailer) == ["late"]
    append(log, "new\n")
    assert texts(tailer) == ["new"]


def test_equal_lines_before_and_after_rotations_have_different_names(log):
    tailer = Tailer(log)
    seen = []
    for _ in range(5):
        append(log, "same\n")
        seen += names(tailer)
        log.replace(log.with_name("auth.log.1"))  # deletes the file before; its inode may be reused
    assert len(set(seen)) == 5


def test_line_names_do_not_depend_on_earlier_files(log):
    append(log, "one\n")
    tailer = Tailer(log)
    (old,) = names(tailer)
    rotate(log)
    append(log, "new\n")
    (new,) = names(tailer)
    assert names(Tailer(log)) == [new]
    assert names(Tailer(log.with_name("auth.log.1"))) == [old]


def test_names_of_deleted_files_are_not_reused(log):
    tailer = Tailer(log)
    seen = []
    for text in ["one\n", "another\n", "one\n", "another\n", "one\n"]:
        log.write_text(text)
        seen += names(tailer)
        tailer = Tailer(log, tailer.position)
    assert len(set(seen)) == 5


@pytest.mark.parametrize("later", [["three\n"], ["three\n", "", "four\nunfinished", "five\n"]], ids=["one", "four"])
def test_all_rotations_between_two_runs_are_read_in_order(log, later):
    append(log, "one\n")
    first = Tailer(log)
    texts(first)
    append(log, "two\n")
    for text in later:
        for number in (3, 2, 1):
            if (older := log.with_name(f"auth.log.{number}")).exists():
                older.rename(log.with_name(f"auth.log.{number + 1}"))
        rotate(log)
        append(log, text)
    second = Tailer(log, first.position)
    assert texts(second) == ["two", *(line for text in later for line in text.splitlines())]
    assert texts(Tailer(log, second.position)) == []
    append(log, "six\n")
    assert texts(Tailer(log, second.position)) == ["six"]


@pytest.mark.parametrize("way", ["the file rotates", "the link is set to a new file"])
def test_the_rest_of_a_log_behind_a_symbolic_link_is_read_after_a_restart(log, tmp_path, way):
    link = tmp_path / "links" / "current.log"
    link.parent.mkdir()
    link.symlink_to(log)
    append(log, "one\n")
    first = Tailer(link)
    assert texts(first) == ["one"]
    append(log, "two\n")
    if way == "the file rotates":
        rotate(log)
        append(log, "three\n")
        log.with_name("auth.log.1").rename(log.with_name("auth.log.2"))
        rotate(log)
        append(log, "four\n")
    else:
        append(log.with_name("auth-2.log"), "three\nfour\n")
        link.unlink()
        link.symlink_to(log.with_name("auth-2.log"))
    assert texts(Tailer(link, first.position)) == ["two", "three", "four"]


@pytest.mark.parametrize(("way", "before"), [("deleted", "one\n"), ("deleted", ""), ("truncated", "one\n")])
def test_lines_that_may_be_missing_after_a_restart_are_logged(log, way, before):
    append(log, before)
    first = Tailer(log)
    texts(first)
    append(log, "two\n")
    if way == "deleted":
        rotate(log)
        log.with_name("auth.log.1").unlink()
    else:
        os.truncate(log, 0)
    append(log, "three\n")
    with capture_logs() as logs:
        assert texts(Tailer(log, first.position)) == ["three"]
    assert [entry["log"] for entry in logs if "may be missing" in entry["event"]] == [str(log)]


def test_a_rotation_that_loses_nothing_is_not_logged(log):
    append(log, "one\n")
    first = Tailer(log)
    texts(first)
    rotate(log)
    append(log, "two\n")
    with capture_logs() as logs:
        assert texts(Tailer(log, first.position)) == ["two"]
    assert logs == []


def test_reading_continues_in_a_longer_copy_of_the_file(log, tmp_path):
    append(log, "one\n")
    first = Tailer(log)
    (before,) = names(first)
    copy = tmp_path / "auth.log.new"
    copy.write_text("one\ntwo\n")
    copy.replace(log)
    second = Tailer(log, first.position)
    assert [(line.text, line.identity) for line in second.lines()] == [("two", before[0])]


def test_a_recreated_file_is_read(log):
    append(log, "one\n")
    tailer = Tailer(log)
    texts(tailer)
    rotate(log)
    assert texts(tailer) == []
    append(log, "back\n")
    assert texts(tailer) == ["back"]


def test_a_missing_file_raises_file_gone(log):
    with pytest.raises(FileGone, match=r"auth\.log: no such file"):
        texts(Tailer(log))


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="not a regular file"):
        texts(Tailer(tmp_path))


def test_a_next_file_that_cannot_be_read_is_waited_for(log):
    tailer = Tailer(log)
    append(log, "one\n")
    assert texts(tailer) == ["one"]
    log.rename(log.with_name("old"))
    log.mkdir()
    append(log.with_name("old"), "two\n")
    assert texts(tailer) == ["two"]
    log.rmdir()
    append(log, "three\n")
    assert texts(tailer) == ["three"]


# -- bookmarks -------------------------------------------------------------------------------------------------------


def test_a_saved_bookmark_is_loaded(log, tmp_path):
    append(log, "one\n")
    tailer = Tailer(log)
    texts(tailer)
    os.truncate(log, 0)
    append(log, "one\n")
    texts(tailer)
    kept = Bookmark(tailer.position, "01ARZ3NDEKTSV4RRFFQ69G5FAV")
    file = BookmarkFile(tmp_path / "state" / "auth.json")
    file.save(kept)
    assert file.load() == kept
    assert [path.name for path in file.path.parent.iterdir()] == ["auth.json"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        "[" * 100_000,
        '{"place": {"inode": 1, "colour": 2}, "last_id": null}',
        '{"place": {"inode": "1"}, "last_id": null}',
        '{"place": {"inode": 1, "offset": -5}, "last_id": null}',
        '{"place": {"inode": 1, "offset": 5, "tail": 9}, "last_id": null}',
        '{"place": {"inode": 1, "offset": 5, "identity": "a.b"}, "last_id": null}',
        '{"place": {"inode": 1, "earlier": ["a"]}, "last_id": null}',
        '{"place": {"inode": 1, "earlier": {"a": null}}, "last_id": null}',
        '{"place": {"cursor": 1}, "last_id": null}',
        '{"place": {"inode": 1}, "last_id": 1}',
        '{"place": {"inode": 1}, "last_id": "x"}',
    ],
)
def test_an_unreadable_bookmark_is_ignored(tmp_path, text):
    path = tmp_path / "state.json"
    path.write_text(text)
    assert BookmarkFile(path).load() == Bookmark()


@pytest.mark.parametrize("module", ["gzip", "bz2", "lzma"])
def test_a_compressed_log_is_refused(log, module):
    log.write_bytes(importlib.import_module(module).compress(b"one\n"))
    with pytest.raises(InvalidInput, match="is compressed; unpack it"):
        texts(Tailer(log))


def test_an_unwritable_bookmark_is_an_error(log, tmp_path):
    append(log, "one\n")
    tailer = Tailer(log)
    texts(tailer)
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="cannot be written"):
        BookmarkFile(tmp_path / "file" / "state.json").save(Bookmark(tailer.position))


def test_each_log_and_target_has_its_own_bookmark(log, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    paths = {
        default_path(log, "a main"),
        default_path(log, "b main"),
        default_path(log.parent / "x", "a main"),
    }
    assert len(paths) == 3
    assert all(path.is_relative_to(tmp_path / "scratchbus" / "logwatch") for path in paths)


def test_a_rotation_in_a_directory_that_may_not_be_listed_is_survived(log, monkeypatch):
    append(log, "one\n")
    tailer = Tailer(log)
    assert texts(tailer) == ["one"]
    tailer.close()
    log.rename(log.with_name("auth.log.1"))
    append(log, "two\n")

    def forbidden(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", forbidden)
    assert texts(Tailer(log, tailer.position)) == ["two"]
