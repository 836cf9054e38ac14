"""Long commands show their progress on a terminal, and not in a pipe."""

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
def test_progress_is_shown_only_on_a_terminal(
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
