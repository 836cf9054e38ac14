"""Clients talk only to an engine of their own user, never to an impostor at its socket."""

import os
import shutil
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scratchbus import AsyncBus, Bus
from scratchbus.engine.embedded import directory as engine_directory
from scratchbus.engine.embedded import socket as own_socket
from scratchbus.engine.embedded.server import ensure_running, find_running, stop
from scratchbus.errors import EngineNotStarted, EngineUnreachable
from tests.log.engine_processes import DURABLE, kill
from tests.log.impostors import STRANGER, impostor
from tests.waiting import eventually

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short path for temporary files, writable by everyone like /tmp."""
    place = Path(tempfile.mkdtemp(prefix="sb-", dir="/tmp"))  # it has to be short
    place.chmod(0o1777)
    monkeypatch.setattr("tempfile.tempdir", str(place))
    yield place
    shutil.rmtree(place)


@pytest.fixture
def long(tmp_path: Path, short: Path) -> Iterator[Path]:
    """A directory whose path is too long for a socket."""
    directory = tmp_path / ("long-" * 30 + "path")
    yield directory
    if directory.exists() and find_running(directory) is not None:
        stop(directory)


def planned(directory: Path) -> Path:
    return Path(engine_directory.planned_socket(directory))


# -- before connecting --------------------------------------------------------------------------------------------


@needs_root
def test_a_socket_directory_of_another_user_is_refused(long):
    place = planned(long)
    place.parent.mkdir(mode=0o755)
    os.chown(place.parent, STRANGER, -1)
    with impostor(place) as stranger:
        for ask in (ensure_running, find_running):
            with pytest.raises(EngineUnreachable, match=r"belongs to another user.*remove it, or set TMPDIR"):
                ask(long)
        with pytest.raises(EngineUnreachable, match="belongs to another user"):
            Bus.connect(f"embedded:{long}", source="me", **DURABLE)
        assert stranger.reports() == ["listening"]
    shutil.rmtree(place.parent)


@needs_root
def test_a_socket_of_another_user_is_refused(long):
    place = planned(long)
    place.parent.mkdir(mode=0o700)
    with impostor(place) as stranger:
        with pytest.raises(EngineUnreachable, match=r"\.sock belongs to another user.*remove it"):
            ensure_running(long)
        assert stranger.reports() == ["listening"]


@needs_root
def test_stop_sends_nothing_to_another_user(long):
    engine = ensure_running(long)
    kill(engine)
    engine.socket.unlink(missing_ok=True)
    lock = long / engine_directory.ENGINE_LOCK
    locks = (engine_directory.try_lock(lock) for _ in engine_directory.ticks(time.monotonic() + 10))
    held = next(filter(None, locks))  # the kernel takes a moment to release it
    try:
        with impostor(engine.socket) as stranger:
            with pytest.raises(EngineUnreachable, match="belongs to another user"):
                stop(long)
            assert stranger.reports() == ["listening"]
        assert not (long / engine_directory.STOPPED).exists()
    finally:
        os.close(held)


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o750])
def test_a_socket_directory_open_to_others_is_refused(long, mode):
    engine = ensure_running(long)
    engine.socket.parent.chmod(mode)
    with pytest.raises(EngineUnreachable, match=r"is open to others.*chmod 700"):
        find_running(long)
    engine.socket.parent.chmod(0o700)
    assert find_running(long) == engine


def test_a_socket_open_to_others_is_refused(directory):
    engine = ensure_running(directory)
    engine.socket.chmod(0o766)
    with pytest.raises(EngineUnreachable, match=r"engine\.sock is open to others.*chmod 700"):
        find_running(directory)
    engine.socket.chmod(0o700)


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_data_directory_writable_by_others_is_refused(directory, mode):
    engine = ensure_running(directory)
    directory.chmod(mode)
    with pytest.raises(EngineUnreachable, match=r"others may write to .*chmod 700"):
        ensure_running(directory)
    directory.chmod(0o755)
    assert ensure_running(directory) == engine


def test_a_symlink_in_place_of_the_socket_is_not_followed(directory, new_directory):
    engine, other = ensure_running(directory), ensure_running(new_directory("other"))
    engine.socket.rename(directory / "moved.sock")
    engine.socket.symlink_to(other.socket)
    with pytest.raises(EngineUnreachable, match=r"engine\.sock is not a socket.*remove it"):
        ensure_running(directory)
    engine.socket.unlink()
    (directory / "moved.sock").rename(engine.socket)


def test_a_symlink_in_place_of_its_directory_is_not_followed(long):
    engine = ensure_running(long)
    place = engine.socket.parent
    place.rename(place.parent / "elsewhere")
    place.symlink_to(place.parent / "elsewhere")
    with pytest.raises(EngineUnreachable, match=r"is not a directory.*remove it, or set TMPDIR"):
        ensure_running(long)
    place.unlink()
    (place.parent / "elsewhere").rename(place)


@needs_root
def test_another_tmpdir_avoids_a_foreign_socket_directory(long, tmp_path, monkeypatch):
    engine = ensure_running(long)
    stop(long)
    engine.socket.parent.rmdir()
    engine.socket.parent.mkdir(mode=0o700)
    os.chown(engine.socket.parent, STRANGER, -1)
    with pytest.raises((EngineUnreachable, EngineNotStarted), match="set TMPDIR"):
        ensure_running(long)
    elsewhere = engine.socket.parent.parent / "mine"
    elsewhere.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    assert ensure_running(long).socket.parent.parent == elsewhere


# -- after connecting ----------------------------------------------------------------------------------------------


@needs_root
def test_another_user_listening_on_an_own_file_is_refused(directory):
    engine = ensure_running(directory)
    kill(engine)
    engine.socket.unlink(missing_ok=True)
    with impostor(engine.socket, owner=os.geteuid()) as stranger:
        for ask in (ensure_running, find_running):
            with pytest.raises(EngineUnreachable, match=r"another user \(uid 65534\) listens at .*remove the socket"):
                ask(directory)
        eventually(lambda: stranger.reports().count("closed") == 2)
        assert stranger.received_bytes() == []


@needs_root
def test_a_reopened_connection_refuses_another_user(directory):
    with Bus.connect(f"embedded:{directory}", source="me", **DURABLE) as bus:
        bus.page().add("observation", "before")
        engine = ensure_running(directory)
        kill(engine)
        engine.socket.unlink(missing_ok=True)
        with impostor(engine.socket, owner=os.geteuid()) as stranger:
            with pytest.raises(EngineUnreachable, match="another user"):
                bus.page().add("observation", "a secret")
            with pytest.raises(EngineUnreachable, match="another user"):
                bus.page().list()
            eventually(lambda: "closed" in stranger.reports())
            assert stranger.received_bytes() == []
        assert [one.content for one in bus.page().list()] == ["before"]


@needs_root
async def test_an_asyncio_connection_refuses_another_user(directory):
    async with AsyncBus.connect(f"embedded:{directory}", source="me", **DURABLE) as bus:
        await bus.page().add("observation", "before")
        engine = ensure_running(directory)
        kill(engine)
        engine.socket.unlink(missing_ok=True)
        with impostor(engine.socket, owner=os.geteuid()) as stranger:
            with pytest.raises(EngineUnreachable, match="another user"):
                await bus.page().add("observation", "a secret")
            with pytest.raises(EngineUnreachable, match="another user"):
                await bus.page().list()
            eventually(lambda: "closed" in stranger.reports())
            assert stranger.received_bytes() == []
        assert [one.content for one in await bus.page().list()] == ["before"]


@needs_root
def test_a_new_connection_refuses_a_taken_over_directory(long):
    with Bus.connect(f"embedded:{long}", source="me", **DURABLE) as bus:
        bus.page().add("observation", "before")
        engine = ensure_running(long)
        kill(engine)
        shutil.rmtree(engine.socket.parent)
        engine.socket.parent.mkdir(mode=0o755)
        os.chown(engine.socket.parent, STRANGER, -1)
        with impostor(engine.socket) as stranger:
            with pytest.raises(EngineUnreachable, match="belongs to another user"):
                bus.page().add("observation", "a secret")
            assert stranger.reports() == ["listening"]
        shutil.rmtree(engine.socket.parent)
        assert [one.content for one in bus.page().list()] == ["before"]


def test_the_user_of_a_peer_is_checked(monkeypatch):
    here, there = socket.socketpair()
    with here, there:
        own_socket.check_peer(here, Path("there"))
        mine = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
        with pytest.raises(EngineUnreachable, match=rf"another user \(uid {mine}\) listens at there"):
            own_socket.check_peer(here, Path("there"))


@pytest.mark.parametrize(("platform", "answer"), [
    ("linux", struct.pack("iII", 7, 4_294_967_294, 8)),
    ("darwin", struct.pack("IIh2x16I", 0, 4_294_967_294, 1, *[20] * 16)),
])  # fmt: skip
def test_peer_credentials_of_each_platform_are_decoded(monkeypatch, platform, answer):
    class Peer:
        def getsockopt(self, *_: int) -> bytes:
            return bytes(answer)

    monkeypatch.setattr(sys, "platform", platform)
    assert own_socket.peer_uid(Peer()) == 4_294_967_294


def test_a_platform_without_peer_credentials_skips_the_check(monkeypatch):
    monkeypatch.setattr(sys, "platform", "sunos5")
    here, there = socket.socketpair()
    with here, there:
        own_socket.check_peer(here, Path("there"))
