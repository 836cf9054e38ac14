"""The journal of a unit as input; a fake journalctl prints entries in the format of the real one."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from daemons.bookmark import BookmarkFile
from daemons.journal import JournalUnit
from daemons.logwatch import Logwatch
from daemons.rules import read_rules
from scratchbus.errors import InvalidInput
from scratchbus.settings import shipped
from tests.waiting import PATIENCE, eventually

# Prints the entries of a file after the cursor, as `journalctl --output=json` does; --follow waits for more.
FAKE_JOURNALCTL = """\
#!/usr/bin/env python3
import json, os, sys, time
entries, called = {entries!r}, {called!r}
with open(called, "a") as file:
    file.write(json.dumps([str(os.getpid()), *sys.argv[1:]]) + "\\n")
after = next((a.partition("=")[2] for a in sys.argv if a.startswith("--after-cursor=")), None)
if after is not None and "s=" not in after:
    sys.exit("Failed to seek to cursor: Invalid argument")
seen = after is None
offset = 0
while True:
    with open(entries, "rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\\n"):
                break
            offset += len(line)
            if seen:
                sys.stdout.buffer.write(line)
                sys.stdout.flush()
            seen = seen or json.loads(line)["__CURSOR"] == after
    if "--follow" not in sys.argv:
        break
    time.sleep(0.01)
"""


class Journald:
    """A journal, and a fake journalctl that reads it."""

    def __init__(self, directory: Path) -> None:
        self.entries = directory / "entries"
        self._called = directory / "called"
        self.entries.touch()
        tool = directory / "bin" / "journalctl"
        tool.parent.mkdir()
        tool.write_text(FAKE_JOURNALCTL.format(entries=str(self.entries), called=str(self._called)))
        tool.chmod(0o755)
        self._count = 0

    @property
    def has_started(self) -> bool:
        return self._called.exists() and bool(self.called)

    @property
    def called(self) -> list[list[str]]:
        return [json.loads(line) for line in self._called.read_text().splitlines()]

    def log(self, *addresses: str, **fields: object) -> None:
        for address in addresses:
            self._count += 1
            n = self._count
            message = f"Failed password for root from {address} port 38926 ssh2"
            entry = {
                "__CURSOR": f"s=4f1a;i={n:x};b=9d9c;m={n:x}a;t=62e1{n:x};x=fe{n:x}",
                "__REALTIME_TIMESTAMP": f"17700000000{n:05}", "_BOOT_ID": "9d9c", "_HOSTNAME": "host", "_PID": "24200",
                "_COMM": "sshd", "_SYSTEMD_UNIT": "ssh.service", "SYSLOG_IDENTIFIER": "sshd", "PRIORITY": "6",
                "MESSAGE": message, **fields,
            }  # fmt: skip
            with self.entries.open("a") as file:
                file.write(json.dumps(entry) + "\n")


@pytest.fixture
def journald(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journald:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return Journald(tmp_path)


@pytest.fixture
def watch(tmp_path: Path):
    def make(**options) -> Logwatch:
        rules = read_rules(shipped("logwatch.yaml"))
        return Logwatch("main", rules, JournalUnit("ssh"), BookmarkFile(tmp_path / "state.json"), **options)

    return make


def once(watcher: Logwatch, bus) -> None:
    watcher.run(bus, threading.Event(), follow=False)


def attempts(page) -> dict[str, int]:
    return {each.context["address"]: each.occurrences for each in page.active()}


def test_entries_are_counted_once_across_runs(bus, page, journald, watch, tmp_path):
    journald.log("192.0.2.1", "192.0.2.2", "192.0.2.1")
    once(watch(), bus)
    assert attempts(page) == {"192.0.2.1": 2, "192.0.2.2": 1}
    journald.log("192.0.2.1")
    once(watch(), bus)
    assert attempts(page)["192.0.2.1"] == 3
    first, second = journald.called
    assert "--unit=ssh" in first
    assert "--after-cursor=s=4f1a;i=3;b=9d9c;m=3a;t=62e13;x=fe3" in second
    (tmp_path / "state.json").unlink()
    once(watch(), bus)
    once(watch(from_start=True), bus)
    assert attempts(page) == {"192.0.2.1": 3, "192.0.2.2": 1}


def test_an_entry_is_recognized_in_another_journal_file(bus, page, journald, watch, tmp_path):
    journald.log("192.0.2.1")
    once(watch(), bus)
    journald.entries.write_text(journald.entries.read_text().replace("s=4f1a;i=1;", "s=77;i=ff;"))
    (tmp_path / "state.json").unlink()
    once(watch(), bus)
    assert attempts(page) == {"192.0.2.1": 1}


def test_a_followed_journal_is_read_as_it_grows(bus, page, journald, watch, running):
    with running(lambda stop: watch().run(bus, stop, follow=True)):
        journald.log("192.0.2.1")
        eventually(lambda: attempts(page) == {"192.0.2.1": 1}, "the first entry")
        journald.log("192.0.2.1")
        eventually(lambda: attempts(page) == {"192.0.2.1": 2}, "the second entry")
    assert "--follow" in journald.called[0]


def test_a_killed_journalctl_is_restarted(bus, page, journald, watch, running):
    with running(lambda stop: watch().run(bus, stop, follow=True)):
        journald.log("192.0.2.1")
        eventually(lambda: attempts(page) == {"192.0.2.1": 1}, "the first entry")
        os.kill(int(journald.called[0][0]), signal.SIGKILL)
        journald.log("192.0.2.1")
        eventually(lambda: attempts(page) == {"192.0.2.1": 2}, "the second entry")
    assert len(journald.called) == 2


def test_binary_and_multiline_messages_are_read(bus, page, journald, watch):
    text = "Failed password for root from 192.0.2.5 port 1 ssh2"
    journald.log("", MESSAGE=list(text.encode()))
    journald.log("", MESSAGE=f"something\n{text}")
    journald.log("", MESSAGE=None)
    journald.log("", MESSAGE=["a", text], SYSLOG_IDENTIFIER=None)
    with journald.entries.open("a") as file:
        file.write('{"no": "cursor"}\nnot JSON\n')
    once(watch(), bus)
    assert attempts(page) == {"192.0.2.5": 3}


def test_a_failing_journalctl_is_an_error_with_its_reason(bus, page, journald, watch, tmp_path, monkeypatch):
    journald.log("192.0.2.1")
    once(watch(), bus)
    state = tmp_path / "state.json"
    state.write_text(state.read_text().replace("s=4f1a", "lost"))
    for follow in (False, True):
        with pytest.raises(InvalidInput, match=r"Failed to seek to cursor.*--from-start"):
            watch().run(bus, threading.Event(), follow=follow)
    once(watch(from_start=True), bus)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidInput, match="no journalctl"):
        once(watch(), bus)


def test_a_journalctl_killed_before_its_first_entry_is_replaced(bus, page, journald, watch, running):
    with running(lambda stop: watch().run(bus, stop, follow=True)):
        eventually(lambda: journald.has_started, "journalctl runs")
        os.kill(int(journald.called[0][0]), signal.SIGKILL)
        eventually(lambda: len(journald.called) > 1, "another journalctl runs")
        journald.log("192.0.2.1")
        eventually(lambda: attempts(page) == {"192.0.2.1": 1}, "its entry is counted")


def test_a_journalctl_killed_before_the_end_of_the_journal_is_an_error(bus, page, journald, watch, tmp_path):
    (tmp_path / "bin" / "journalctl").write_text("#!/bin/sh\nkill -9 $$\n")
    with pytest.raises(InvalidInput, match=r"journalctl failed with exit code -9: no error message"):
        once(watch(), bus)


@pytest.mark.parametrize("follow", [False, True])
def test_an_entry_that_is_too_long_is_skipped(bus, page, journald, watch, monkeypatch, follow):
    monkeypatch.setattr("daemons.journal._MAX_ENTRY", 1 << 17)
    journald.log("192.0.2.1")
    journald.log("192.0.2.2", COREDUMP="x" * (1 << 20))
    journald.log("192.0.2.3")
    stop = threading.Event()
    run = threading.Thread(target=watch().run, args=(bus, stop, follow), daemon=True)
    run.start()
    eventually(lambda: attempts(page) == {"192.0.2.1": 1, "192.0.2.3": 1})
    stop.set()
    run.join(PATIENCE)
    assert not run.is_alive()
