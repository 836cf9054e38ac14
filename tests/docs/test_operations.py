"""Run every command of the guide to operations, in one shell, on its own engines."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import launcher
from tests.docs.markdown import ROOT, blocks
from tests.faults.servers import free_port

PROMPT = "$ "
PAGE = (ROOT / "docs/operations.md").read_text("utf-8")
STEPS = [
    line.removeprefix(PROMPT)
    for block in blocks(PAGE, "console")
    for line in block.text.splitlines()
    if line.startswith(PROMPT)
]


@pytest.fixture
def ports() -> Iterator[dict[str, str]]:
    """Map the ports of the guide to free ones; stop the servers on them at the end."""
    chosen = {number: str(free_port()) for number in sorted(set(re.findall(r"\b639\d\b", PAGE)))}
    yield chosen
    for port in chosen.values():
        subprocess.run(["redis-cli", "-p", port, "shutdown", "nosave"], capture_output=True, check=False)  # noqa: S607


@pytest.mark.slow
@pytest.mark.real
def test_every_command_of_the_guide_works(place: Path, ports: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    if not (shutil.which("redis-server") and shutil.which("redis-cli")):
        pytest.skip("NOT TESTED: redis-server and redis-cli are not installed")
    shutil.copytree(ROOT / "config", place / "config")
    tool = place / "bin" / "systemctl"  # keeps the user's service manager untouched
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place / "xdg"))
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "state"))
    script = [f'scratchbus() {{ {shlex.join(launcher.command("-m", "scratchbus.cli"))} "$@"; }}', "set -o pipefail"]
    for step in STEPS:
        for number, port in ports.items():
            step = re.sub(rf"\b{number}\b", port, step)
        script += [f"echo '== '{shlex.quote(step)}", f"{{ {step}\n}} || exit 1"]
    done = subprocess.run(
        ["/bin/bash", "-c", "\n".join(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{tool.parent}:{os.environ['PATH']}"},
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    said = {block.partition("\n")[0]: block.partition("\n")[2] for block in done.stdout.split("== ")[1:]}
    assert "192.0.2.1" in said["scratchbus list --tag fail2ban"]
    assert said[next(step for step in STEPS if "memory_bytes" in step)].strip() == "True"
    assert [path.name for path in (place / "xdg/systemd/user").iterdir()] == []
    assert "imported" in said['SCRATCHBUS_HOME="$PWD/restored" scratchbus import bus.jsonl']


def test_every_topic_has_commands():
    topics = {block.partition("\n")[0]: blocks(block, "console") for block in PAGE.split("\n## ")[1:]}
    assert set(topics) == {
        "Start it at boot", "Back it up", "Restore it", "Upgrade it", "Move it to another engine",
        "How large it gets",
    }  # fmt: skip
    assert all(topics.values())
