"""How fresh a read must be, and the errors for a projection that is behind."""

from __future__ import annotations

from typing import Any, NamedTuple

from scratchbus.errors import Behind
from scratchbus.eventlog.checkpoint import Checkpoint, check_end


class Freshness(NamedTuple):
    """How fresh a read must be; `timeout` (seconds) bounds the wait for a projection that is far behind."""

    stale_ok: bool = False
    timeout: float = 30.0


def behind(page: str, freshness: Freshness) -> Behind:
    """Return the error for a projection that stays behind."""
    return Behind(
        f"page {page!r}: the projection is still behind after {freshness.timeout:g} s; start a projector"
        " (`scratchbus up`), raise fresh_timeout, or read with stale_ok=True"
    )


def check_stale(page: str, freshness: Freshness, checkpoint: Checkpoint, reply: list[Any]) -> None:
    """Check the end of the log. Raises Behind if a stale read leaves out an event older than the timeout."""
    check_end(checkpoint, reply[1], None)
    now, since = reply[0], reply[3]
    if since and now - since > freshness.timeout * 1000:
        raise Behind(
            f"page {page!r}: the projection is {(now - since) / 1000:.1f} s old, over fresh_timeout;"
            " start a projector (`scratchbus up`), raise fresh_timeout, or read without stale_ok"
        )
