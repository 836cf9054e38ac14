"""What takes its time shows on a terminal how far it is, and nothing of that in a pipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.edges.conftest import Cli

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    ("title", "arguments"),
    [
        ("Rebuilding", ("rebuild",)),
        ("Verifying", ("verify",)),
        ("Replaying", ("replay", "--without-source", "someone")),
        ("Importing", ("import", "{export}", "--bus", "{copy}")),
        ("Archiving", ("archive", "run")),
        ("Verifying", ("archive", "verify")),
    ],
)
def test_long_runs_show_how_far_they_are_on_a_terminal_alone(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, title: str, arguments: tuple[str, ...]
) -> None:
    name = f"progress-{tmp_path.name[-20:].strip('-_')}"
    monkeypatch.setenv("SCRATCHBUS_BUS", name)
    monkeypatch.setenv("SCRATCHBUS_ARCHIVE_URL", str(tmp_path / "archive"))
    monkeypatch.setenv("SCRATCHBUS_RETAIN", "1ms")
    monkeypatch.setenv("SCRATCHBUS_RETAIN_EVENTS", "1")
    for number in range(3):
        cli.add(f"{number}")
    export = tmp_path / "all.jsonl"
    export.write_text(cli.anywhere("tail", "--format", "jsonl").out)
    if arguments == ("archive", "verify"):
        cli("archive", "run")
    given = [part.format(export=export, copy=f"{name}-copy") for part in arguments]
    piped = cli.process(*given)
    assert piped.code == 0
    assert title not in piped.out + piped.err
    with cli.start(*given, terminal=True) as running:
        running.wait_for(title)
