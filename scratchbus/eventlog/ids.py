"""New ids: ULIDs for observations, short words for events, whose order their positions give."""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from itertools import count

from ulid import ULID

OPEN_END = "\0"
"""The end of a new event id, for which the append writes how far the log reached before; see eventlog/retries.py."""


def _new_words() -> Iterator[str]:
    """Return words that no other process makes: 72 random bits of this one, and a count."""
    process = urlsafe_b64encode(os.urandom(9)).decode("ascii")
    return map(f"{process}{{:x}}".format, count(1))


words = _new_words()
"""The beginnings of new event ids; no two processes have the same."""


def _begin_again() -> None:
    global words
    words = _new_words()


os.register_at_fork(after_in_child=_begin_again)  # a child must not go on with its parent's


def new_event_id() -> str:
    """Return a new event id; no two processes make the same."""
    return next(words) + OPEN_END


def new_id() -> str:
    """Return a new ULID for an observation; later ones of the same process are greater."""
    return str(ULID())
