"""Errors of the Redis or Valkey server."""

from __future__ import annotations

from typing import Final

from scratchbus.errors.base import ScratchbusError


class EngineError(ScratchbusError):
    """The Redis or Valkey server failed or refused."""


class EngineUnreachable(EngineError):
    """The server does not respond."""


class EngineAuth(EngineError):
    """The server refuses the user name or password."""


class EngineTooOld(EngineError):
    """The server's version is below what scratchbus needs."""


class EngineReadOnly(EngineError):
    """The server does not accept writes."""


class EngineFull(EngineError):
    """The server is out of memory."""


class EngineLoading(EngineError):
    """The server is still loading its data."""


class EngineMissing(EngineError):
    """There is no server binary to start."""


class EngineNotStarted(EngineError):
    """The embedded server did not start: its directory is unusable, or its log says why."""


class EngineMisconfigured(EngineError):
    """The server's configuration does not support the request."""


class NotReplicated(EngineError):
    """The server has the write, but fewer replicas confirmed it than `ack=replica` requires."""

    def __init__(self, copies: int, wanted: int, event_id: str | None = None) -> None:
        super().__init__(f"written, but confirmed by only {copies} of {wanted} replicas; check that they are up")
        self.event_id = event_id
        self.copies = copies
        self.wanted = wanted

    def __str__(self) -> str:
        retry = "repeat the call" if self.event_id is None else f"retry it with event_id={self.event_id!r}"
        return f"{self.args[0]}; to wait again, {retry}"


class EngineForbidden(EngineError):
    """The server's ACL forbids the command."""


class ForeignData(EngineError):
    """The data directory belongs to another or a newer engine."""


_FOR_CLIENTS: Final[tuple[tuple[type[EngineError], str], ...]] = (
    (EngineUnreachable, "the engine is unreachable; try again in a moment"),
    (EngineLoading, "the engine is not ready yet; try again in a moment"),
    (EngineAuth, "the engine refuses this server's user name or password; the server's log has the details"),
    (EngineForbidden, "the engine denies this server's user a permission; the server's log has the details"),
    (EngineReadOnly, "the engine accepts no writes; the server's log says why"),
    (EngineFull, "the engine is out of memory and accepts no writes; its operator has to make room"),
    (EngineError, "the engine failed or refused; the server's log says why"),
)


def for_clients(error: ScratchbusError) -> str:
    """Return the message of an error for the clients of a server: it does not say where the engine is.

    The server's log should have the whole message.
    """
    if isinstance(error, NotReplicated):
        return str(error)
    found = next((text for kind, text in _FOR_CLIENTS if isinstance(error, kind)), None)
    return str(error) if found is None else f"{found}{error.advice}"
