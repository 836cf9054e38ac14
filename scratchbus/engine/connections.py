"""The parts of the protocol that both drivers share: packed commands, replies, and the translation of errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Protocol

from hiredis import Reader, pack_command

from scratchbus.engine.lazy_packages import redis_errors
from scratchbus.engine.scripts import Script
from scratchbus.errors import (
    EngineAuth,
    EngineError,
    EngineForbidden,
    EngineFull,
    EngineLoading,
    EngineMisconfigured,
    EngineReadOnly,
    EngineUnreachable,
    ScratchbusError,
)
from scratchbus.telemetry.lazy import imported_on_first_use

with imported_on_first_use(__name__):
    from redis import _parsers as parsers

Commands = tuple[tuple[Any, ...], ...]

Revive = Callable[[], object] | None
"""A function to call when connecting fails, before one more try; None if nothing would help."""


class Connection(Protocol):
    """The part of redis-py's blocking connections that we use."""

    _sock: Any

    def connect(self) -> None:
        """Open the socket, unless it is open, and log in."""

    def disconnect(self) -> None:
        """Close the socket."""


class AsyncConnection(Protocol):
    """The part of redis-py's asyncio connections that we use."""

    _reader: Any
    _writer: Any

    async def connect(self) -> None:
        """Open the socket, unless it is open, and log in."""

    async def disconnect(self, nowait: bool = False, /) -> None:
        """Close the socket; with `nowait`, without waiting until it is closed."""


UNREAD = object()
"""A reader returns this when it has no complete reply."""

HUNG_UP = "Connection closed by server."

_UNTRUSTED = re.compile(r"certificate verify failed: (.*?)\.? \(_ssl")
_DAMAGED = re.compile(
    r"WRONGTYPE|user_script:\d+: (attempt to|bad argument)|Command arguments must be|Invalid stream ID|not an integer"
)
"""What Redis says about a key of another type, and a script about a value that it cannot read."""

_CLOSED = ("reset by peer", "closed by server", "EOF occurred", "certificate required")

_HINTS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("redis://", _CLOSED, "; it may require TLS: rediss://"),
    ("rediss://", _CLOSED, "; it may require a client certificate: ssl_certfile= and ssl_keyfile="),
    ("rediss://", ("Timeout connecting", "no reply within"), "; it may not use TLS on this port: redis://"),
)
"""Hints for unreachable engines: the scheme of the URL, words in the client's message, and what to add to ours."""


NUMBERS = frozenset({int, float, bool})
"""The types that `packable` converts to text."""


def packable(command: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a command that hiredis can pack safely, with numbers as text.

    The process crashes if a signal handler raises, as that of Ctrl-C does, while hiredis 3.5 converts a number.
    """
    if NUMBERS.isdisjoint(map(type, command)):
        return command
    return tuple([str(part) if type(part) in NUMBERS else part for part in command])


def pack(commands: Commands) -> bytes:
    """Return commands in wire format."""
    return b"".join([pack_command(packable(command)) for command in commands])


def reply_reader() -> Reader:
    """Return a parser of replies, which returns errors as redis-py's exceptions."""
    return Reader(protocolError=_invalid_response, replyError=_reply_error, notEnoughData=UNREAD)


def _invalid_response(text: str) -> Exception:
    return redis_errors.InvalidResponse(text)


def _reply_error(text: str) -> Exception:
    error: Exception = parsers.BaseParser.parse_error(text)  # type: ignore[no-untyped-call]  # redis-py's
    return error


def is_broken(error: Exception) -> bool:
    """Return whether an error means that the connection is broken."""
    return isinstance(error, redis_errors.ConnectionError | redis_errors.TimeoutError | OSError)


def translate(error: Exception, where: str, *, has_answered: bool = False) -> ScratchbusError:
    """Return our error for one of redis-py's; `where` names the engine without its password.

    An engine that has answered before gets no hints about its URL.
    """
    text = str(error)
    code = text.split(" ", 1)[0]
    is_about_password = "invalid username-password" in text  # has no class of its own over an asyncio unix socket
    if isinstance(error, redis_errors.AuthenticationError) or code in ("WRONGPASS", "NOAUTH") or is_about_password:
        return EngineAuth(
            f"{where} refuses the user name or password; check them in the URL, and that the user is enabled"
        )
    if isinstance(error, redis_errors.BusyLoadingError) or code == "LOADING":
        return EngineLoading(f"{where} is still loading its data; try again in a moment")
    if code == "BUSY":
        return EngineUnreachable(f"{where} is busy running a long script; wait, or send SCRIPT KILL")
    if isinstance(error, redis_errors.AskError | redis_errors.ClusterCrossSlotError):
        return EngineMisconfigured(f"{where} is one node of a cluster ({text}); write redis+cluster:// in the URL")
    if "cluster support disabled" in text:
        return EngineMisconfigured(f"{where} is not a cluster; write redis:// in the URL, without +cluster")
    if "unknown command 'SENTINEL'" in text:
        return EngineMisconfigured(
            f"{where} is not a sentinel; write redis:// in the URL, without +sentinel, or the port of a sentinel"
        )
    if "DB index is out of range" in text or "SELECT is not allowed in cluster mode" in text:
        return EngineMisconfigured(f"{where} has no such database ({text}); name another one in the URL, or none")
    if isinstance(
        error, redis_errors.ClusterDownError | redis_errors.TryAgainError
    ):  # also from a replica that lost its primary
        return EngineUnreachable(f"{where} cannot serve now ({text}); wait, or check its primary")
    if is_broken(error):
        return EngineUnreachable(_unreachable(where, text, has_answered))
    if isinstance(error, redis_errors.ReadOnlyError) or code == "READONLY" or "READONLY" in text:
        return EngineReadOnly(f"{where} is read-only (a replica?); connect to its primary")
    if isinstance(error, redis_errors.OutOfMemoryError) or code == "OOM" or "OOM command not allowed" in text:
        return EngineFull(
            f"{where} is out of memory; raise its maxmemory, then archive old history, which is a write too"
        )
    if "NOREPLICAS" in text:
        return EngineReadOnly(f"{where} accepts no writes because it has too few replicas; check that they are up")
    if "MISCONF" in text:
        return EngineReadOnly(f"{where} accepts no writes because it cannot persist; check its log and disk space")
    if "'eval_ro'" in text:
        return EngineLoading(
            f"{where} lacks the scripts for reading, and this user may not load them. A writer"
            " loads them: connect once as a publisher, projector or admin, then try again"
        )
    if (
        isinstance(error, redis_errors.NoPermissionError)
        or "NOPERM" in text
        or "ACL failure" in text
        or "The user executing the script can't" in text  # what Redis 7.0 says inside a script
    ):
        return EngineForbidden(f"{where} denies permission ({text}); use a user with the right role")
    if isinstance(error, redis_errors.InvalidResponse):
        return EngineUnreachable(f"{where} does not reply like Redis ({text}); check host and port")
    if _DAMAGED.search(text):
        return EngineError(f"{where} holds a damaged value ({text}); `scratchbus verify` names its key")
    return EngineError(f"{where}: {text}")


def _unreachable(where: str, text: str, has_answered: bool) -> str:
    """Return a line that says that the engine at `where` cannot be reached; `text` is the client's message."""
    if untrusted := _UNTRUSTED.search(text):
        return (
            f"{where} is not trusted ({untrusted[1]}); fix its certificate, or name the CA that signed it:"
            " ssl_ca_certs=FILE in the URL"
        )
    hints = (hint for scheme, words, hint in _HINTS if f" {scheme}" in where and any(word in text for word in words))
    hint = "" if has_answered else next(hints, "")
    return f"{where} does not answer ({text}); start it, or check SCRATCHBUS_URL or --url{hint}"


def with_script_texts(commands: Commands, missing: list[int]) -> Commands:
    """Return the commands from the first missing script on, with the texts of the missing scripts.

    Commands after a script are sent again with it: a WAIT covers only the commands before it.
    """
    return tuple(
        (command[0].replace("SHA", ""), Script.known[command[1]], *command[2:]) if index in missing else command
        for index, command in enumerate(commands)
    )[missing[0] :]
