"""The tokens file: who may use a server over HTTP, under which identity, with which tools and scopes.

A token is 256 random bits and the file holds only its SHA-256, which reveals nothing. A server reloads the file when it
changes, so a revoked token is refused from the next request on. If the file cannot be read, or is empty (an editor may
truncate it before writing), the server logs an error and keeps the tokens it last read. Deleting it revokes them all.
"""

from __future__ import annotations

import fcntl
import hmac
import os
import re
import secrets
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Final, Self

import yaml
from pydantic import AfterValidator, BeforeValidator, model_validator

from scratchbus import check_source
from scratchbus.daemon import Items, Text, YamlModel, YamlProblem, YamlText, stderr_logger
from scratchbus.errors import InvalidField, InvalidInput, NotFound, SettingsError, SettingsFileError, shown
from scratchbus.mcp.identity import Identity
from scratchbus.settings import read_text

PREFIX: Final = "sbmcp_"
"""The prefix of every token, by which people and secret scanners recognize it."""

SCOPES: Final[tuple[str, ...]] = ("read", "publish", "act", "admin", "memory")
"""The scopes a token can have for the HTTP API; over MCP, its groups of tools decide."""

logger = stderr_logger()

_DIGEST: Final = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class Token:
    """A token: its name, its digest, its grants, and when it expires (None: never).

    Over MCP it grants the identity and its tools; over the HTTP API its scopes (None: no access).
    """

    name: str
    digest: str
    identity: Identity
    expires_at: datetime | None = None
    scopes: tuple[str, ...] | None = None

    @property
    def is_valid(self) -> bool:
        """Return whether the token has not expired."""
        return self.expires_at is None or datetime.now(UTC) < self.expires_at


class Tokens:
    """The tokens of a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, ...] | None = None
        self._tokens: list[Token] = []
        self._was_read = False
        self._broken: object = None

    def all(self) -> list[Token]:
        """Return the tokens in the file now. Raises SettingsError."""
        try:
            state = self.path.stat()
            stamp = (state.st_mtime_ns, state.st_size, state.st_ino)
            if stamp != self._stamp:
                text = YamlText(read_text(self.path, SettingsFileError), str(self.path), SettingsFileError)
                self._tokens = [entry.token() for entry in text.read(_TokensFile).tokens]
                self._stamp, self._was_read = stamp, True
        except FileNotFoundError:
            self._tokens, self._stamp = [], None
        except OSError as problem:
            raise SettingsError(f"{self.path}: {problem.strerror or problem}; check the path") from None
        return self._tokens

    def check_any(self) -> None:
        """Raise SettingsError unless the file has tokens, without which a server would serve nobody."""
        if not self.all():
            command = f"scratchbus mcp token add NAME --agent AGENT --tokens {self.path}"
            raise SettingsError(f"{self.path} has no tokens; add one with `{command}`")

    def last_good(self) -> list[Token]:
        """Return the tokens from the last successful read of the file. Raises SettingsError if there was none."""
        try:
            found = self.all()
        except SettingsError as problem:
            if not self._was_read:
                raise
            if str(problem) != self._broken:
                logger.error("cannot read the tokens file; the tokens last read stay valid", reason=str(problem))
            self._broken = str(problem)
            return self._tokens
        self._broken = None
        return found

    def find(self, given: str) -> Token | None:
        """Return the matching token, compared in constant time; None if it is unknown or has expired.

        Raises SettingsError.
        """
        digest = _digest(given)
        found = None
        for token in self.last_good():
            if hmac.compare_digest(token.digest, digest):
                found = token
        return found if found is not None and found.is_valid else None

    def named(self, name: str) -> Token | None:
        """Return the token of this name; None if there is none, or it has expired. Raises SettingsError."""
        return next((token for token in self.last_good() if token.name == name and token.is_valid), None)

    def add(
        self,
        name: str,
        identity: Identity,
        expires_at: datetime | None = None,
        *,
        scopes: Collection[str] | None = None,
    ) -> str:
        """Create a token and return it. Only its digest is stored.

        Raises InvalidInput for an invalid or existing name, InvalidField for unknown scopes.
        """
        check_source(name, "name")
        granted = scopes_of(scopes)
        token = PREFIX + secrets.token_urlsafe(32)
        with self._locked():
            if any(existing.name == name for existing in self.all()):
                raise InvalidInput(f"token {name!r} already exists; revoke it first, or choose another name")
            self._write([*self.all(), Token(name, _digest(token), identity, expires_at, granted)])
        return token

    def revoke(self, name: str) -> None:
        """Remove a token. Raises NotFound."""
        with self._locked():
            remaining = [token for token in self.all() if token.name != name]
            if len(remaining) == len(self.all()):
                raise NotFound(
                    f"{self.path} has no token {shown(name)}; list the tokens with `scratchbus mcp token list`"
                )
            self._write(remaining)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep others from changing the file while the `with` lasts. Raises SettingsError."""
        try:
            directory = os.open(self.path.parent, os.O_RDONLY)  # the file itself is replaced by each change
        except OSError as problem:
            raise self._unwritable(problem) from None
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            yield
        finally:
            os.close(directory)

    def _write(self, tokens: list[Token]) -> None:
        """Replace the file atomically; only its owner may read it."""
        text = yaml.safe_dump({"tokens": [_entry(token) for token in tokens]}, sort_keys=False)
        try:
            descriptor, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
            temporary = Path(name)
            try:
                with open(descriptor, "w", encoding="utf-8") as file:
                    file.write(text)
                temporary.replace(self.path)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as problem:
            raise self._unwritable(problem) from None

    def _unwritable(self, problem: OSError) -> SettingsError:
        return SettingsError(f"{self.path}: {problem.strerror or problem}; choose a writable path")


def scopes_of(names: Collection[str] | None) -> tuple[str, ...] | None:
    """Return the scopes with these names, in their fixed order. Raises InvalidField."""
    if names is None:
        return None
    for name in names:
        if name not in SCOPES:
            raise InvalidField("scopes", f"unknown scope {shown(name)}; use any of: {', '.join(SCOPES)}")
    return tuple(scope for scope in SCOPES if scope in names)


def _digest(token: str) -> str:
    return sha256(token.encode(errors="replace")).hexdigest()


def _hexadecimal(digest: str) -> str:
    if not _DIGEST.fullmatch(digest):
        raise YamlProblem(f"is not a SHA-256 in lower-case hexadecimal; {_Entry.advice}")
    return digest


def _entry(token: Token) -> dict[str, Any]:
    identity = token.identity
    entry: dict[str, Any] = {"name": token.name, "sha256": token.digest, "agent": identity.agent, "kind": identity.kind}
    session = {} if identity.session is None else {"session": identity.session}
    expiry = {} if token.expires_at is None else {"expires_at": token.expires_at.isoformat(timespec="seconds")}
    scopes = {} if token.scopes is None else {"scopes": list(token.scopes)}
    knowledge = {"knowledge": list(identity.knowledge)} if identity.knowledge else {}
    return {**entry, "page": identity.page, **session, **knowledge, "tools": list(identity.tools), **scopes, **expiry}


def _aware_time(text: str) -> str:
    try:
        if datetime.fromisoformat(text).tzinfo is not None:
            return text
    except ValueError:
        pass
    raise YamlProblem("is not a time with a time zone, such as '2026-12-31T00:00:00+00:00'")


class _Entry(YamlModel):
    advice = "create tokens with `scratchbus mcp token add`"

    name: Text
    sha256: Annotated[Text, AfterValidator(_hexadecimal)]
    agent: Text
    kind: Text = "subagent"
    page: Text = "main"
    session: Text | None = None
    knowledge: Items[Text] = ()
    tools: Items[Text] | None = None
    scopes: Items[Text] | None = None
    expires_at: Annotated[Text, AfterValidator(_aware_time)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.token()
        return self

    def token(self) -> Token:
        """Return the token. Raises InvalidInput for an invalid identity or scope."""
        identity = Identity.of(
            self.agent, kind=self.kind, page=self.page, session=self.session, tools=self.tools,
            knowledge=self.knowledge,
        )  # fmt: skip
        expires_at = None if self.expires_at is None else datetime.fromisoformat(self.expires_at)
        return Token(self.name, self.sha256, identity, expires_at, scopes_of(self.scopes))


def _not_empty(tokens: object) -> object:
    if tokens is None:
        raise YamlProblem("is empty; write `tokens: []` for none")
    return tokens


class _TokensFile(YamlModel):
    advice = "write `tokens: []` for none"

    tokens: Annotated[Items[_Entry], BeforeValidator(_not_empty)]
