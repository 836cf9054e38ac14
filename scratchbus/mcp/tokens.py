"""The tokens file: who may use a server over HTTP, under which identity, with which tools.

A token is 256 random bits and the file holds only its SHA-256, which reveals nothing. A server reloads the file when it
changes, so a revoked token is refused from the next request on.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import yaml

from scratchbus import check_source
from scratchbus.daemon import Spot, compose
from scratchbus.errors import InvalidInput, NotFound, SettingsError, SettingsFileError, shown
from scratchbus.mcp.identity import Identity

PREFIX: Final = "sbmcp_"
"""The prefix of every token, by which people and secret scanners recognize it."""

_DIGEST: Final = re.compile("[0-9a-f]{64}")

_FIELDS: Final = ("name", "sha256", "agent", "kind", "page", "session", "tools")


@dataclass(frozen=True)
class Token:
    """A token: its name, its digest, and the identity it grants."""

    name: str
    digest: str
    identity: Identity


class Tokens:
    """The tokens of a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, ...] | None = None
        self._tokens: list[Token] = []

    def all(self) -> list[Token]:
        """Return the tokens in the file now. Raises SettingsError."""
        try:
            state = self.path.stat()
            stamp = (state.st_mtime_ns, state.st_size, state.st_ino)
            if stamp != self._stamp:
                self._tokens = _read(self.path.read_text(encoding="utf-8"), str(self.path))
                self._stamp = stamp
        except FileNotFoundError:
            self._tokens, self._stamp = [], None
        except OSError as problem:
            raise SettingsError(f"{self.path}: {problem.strerror or problem}; check the path") from None
        except UnicodeDecodeError:
            raise SettingsError(f"{self.path}: the file is not UTF-8; save it as UTF-8") from None
        return self._tokens

    def find(self, given: str) -> Token | None:
        """Return the matching token, compared in constant time, or None. Raises SettingsError."""
        digest = _digest(given)
        found = None
        for token in self.all():
            if hmac.compare_digest(token.digest, digest):
                found = token
        return found

    def add(self, name: str, identity: Identity) -> str:
        """Create a token and return it; it is stored nowhere. Raises InvalidInput for an invalid or existing name."""
        check_source(name, "name")
        if any(token.name == name for token in self.all()):
            raise InvalidInput(f"token {name!r} already exists; revoke it first, or choose another name")
        made = PREFIX + secrets.token_urlsafe(32)
        self._write([*self.all(), Token(name, _digest(made), identity)])
        return made

    def revoke(self, name: str) -> None:
        """Remove a token. Raises NotFound."""
        kept = [token for token in self.all() if token.name != name]
        if len(kept) == len(self.all()):
            raise NotFound(f"{self.path} has no token {shown(name)}; list the tokens with `scratchbus mcp token ls`")
        self._write(kept)

    def _write(self, tokens: list[Token]) -> None:
        """Replace the file atomically; only its owner may read it."""
        text = yaml.safe_dump({"tokens": [_entry(token) for token in tokens]}, sort_keys=False)
        try:
            descriptor, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).replace(self.path)
        except OSError as problem:
            raise SettingsError(f"{self.path}: {problem.strerror or problem}; choose a writable path") from None


def _digest(token: str) -> str:
    return sha256(token.encode(errors="replace")).hexdigest()


def _entry(token: Token) -> dict[str, Any]:
    who = token.identity
    entry: dict[str, Any] = {"name": token.name, "sha256": token.digest, "agent": who.agent, "kind": who.kind}
    session = {} if who.session is None else {"session": who.session}
    return {**entry, "page": who.page, **session, "tools": list(who.tools)}


def _read(text: str, file: str) -> list[Token]:
    root = compose(text, file, SettingsFileError).fields(("tokens",))
    return [_token(spot) for spot in (root["tokens"].elements() if "tokens" in root else [])]


def _token(spot: Spot) -> Token:
    fields = spot.fields(_FIELDS)
    for name in ("name", "sha256", "agent"):
        if name not in fields:
            raise spot.wrong(f"has no {name}; create tokens with `scratchbus mcp token add`")
    texts = {name: fields[name].text() for name in ("agent", "kind", "page", "session") if name in fields}
    tools = [each.text() for each in fields["tools"].elements()] if "tools" in fields else None
    try:
        identity = Identity.of(texts.pop("agent"), tools=tools, **texts)
    except InvalidInput as problem:
        raise spot.wrong(str(problem)) from None
    digest = fields["sha256"]
    if not _DIGEST.fullmatch(digest.text()):
        raise digest.wrong("is not a SHA-256 in lower-case hexadecimal; create tokens with `scratchbus mcp token add`")
    return Token(fields["name"].text(), digest.text(), identity)
