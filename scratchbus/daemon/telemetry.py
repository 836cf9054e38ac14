"""The counters of this process, which the metrics show, and a logger that writes to standard error."""

from scratchbus.telemetry.counters import counts
from scratchbus.telemetry.logs import stderr_logger

__all__ = ["counts", "stderr_logger"]
