"""Marks by which a write is found in the log: words in the bodies of events, or their trace contexts."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager

from ulid import ULID

from scratchbus import because

_TRACE = re.compile(r'"00-([0-9a-f]{32})-0000000000000001-01"')


def marked(mark: str) -> AbstractContextManager[None]:
    """Have the events that are made meanwhile carry a mark in their trace context: a repeat has no room for words."""
    return because(traceparent=f"00-{ULID.from_str(mark).hex}-0000000000000001-01")


def traced(body: str) -> list[str]:
    """Return the mark in the trace context of an event, if there is one."""
    return [str(ULID.from_hex(found)) for found in _TRACE.findall(body)]
