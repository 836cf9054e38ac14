"""The tokens file."""

from __future__ import annotations

import errno
import json
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from scratchbus.cli import main
from scratchbus.errors import InvalidField, InvalidInput, NotFound, SettingsError, SettingsFileError
from scratchbus.mcp.access_tokens import Tokens
from scratchbus.mcp.identity import Identity


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.yaml"


def test_a_token_is_found_with_its_identity(file: Path):
    identity = Identity.of(
        "analyst", kind="daemon", page="user:42", session="s1", knowledge=["ada"], tools=["todo", "observations"]
    )
    made = Tokens(file).add("laptop", identity)
    found = Tokens(file).find(made)
    assert (found.name, found.identity) == ("laptop", identity)


def test_only_a_digest_is_stored_and_only_its_owner_can_read_it(file: Path):
    made = Tokens(file).add("laptop", Identity.of("analyst"))
    assert made not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_an_entry_of_the_file_begins_with_the_name_of_its_token(file: Path):
    Tokens(file).add("laptop", Identity.of("analyst"))
    assert file.read_text().startswith("tokens:\n- name: laptop\n  sha256: ")


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(file: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(SettingsError, match="No space left on device; choose a writable path"):
        Tokens(file).add("laptop", Identity.of("analyst"))
    assert list(file.parent.iterdir()) == []


def test_a_wrong_token_is_not_found(file: Path):
    tokens = Tokens(file)
    assert tokens.find("anything") is None
    made = tokens.add("laptop", Identity.of("analyst"))
    digest = tokens.all()[0].digest
    for wrong in ("", made[:-1], made + "x", digest, "\ud800"):
        assert tokens.find(wrong) is None


def test_changes_by_another_process_apply_at_once(file: Path):
    here, there = Tokens(file), Tokens(file)
    made = there.add("laptop", Identity.of("analyst"))
    assert here.find(made) is not None
    there.revoke("laptop")
    assert here.find(made) is None
    made = there.add("laptop", Identity.of("analyst"))
    assert here.find(made) is not None
    file.unlink()
    assert here.find(made) is None


def test_a_name_is_used_once_and_an_unknown_one_is_an_error(file: Path):
    tokens = Tokens(file)
    tokens.add("laptop", Identity.of("analyst"))
    with pytest.raises(InvalidInput, match="already"):
        tokens.add("laptop", Identity.of("reviewer"))
    with pytest.raises(NotFound, match="token list"):
        tokens.revoke("desktop")


def test_an_expired_token_is_not_found(file: Path):
    tokens = Tokens(file)
    now = datetime.now(UTC)
    valid = tokens.add("valid", Identity.of("analyst"), now + timedelta(hours=1))
    over = tokens.add("over", Identity.of("analyst"), now - timedelta(seconds=1))
    assert Tokens(file).find(valid) is not None
    assert Tokens(file).find(over) is None
    assert Tokens(file).named("over") is None


def test_a_token_has_its_given_scopes_and_none_by_default(file: Path):
    tokens = Tokens(file)
    some = tokens.add("some", Identity.of("analyst"), scopes=["memory", "read"])
    empty = tokens.add("empty", Identity.of("analyst"), scopes=[])
    none = tokens.add("none", Identity.of("analyst"))
    found = [Tokens(file).find(made).scopes for made in (some, empty, none)]
    assert found == [("read", "memory"), (), None]
    with pytest.raises(InvalidField, match="unknown scope 'write'; use any of: read, publish, act, admin, memory"):
        tokens.add("wrong", Identity.of("analyst"), scopes=["read", "write"])


def test_a_broken_file_keeps_the_last_good_tokens_and_is_logged_once(file: Path, monkeypatch: pytest.MonkeyPatch):
    logged: list[str] = []
    monkeypatch.setattr(
        "scratchbus.mcp.access_tokens.logger", SimpleNamespace(error=lambda event, **_: logged.append(event))
    )
    tokens = Tokens(file)
    made = tokens.add("laptop", Identity.of("analyst"))
    assert tokens.find(made) is not None
    good = file.read_text()
    for number, bad in enumerate(("", "# tokens", "tokens:", "tokens: ["), 1):
        file.write_text(good)
        assert tokens.find(made) is not None
        file.write_text(bad)
        assert tokens.find(made) is not None
        assert tokens.find(made) is not None
        assert len(logged) == number
    with pytest.raises(SettingsFileError):
        tokens.add("desktop", Identity.of("analyst"))  # it would lose the others
    with pytest.raises(SettingsFileError):
        Tokens(file).find(made)  # it has no last good tokens
    file.write_text(good.replace("laptop", "notebook"))
    assert tokens.named("notebook") is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f"tokens: [{{name: a, sha256: {'a' * 64}, agent: a, expires_at: 'tomorrow'}}]",
            "not a time with a time zone",
        ),
        ("tokens: [{name: a, sha256: b}]", "'agent' is missing; create tokens with"),
        ("tokens: [{name: a, sha256: b, agent: a, password: c}]", "password"),
        ("tokens: [{name: a, sha256: ключ, agent: a}]", "not a SHA-256"),
        (f"tokens: [{{name: a, sha256: {'a' * 64}, agent: a, tools: [everything]}}]", "everything"),
        (f"tokens: [{{name: a, sha256: {'a' * 64}, agent: a, scopes: [write]}}]", "unknown scope 'write'"),
        (f"tokens: [{{name: a, sha256: {'a' * 64}, agent: a, scopes: read}}]", "scopes.*not a list"),
        ("tokens: {a: b}", "not a list"),
        ("users: []", "users"),
        ("", "'tokens' is missing; write `tokens: \\[\\]` for none"),
    ],
)
def test_an_invalid_file_is_explained(file: Path, text: str, message: str):
    file.write_text(text)
    with pytest.raises(SettingsFileError, match=message):
        Tokens(file).all()


def test_the_command_line_adds_lists_and_revokes_tokens(file: Path, capsys: pytest.CaptureFixture[str]):
    where = ("--tokens", str(file))
    assert (
        main(
            [
                "mcp",
                "token",
                "add",
                "laptop",
                "--agent",
                "analyst",
                "--session",
                "s1",
                "--knowledge",
                "ada,shop",
                *where,
            ]
        )
        == 0
    )
    made = capsys.readouterr().out.strip()
    assert Tokens(file).find(made).identity == Identity.of("analyst", session="s1", knowledge=["ada", "shop"])
    assert main(["mcp", "token", "ls", "--json", *where]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["name"], document["agent"], document["session"]) == ("laptop", "analyst", "s1")
    assert made not in str(document)
    assert document["expires_at"] is None
    assert document["scopes"] == []
    guest = ("guest", "--agent", "analyst", "--expires", "30d", "--scopes", "publish, read")
    assert main(["mcp", "token", "add", *guest, *where]) == 0
    assert main(["mcp", "token", "ls", *where]) == 0
    assert "read,publish" in capsys.readouterr().out
    expires_at = Tokens(file).named("guest").expires_at
    assert expires_at is not None
    assert datetime.now(UTC) + timedelta(days=29) < expires_at < datetime.now(UTC) + timedelta(days=31)
    assert main(["mcp", "token", "revoke", "guest", *where]) == 0
    assert main(["mcp", "token", "revoke", "laptop", *where]) == 0
    assert Tokens(file).all() == []
    capsys.readouterr()
    assert main(["mcp", "token", "revoke", "laptop", *where]) == 3
    assert main(["mcp", "token", "add", "wrong", "--agent", "a", "--scopes", "write", *where]) == 5
    assert main(["mcp", "token", "ls"]) == 2
    assert "--tokens" in capsys.readouterr().err


def test_a_token_without_an_agent_writes_as_the_configured_source(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SCRATCHBUS_SOURCE", "laptop-owner")
    assert main(["mcp", "token", "add", "laptop", "--tokens", str(file)]) == 0
    assert Tokens(file).named("laptop").identity.agent == "laptop-owner"


def test_tokens_added_at_once_are_all_kept(file: Path):
    names = [f"client{number}" for number in range(16)]
    with ThreadPoolExecutor(len(names)) as threads:
        list(threads.map(lambda name: Tokens(file).add(name, Identity.of("analyst")), names))
    assert sorted(token.name for token in Tokens(file).all()) == sorted(names)
