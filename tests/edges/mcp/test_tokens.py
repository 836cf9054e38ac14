"""The file of tokens."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from scratchbus.cli import main
from scratchbus.errors import InvalidInput, NotFound, SettingsFileError
from scratchbus.mcp.identity import Identity
from scratchbus.mcp.tokens import Tokens


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.yaml"


def test_a_token_stands_for_its_identity(file: Path):
    identity = Identity.of("analyst", kind="daemon", page="user:42", session="s1", tools=["todo", "observations"])
    made = Tokens(file).add("laptop", identity)
    found = Tokens(file).find(made)
    assert (found.name, found.identity) == ("laptop", identity)


def test_only_a_digest_is_kept_where_only_its_owner_may_read(file: Path):
    made = Tokens(file).add("laptop", Identity.of("analyst"))
    assert made not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_nothing_else_is_a_token(file: Path):
    tokens = Tokens(file)
    assert tokens.find("anything") is None
    made = tokens.add("laptop", Identity.of("analyst"))
    digest = tokens.all()[0].digest
    for wrong in ("", made[:-1], made + "x", digest, "\ud800"):
        assert tokens.find(wrong) is None


def test_what_is_added_and_revoked_elsewhere_counts_at_once(file: Path):
    here, there = Tokens(file), Tokens(file)
    made = there.add("laptop", Identity.of("analyst"))
    assert here.find(made) is not None
    there.revoke("laptop")
    assert here.find(made) is None


def test_names_are_taken_once_and_those_that_are_not_there_are_not_revoked(file: Path):
    tokens = Tokens(file)
    tokens.add("laptop", Identity.of("analyst"))
    with pytest.raises(InvalidInput, match="already"):
        tokens.add("laptop", Identity.of("reviewer"))
    with pytest.raises(NotFound, match="token ls"):
        tokens.revoke("desktop")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tokens: [{name: a, sha256: b}]", "'agent' is missing; create tokens with"),
        ("tokens: [{name: a, sha256: b, agent: a, password: c}]", "password"),
        ("tokens: [{name: a, sha256: ключ, agent: a}]", "not a SHA-256"),
        (f"tokens: [{{name: a, sha256: {'a' * 64}, agent: a, tools: [everything]}}]", "everything"),
        ("tokens: {a: b}", "not a list"),
        ("users: []", "users"),
    ],
)
def test_a_file_that_is_wrong_says_where(file: Path, text: str, said: str):
    file.write_text(text)
    with pytest.raises(SettingsFileError, match=said):
        Tokens(file).all()


def test_the_command_line_makes_lists_and_revokes_tokens(file: Path, capsys: pytest.CaptureFixture[str]):
    where = ("--tokens", str(file))
    assert main(["mcp", "token", "add", "laptop", "--agent", "analyst", "--session", "s1", *where]) == 0
    made = capsys.readouterr().out.strip()
    assert Tokens(file).find(made).identity == Identity.of("analyst", session="s1")
    assert main(["mcp", "token", "ls", "--json", *where]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["name"], document["agent"], document["session"]) == ("laptop", "analyst", "s1")
    assert made not in str(document)
    assert main(["mcp", "token", "revoke", "laptop", *where]) == 0
    assert Tokens(file).all() == []
    capsys.readouterr()
    assert main(["mcp", "token", "revoke", "laptop", *where]) == 3
    assert main(["mcp", "token", "ls"]) == 2
    assert "--tokens" in capsys.readouterr().err
