"""The directory of an embedded engine: foreign data, paths and permissions."""

import os
import shutil

import pytest

from scratchbus.engine.embedded import directory as engine_directory
from scratchbus.engine.embedded.directory import Origin, Record
from scratchbus.engine.embedded.server import ensure_running, find_running, stop
from scratchbus.errors import EngineNotStarted, ForeignData
from tests.log.engine_processes import client, edit_record, is_alive

# -- data of other engines -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("origin", [Origin("redis", "7.0.15"), Origin("valkey", "99.0.0")])
def test_data_of_another_or_a_newer_engine_is_refused(directory, origin, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    ensure_running(directory)
    stop(directory)
    edit_record(directory, engine=origin.engine, version=origin.version)
    with pytest.raises(ForeignData, match=f"was written by {origin}, .* install {origin} or newer, or choose another"):
        ensure_running(directory)
    record = engine_directory.read_record(directory)
    assert record is not None
    assert (record.engine, record.version) == origin


def test_data_of_an_older_engine_is_accepted(directory):
    ensure_running(directory)
    stop(directory)
    edit_record(directory, version="8.0.0")
    engine = ensure_running(directory)
    record = engine_directory.read_record(directory)
    assert record is not None
    assert (record.engine, record.version, record.pid) == ("valkey", engine.version, engine.pid)


def test_a_record_without_data_is_ignored(directory):
    directory.mkdir(mode=0o700)
    engine_directory.write_record(directory, Record("redis", "99.0.0", "engine.sock"))
    assert ensure_running(directory).engine == "valkey"


def test_data_without_a_record_names_its_engine(directory):
    base = directory / "appendonlydir" / "appendonly.aof.1.base.rdb"
    base.parent.mkdir(parents=True)
    base.write_bytes(b"REDIS0012\xfa\tredis-ver\x0699.0.1\xfa\nredis-bits\xc0@")
    with pytest.raises(ForeignData, match=r"was written by redis 99\.0\.1"):
        ensure_running(directory)


def test_data_of_unknown_origin_is_refused(directory):
    directory.mkdir()
    (directory / "dump.rdb").write_bytes(b"something")
    with pytest.raises(ForeignData, match=r"dump\.rdb was not written by scratchbus; use an empty directory"):
        ensure_running(directory)
    assert (directory / "dump.rdb").read_bytes() == b"something"


# -- paths and permissions-----------------------------------------------------------------------------------------


def test_a_long_path_has_its_socket_elsewhere(new_directory, monkeypatch):
    directory = new_directory("long-" * 30 + "path")
    engine = ensure_running(directory)
    assert len(os.fsencode(engine.socket)) <= 100
    assert engine.socket.parent.stat().st_mode & 0o777 == 0o700
    with client(engine) as redis:
        assert redis.ping()
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    assert ensure_running(directory) == engine
    stop(directory)
    assert not engine.socket.exists()


def test_a_copied_directory_gets_its_own_engine(new_directory):
    original, copy = new_directory("long-" * 30 + "one"), new_directory("long-" * 30 + "two")
    engine = ensure_running(original)
    copy.mkdir(mode=0o700)
    shutil.copy(original / engine_directory.RECORD, copy)
    assert find_running(copy) is None
    assert ensure_running(copy).pid != engine.pid


def test_a_moved_directory_keeps_its_server(new_directory):
    engine = ensure_running(new_directory("here"))
    there = new_directory("there")
    engine.directory.rename(there)
    running = find_running(there)
    assert running is not None
    assert running.pid == engine.pid


def test_a_path_with_special_characters_works(new_directory):
    place = new_directory('a "quoted" \\ ünïcode\nplace')
    assert is_alive(ensure_running(place).pid)


def test_a_directory_can_be_a_string(directory):
    engine = ensure_running(directory)
    assert find_running(str(directory)) == engine
    assert stop(str(directory))
    assert not is_alive(engine.pid)


def test_a_symlink_leads_to_the_same_server(directory, tmp_path):
    engine = ensure_running(directory)
    (tmp_path / "link").symlink_to(directory)
    assert ensure_running(tmp_path / "link") == engine


def test_an_unusable_path_is_explained(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EngineNotStarted, match=r"/file/bus: Not a directory; fix that, or choose another directory"):
        ensure_running(tmp_path / "file" / "bus")


def test_a_full_disk_is_explained(directory, monkeypatch):
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EngineNotStarted, match="bus: No space left on device; fix that"):
        ensure_running(directory)


def test_a_directory_writable_by_others_is_refused(directory):
    directory.mkdir()
    (directory / "notes.txt").write_text("mine")
    directory.chmod(0o777)
    with pytest.raises(EngineNotStarted, match=r"others may write to .*; chmod 700 it, or use an empty directory"):
        ensure_running(directory)
    assert directory.stat().st_mode & 0o777 == 0o777


def test_an_empty_directory_is_made_private(directory):
    directory.mkdir()
    directory.chmod(0o777)
    ensure_running(directory)
    assert directory.stat().st_mode & 0o777 == 0o700
