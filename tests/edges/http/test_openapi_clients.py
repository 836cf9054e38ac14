"""Clients made from the OpenAPI document: thousands of requests by schemathesis, and a TypeScript client."""

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


class Report(NamedTuple):
    """The exit code and the output of schemathesis."""

    code: int
    text: str

    @property
    def cases(self) -> int:
        number = re.search(r"^ +([\d,]+) generated", self.text, re.MULTILINE)
        return int(number[1].replace(",", "")) if number else 0


class Schemathesis:
    """Schemathesis for a server, with a token with all scopes."""

    def __init__(self, url: str, token: str, directory: Path) -> None:
        self.url = url
        self.token = token
        self._directory = directory

    def run(self, *options: str, within: float) -> Report:
        """Send requests made from the document, and apply all checks of schemathesis to the answers."""
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
        return Report(done.returncode, done.stdout + done.stderr)


@contextmanager
def serving_schemathesis(engine: str, bus: str, directory: Path) -> Iterator[Schemathesis]:
    """Serve a bus of its own."""
    tokens = McpTokens(directory / "tokens.yaml")
    token = tokens.add("stranger", McpIdentity.of("stranger", kind="subagent"), scopes=SCOPES)
    with serving(engine, "--tokens", str(tokens.path), SCRATCHBUS_BUS=bus) as served:
        yield Schemathesis(served.url, token, directory)


@pytest.fixture(scope="module")
def schemathesis(embedded_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Schemathesis]:
    with serving_schemathesis(embedded_url, "strangers", tmp_path_factory.mktemp("stranger")) as served:
        yield served


@pytest.fixture(scope="module")
def typed(embedded_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Schemathesis]:
    """A server with the shipped types, which schemathesis replaces on its own."""
    with serving_schemathesis(embedded_url, "typed", tmp_path_factory.mktemp("typed")) as served:
        yield served


@pytest.mark.strangers
@pytest.mark.timeout(400)
def test_every_example_is_answered_as_documented(schemathesis):
    found = schemathesis.run("--phases", "examples", "--generation-deterministic", within=300)  # pulls wait
    assert found.code == 0, found.text
    assert found.cases > 50


@pytest.mark.strangers
@pytest.mark.timeout(7_200)
def test_ten_thousand_requests_are_answered_as_documented(schemathesis):
    found = schemathesis.run("--max-examples", os.environ.get("STRANGERS", "100"), within=7_000)
    (Path(os.environ.get("STRANGERS_REPORT", os.devnull))).write_text(found.text)
    assert found.code == 0, found.text
    assert found.cases >= 10_000, found.text


_MAIN = """import { main } from "./client.js";
console.log(JSON.stringify(await main(...process.argv.slice(2))));
"""


@pytest.fixture(scope="module")
def compiled(typed: Schemathesis, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The TypeScript client, compiled with types generated from the document."""
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
