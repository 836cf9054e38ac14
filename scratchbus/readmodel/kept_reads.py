"""The open documents of a page, kept so that a read of an unchanged page does not transfer them again.

They are valid while the tail of the log and the checkpoint are the same, which the query script checks in each read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MOST_READS = 32
"""The number of pages of a shard whose documents are kept."""

MOST_BYTES = 256 * 1024
"""The size of the documents that are kept of a page."""


class KeptRead(NamedTuple):
    """The stored documents that a read with this limit found, and whether there were no more of them.

    `state` is the checkpoint and the tail at which they were read, as the engine stores them.
    """

    state: str = ""
    limit: int = 0
    rows: Sequence[bytes | None] = ()
    is_end: bool = False


NO_READ = KeptRead()
"""The kept read of a page of which nothing is kept."""
