"""The document on access: its table matches the access list, and its commands work."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from tests import launcher
from tests.docs.markdown import ROOT, blocks, rows
from tests.faults.roles import ADMINISTERS, APPENDS, COMMITS, READS, SUBSCRIBES
from tests.faults.servers import embedded_binary, free_port, system_binary
from tests.waiting import eventually

TEXT = (ROOT / "docs" / "access.md").read_text("utf-8")
MAKE, START, USE, START_TLS, USE_TLS = (block.text for block in blocks(TEXT, "sh"))
NAMES = ("reader", "subscriber", "publisher", "projector", "admin")


def test_the_roles_table_matches_the_access_tests() -> None:
    table = [row[1:] for row in rows(TEXT) if len(row) == 1 + len(NAMES)]
    documented = [{name for name, cell in zip(NAMES, row, strict=True) if cell == "yes"} for row in table]
    assert documented == [READS, SUBSCRIBES, APPENDS, COMMITS, ADMINISTERS]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory in which the commands of the document have created the access list."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    shutil.copytree(ROOT / "config", tmp_path / "config")
    subprocess.run(["/bin/sh", "-e", "-c", MAKE], cwd=tmp_path, check=True)
    return tmp_path


@contextmanager
def started(command: str, place: Path) -> Iterator[None]:
    """Run a command of the document while the block runs."""
    with subprocess.Popen(["/bin/sh", "-c", f"exec {command}"], cwd=place, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


def scratchbus(use: str, place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a shell after these commands of the document."""
    return subprocess.run(
        ["/bin/sh", "-e", "-c", f'{use}exec "$0" "$@"', *launcher.command("-m", "scratchbus.cli", *arguments)],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.real
def test_the_commands_set_up_access(place: Path) -> None:
    port = free_port()
    use = USE.replace("6379", str(port))
    with started(START.replace("redis-server", str(embedded_binary())).rstrip() + f" --port {port}", place):
        eventually(lambda: scratchbus(use.replace("publisher", "projector"), place, "status").returncode == 0)
        added = scratchbus(use, place, "add", "observation", "set up", "--source", "me")
        assert added.returncode == 0, added.stderr
        assert "right role" in scratchbus(use, place, "types", "push", "config/observation_types.yaml").stderr
        (place / "admin.password").write_text("guessed")
        assert "that the user is enabled" in scratchbus(use.replace("publisher", "admin"), place, "status").stderr


def test_the_copied_list_is_private_and_has_no_password(place: Path) -> None:
    assert {path.stat().st_mode & 0o777 for path in place.iterdir() if path.is_file()} == {0o600}
    password = (place / "publisher.password").read_text()
    assert re.fullmatch("[0-9a-f]{48}", password)
    assert password not in (place / "users.acl").read_text()


@pytest.mark.real
def test_the_tls_commands_set_up_tls(place: Path) -> None:
    binary = system_binary() or pytest.skip("redis-server is not installed")
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(place / "ca.crt")
    certificate.cert_chain_pems[0].write_to_path(place / "server.crt")
    certificate.private_key_pem.write_to_path(place / "server.key")
    port = str(free_port())
    use = USE_TLS.replace("6379", port)
    with started(START_TLS.replace("redis-server", str(binary), 1).replace("6379", port), place):
        eventually(lambda: scratchbus(use.replace("publisher", "projector"), place, "status").returncode == 0)
        added = scratchbus(use, place, "add", "observation", "over TLS", "--source", "me")
        assert added.returncode == 0, added.stderr
