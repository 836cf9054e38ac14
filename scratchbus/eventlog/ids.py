"""New ids: ULIDs for observations, short words for events, which their positions order.

An event id ends in its *bound*: how far the log reached before it was first sent. So a retry in any process, at any
time, knows from where on the log may have the event, without any record of it.
"""

from __future__ import annotations

import os
import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from itertools import count

OPEN_END = "\0"
"""The end of a new event id, which the append replaces by how far the log reached before."""

_BOUNDED = re.compile(r"[\w-]{12}[0-9a-f]+~([0-9a-f]{1,12})-([0-9a-f]{1,12})(?:/.*)?", re.ASCII)


def _new_words() -> Iterator[str]:
    """Return words that no other process makes: 72 random bits of this one, and a count."""
    process = urlsafe_b64encode(os.urandom(9)).decode("ascii")
    return map(f"{process}{{:x}}".format, count(1))


words = _new_words()
"""The beginnings of new event ids; no two processes have the same ones."""

_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # of Crockford's base 32
_PAIRS = [first + second for first in _DIGITS for second in _DIGITS]
_no_id: tuple[int, str, Iterator[int]] = (0, "", count())
_last_id = _no_id  # the millisecond of the last new id, its first 18 digits, and the numbers left for that millisecond


def _restart() -> None:
    global words, _last_id
    words, _last_id = _new_words(), _no_id


os.register_at_fork(after_in_child=_restart)  # a child must not go on with its parent's


def new_event_id() -> str:
    """Return a new event id, unique across processes."""
    return next(words) + OPEN_END


def id_bound(reached: str) -> str:
    """Return the end of a new event id: how far its log reached, as a stream id, before it is sent."""
    ms, _, seq = reached.partition("-")
    return f"~{int(ms):x}-{int(seq):x}"


def bound_of(event_id: str) -> str | None:
    """Return the stream id after which the log may have an event; None for an id that this code did not make."""
    match = _BOUNDED.fullmatch(event_id)
    return None if match is None else f"{int(match[1], 16)}-{int(match[2], 16)}"


def earliest_bound(event_ids: Iterable[str]) -> str | None:
    """Return the first of the stream ids after which the log may have these events; None without such an id."""
    bounds = [bound for event_id in event_ids if (bound := bound_of(event_id)) is not None]
    return min(bounds, key=lambda bound: [*map(int, bound.split("-"))], default=None)


def new_id() -> str:
    """Return a new ULID (https://github.com/ulid/spec), greater than those made before in this process.

    A millisecond begins with 79 random bits and counts on from there. Written here since python-ulid takes six times as
    long, and every observation needs one.
    """
    global _last_id
    ms, digits, numbers = _last_id
    now = time.time_ns() // 1_000_000
    if now > ms:
        random = int.from_bytes(os.urandom(10))
        high, low = random >> 40, random & 0x7FFFFFFFFF  # so that counting never changes the high half
        digits = _PAIRS[now >> 40] + _PAIRS[now >> 30 & 1023] + _PAIRS[now >> 20 & 1023] + _PAIRS[now >> 10 & 1023]
        digits += _PAIRS[now & 1023]
        digits += _PAIRS[high >> 30] + _PAIRS[high >> 20 & 1023] + _PAIRS[high >> 10 & 1023] + _PAIRS[high & 1023]
        numbers = count(low)
        _last_id = now, digits, numbers
    n = next(numbers)
    return f"{digits}{_PAIRS[n >> 30]}{_PAIRS[n >> 20 & 1023]}{_PAIRS[n >> 10 & 1023]}{_PAIRS[n & 1023]}"
