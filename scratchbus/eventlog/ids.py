"""New ids: ULIDs for observations, short words for events, whose order their positions give."""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from itertools import count

from ulid import ULID

OPEN_END = "\0"
"""The end of a new event id, for which the append writes how far the log reached before; see eventlog/retries.py."""


def new_id() -> str:
    """Return a new ULID for an observation; later ones of the same process are greater."""
    return str(ULID())


class _EventIds:
    """Words that no other process makes: 72 random bits of this one, and a count."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Draw new bits; a forked child must not go on with its parent's."""
        self._process = urlsafe_b64encode(os.urandom(9)).decode("ascii")
        self._counter = count(1)

    def __call__(self) -> str:
        """Return the next one."""
        return f"{self._process}{next(self._counter):x}{OPEN_END}"


new_event_id = _EventIds()
"""Return a new event id; no two processes make the same."""

os.register_at_fork(after_in_child=new_event_id.begin_anew)
