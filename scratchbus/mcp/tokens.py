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
from typing import Annotated, Any, Final, Self

import yaml
from pydantic import AfterValidator, model_validator

from scratchbus import check_source
from scratchbus.daemon import Items, Text, YamlModel, YamlProblem, YamlText
from scratchbus.errors import InvalidInput, NotFound, SettingsError, SettingsFileError, shown
from scratchbus.mcp.identity import Identity
from scratchbus.settings import read_text

PREFIX: Final = "sbmcp_"
"""The prefix of every token, by which people and secret scanners recognize it."""

_DIGEST: Final = re.compile("[0-9a-f]{64}")


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
                text = YamlText(read_text(self.path, SettingsFileError), str(self.path), SettingsFileError)
                self._tokens = [entry.token() for entry in text.read(_TokensFile).tokens]
                self._stamp = stamp
        except FileNotFoundError:
            self._tokens, self._stamp = [], None
        except OSError as problem:
            raise SettingsError(f"{self.path}: {problem.strerror or problem}; check the path") from None
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


def _hexadecimal(digest: str) -> str:
    if not _DIGEST.fullmatch(digest):
        raise YamlProblem(f"is not a SHA-256 in lower-case hexadecimal; {_Entry.advice}")
    return digest


def _entry(token: Token) -> dict[str, Any]:
    who = token.identity
    entry: dict[str, Any] = {"name": token.name, "sha256": token.digest, "agent": who.agent, "kind": who.kind}
    session = {} if who.session is None else {"session": who.session}
    return {**entry, "page": who.page, **session, "tools": list(who.tools)}


class _Entry(YamlModel):
    advice = "create tokens with `scratchbus mcp token add`"

    name: Text
    sha256: Annotated[Text, AfterValidator(_hexadecimal)]
    agent: Text
    kind: Text = "subagent"
    page: Text = "main"
    session: Text | None = None
    tools: Items[Text] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.token()
        return self

    def token(self) -> Token:
        """Return the token. Raises InvalidInput for an invalid identity."""
        who = Identity.of(self.agent, kind=self.kind, page=self.page, session=self.session, tools=self.tools)
        return Token(self.name, self.sha256, who)


class _TokensFile(YamlModel):
    tokens: Items[_Entry] = ()
