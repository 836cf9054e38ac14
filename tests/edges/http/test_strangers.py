"""Clients that know the API only by its OpenAPI document: requests that schemathesis makes of it, by the thousand."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from scratchbus import McpIdentity, McpTokens
from tests.edges.http.conftest import serving

HERE = Path(__file__).parent
NODE_PACKAGES = {"openapi-typescript": "7.13.0", "typescript": "5.9.3"}
SCOPES = ("read", "publish", "act", "admin", "memory")


class Told(NamedTuple):
    """What schemathesis said of a server."""

    code: int
    report: str

    @property
    def cases(self) -> int:
        found = re.search(r"^ +([\d,]+) generated", self.report, re.MULTILINE)
        return int(found[1].replace(",", "")) if found else 0


class Stranger:
    """Schemathesis, and a server that it has a token for, with all scopes."""

    def __init__(self, url: str, token: str, directory: Path) -> None:
        self.url = url
        self.token = token
        self._directory = directory

    def ask(self, *options: str, within: float) -> Told:
        """Send requests made from the document, and judge the answers by all checks of schemathesis."""
        program = [str(Path(sys.executable).parent / "schemathesis"), "--no-color"]
        settings = ["--config-file", str(HERE / "schemathesis.toml")]
        document = f"{self.url}/api/v1/openapi.json"
        done = subprocess.run(
            [*program, *settings, "run", document, "-H", f"Authorization: Bearer {self.token}", *options],
            cwd=self._directory,
            env={**os.environ, "SCHEMATHESIS_HOOKS": "tests.edges.http.schemathesis_hooks"},
            capture_output=True,
            text=True,
            timeout=within,
            check=False,
        )
        return Told(done.returncode, done.stdout + done.stderr)


@contextmanager
def strange(engine: str, bus: str, directory: Path) -> Iterator[Stranger]:
    """Serve a bus that nobody else uses."""
    tokens = McpTokens(directory / "tokens.yaml")
    token = tokens.add("stranger", McpIdentity.of("stranger", kind="subagent"), scopes=SCOPES)
    with serving(engine, "--tokens", str(tokens.path), SCRATCHBUS_BUS=bus) as served:
        yield Stranger(served.url, token, directory)


@pytest.fixture(scope="module")
def stranger(embedded_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stranger]:
    with strange(embedded_url, "strangers", tmp_path_factory.mktemp("stranger")) as found:
        yield found


@pytest.fixture(scope="module")
def typed(embedded_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stranger]:
    """A server whose types nobody has replaced."""
    with strange(embedded_url, "typed", tmp_path_factory.mktemp("typed")) as found:
        yield found


@pytest.mark.strangers
@pytest.mark.timeout(400)
def test_every_example_is_answered_as_documented(stranger):
    told = stranger.ask("--phases", "examples", "--generation-deterministic", within=300)  # pulls wait
    assert told.code == 0, told.report
    assert told.cases > 50


@pytest.mark.strangers
@pytest.mark.timeout(7_200)
def test_ten_thousand_requests_are_answered_as_documented(stranger):
    told = stranger.ask("--max-examples", os.environ.get("STRANGERS", "100"), within=7_000)
    (Path(os.environ.get("STRANGERS_REPORT", os.devnull))).write_text(told.report)
    assert told.code == 0, told.report
    assert told.cases >= 10_000, told.report


_MAIN = """import { main } from "./client.js";
console.log(JSON.stringify(await main(...process.argv.slice(2))));
"""


@pytest.fixture(scope="module")
def compiled(typed: Stranger, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The TypeScript client, compiled against the types that are made of the document."""
    if shutil.which("npm") is None:
        pytest.skip("needs npm, which installs openapi-typescript and TypeScript")
    directory = tmp_path_factory.mktemp("typescript")

    def run(*command: str) -> None:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    (directory / "package.json").write_text(
        json.dumps({"private": True, "type": "module", "dependencies": NODE_PACKAGES})
    )
    (directory / "openapi.json").write_text(httpx2.get(f"{typed.url}/api/v1/openapi.json").text)
    shutil.copy(HERE / "typescript" / "client.ts", directory)
    run("npm", "install", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund")
    run("npx", "openapi-typescript", "openapi.json", "--output", "schema.d.ts")
    run("npx", "tsc", "--strict", "--target", "es2022", "--module", "es2022", "--lib", "es2022,dom", "client.ts")
    return directory


@pytest.mark.strangers
@pytest.mark.timeout(900)
def test_a_typescript_client_made_from_the_document_works(typed, compiled):
    (compiled / "main.js").write_text(_MAIN)
    done = subprocess.run(
        [shutil.which("node") or "node", "main.js", typed.url, typed.token, "typed"],
        cwd=compiled,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "from TypeScript" in json.loads(done.stdout)
