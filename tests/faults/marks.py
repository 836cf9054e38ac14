"""Marks that identify a write in the log: words in the body of an event, or its trace context."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager

from ulid import ULID

from scratchbus import because

_TRACE = re.compile(r'"00-([0-9a-f]{32})-0000000000000001-01"')


def marked(mark: str) -> AbstractContextManager[None]:
    """Put a mark into the trace context of events written in the block: a repeat stores no words."""
    return because(traceparent=f"00-{ULID.from_str(mark).hex}-0000000000000001-01")


def traced(body: str) -> list[str]:
    """Return the mark in the trace context of an event, if there is one."""
    return [str(ULID.from_hex(found)) for found in _TRACE.findall(body)]
