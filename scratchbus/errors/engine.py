"""What is raised when the Redis or Valkey server cannot do its part."""

from __future__ import annotations

from scratchbus.errors.base import ScratchbusError


class EngineError(ScratchbusError):
    """The Redis or Valkey server cannot do its part."""


class EngineUnreachable(EngineError):
    """There is no answer from the server."""


class EngineAuth(EngineError):
    """The server refuses the user name or password."""


class EngineTooOld(EngineError):
    """The server's version is below what scratchbus needs."""


class EngineReadOnly(EngineError):
    """The server takes no writes."""


class EngineFull(EngineError):
    """The server is out of memory."""


class EngineLoading(EngineError):
    """The server is still loading its data."""


class EngineMissing(EngineError):
    """There is no server binary to start."""


class EngineNotStarted(EngineError):
    """The embedded server could not be started: its directory is unusable, or it gave up and its log says why."""


class EngineMisconfigured(EngineError):
    """The server is not set up for what was asked."""


class NotReplicated(EngineError):
    """The write is on the server, but on fewer replicas than `ack=replica` asks for."""

    def __init__(self, copies: int, wanted: int, event_id: str | None = None) -> None:
        super().__init__(
            f"written, but {copies} of {wanted} replicas have it; retry with event_id={event_id!r} to wait again, or"
            " see whether the replicas are up"
        )
        self.event_id = event_id
        self.copies = copies
        self.wanted = wanted


class EngineForbidden(EngineError):
    """The server's access list forbids it."""


class ForeignData(EngineError):
    """The data directory belongs to another or a newer engine."""
