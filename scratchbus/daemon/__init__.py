"""What a daemon needs around its work: a command line, `serve`, signals, logging, metrics and exit codes.

These names are public, as those of `scratchbus`, `scratchbus.errors` and `scratchbus.settings` are; the modules of this
package are not. The reference daemons use nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scratchbus.archive.archiver import run_archiver
    from scratchbus.daemon.command import Daemon, daemon, duration_option, file_option
    from scratchbus.daemon.exit_codes import (
        CONFLICT,
        ENGINE,
        INTERNAL,
        INTERRUPTED,
        INVALID_INPUT,
        NOT_FOUND,
        OK,
        USAGE,
        exit_code,
    )
    from scratchbus.daemon.metrics_options import metrics_options, start_exporter
    from scratchbus.daemon.runtime import Run, configure_logging, serve
    from scratchbus.domain.values import check_confidence, duration_ms, duration_text, is_type_name
    from scratchbus.domain.yaml_nodes import Spot, compose
    from scratchbus.engine.embedded.server import stop as stop_engine
    from scratchbus.readmodel.projector import run_projector
    from scratchbus.scheduling.expiry import run_expirer
    from scratchbus.telemetry.terminal import visible

_HOMES = {
    "CONFLICT": "daemon.exit_codes.CONFLICT",
    "Daemon": "daemon.command.Daemon",
    "ENGINE": "daemon.exit_codes.ENGINE",
    "INTERNAL": "daemon.exit_codes.INTERNAL",
    "INTERRUPTED": "daemon.exit_codes.INTERRUPTED",
    "INVALID_INPUT": "daemon.exit_codes.INVALID_INPUT",
    "NOT_FOUND": "daemon.exit_codes.NOT_FOUND",
    "OK": "daemon.exit_codes.OK",
    "Run": "daemon.runtime.Run",
    "Spot": "domain.yaml_nodes.Spot",
    "USAGE": "daemon.exit_codes.USAGE",
    "check_confidence": "domain.values.check_confidence",
    "compose": "domain.yaml_nodes.compose",
    "configure_logging": "daemon.runtime.configure_logging",
    "daemon": "daemon.command.daemon",
    "duration_ms": "domain.values.duration_ms",
    "duration_option": "daemon.command.duration_option",
    "duration_text": "domain.values.duration_text",
    "exit_code": "daemon.exit_codes.exit_code",
    "file_option": "daemon.command.file_option",
    "is_type_name": "domain.values.is_type_name",
    "metrics_options": "daemon.metrics_options.metrics_options",
    "run_archiver": "archive.archiver.run_archiver",
    "run_expirer": "scheduling.expiry.run_expirer",
    "run_projector": "readmodel.projector.run_projector",
    "serve": "daemon.runtime.serve",
    "start_exporter": "daemon.metrics_options.start_exporter",
    "stop_engine": "engine.embedded.server.stop",
    "visible": "telemetry.terminal.visible",
}

__all__ = [
    "CONFLICT",
    "ENGINE",
    "INTERNAL",
    "INTERRUPTED",
    "INVALID_INPUT",
    "NOT_FOUND",
    "OK",
    "USAGE",
    "Daemon",
    "Run",
    "Spot",
    "check_confidence",
    "compose",
    "configure_logging",
    "daemon",
    "duration_ms",
    "duration_option",
    "duration_text",
    "exit_code",
    "file_option",
    "is_type_name",
    "metrics_options",
    "run_archiver",
    "run_expirer",
    "run_projector",
    "serve",
    "start_exporter",
    "stop_engine",
    "visible",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the command line needs only a few of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].rpartition(".")
    value = getattr(import_module(f"scratchbus.{module}"), attribute)
    globals()[name] = value
    return value
