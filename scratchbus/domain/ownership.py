"""The owner of a claim: the connection that made it, identified by its source and its instance."""

from __future__ import annotations

import re
from hashlib import blake2b
from secrets import token_hex

from scratchbus.errors import InvalidField, shown

_INSTANCE = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,256}")


def check_instance(instance: object) -> str:
    """Return the instance if it is valid. Raises InvalidField."""
    if not isinstance(instance, str) or not _INSTANCE.fullmatch(instance):
        raise InvalidField("instance", f"{shown(instance)} is not an instance; use 1–256 characters on one line")
    return instance


def new_instance() -> str:
    """Return a new instance, which no other connection has."""
    return token_hex(16)


def owner_token(source: str, instance: str) -> str:
    """Return the token that identifies the owner of a claim.

    It is a digest, so that reading a claim does not reveal the instance.
    """
    return blake2b(f"{source}\n{instance}".encode(), digest_size=12).hexdigest()


def holder_in_head(name: str, owner: str | None) -> str:
    """Return a holder as stored in heads: the name and, after "#", the owner token if there is one."""
    return f"{name}#{owner}" if owner else name
