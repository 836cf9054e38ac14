"""New ids: ULIDs for observations, short random words for events, whose order their positions give."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from os import urandom

from ulid import ULID


def new_id() -> str:
    """Return a new ULID for an observation; later ones of the same process are greater."""
    return str(ULID())


def new_event_id() -> str:
    """Return a new event id: 72 random bits as 12 characters."""
    return urlsafe_b64encode(urandom(9)).decode("ascii")
