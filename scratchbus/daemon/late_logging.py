"""Logging for short commands: structlog is configured only when the first line is logged, which is rare."""

from __future__ import annotations

from collections.abc import Callable

from scratchbus.telemetry.logs import before_logging


def configure_logging_late(level: Callable[[], str]) -> None:
    """Configure logging at this level before the first line is logged; see `scratchbus.daemon.runtime`.

    Importing structlog takes as long as many whole commands.
    """

    def configure() -> None:
        from scratchbus.daemon.runtime import configure_logging

        configure_logging(level())

    before_logging(configure)
