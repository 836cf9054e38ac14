"""The options for exporting metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from scratchbus.daemon.exporter import Exporter

HOST = "127.0.0.1"

F = TypeVar("F", bound=Callable[..., object])


def metrics_options(command: F) -> F:
    """Add the options for metrics: the port, without which there are none, and the host."""
    port = click.option(
        "--metrics-port", type=click.IntRange(0, 65535), metavar="PORT", help="Serve metrics here; 0 is a free port."
    )
    host = click.option(
        "--metrics-host", default=HOST, metavar="HOST", show_default=True, help="The address to serve them on."
    )
    return port(host(command))


def start_exporter(host: str, port: int | None) -> Exporter | None:
    """Serve metrics if a port is given, and log the URL. Raises SettingsError, and UsageError for a host alone."""
    if port is None:
        if host != HOST:
            raise click.UsageError("--metrics-host needs --metrics-port")
        return None
    from scratchbus.daemon.exporter import Exporter
    from scratchbus.telemetry.logs import stderr_logger  # late: most processes serve none

    exporter = Exporter(host, port)
    stderr_logger().info("metrics", url=exporter.url)
    return exporter
