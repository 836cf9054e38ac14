"""The hash slots of Redis Cluster."""

from __future__ import annotations

from binascii import crc_hqx

_SLOTS = 16_384


def hash_tag(bus: str, shard: int) -> str:
    """Return the part of the keys of a shard by which Redis Cluster chooses their slot."""
    return f"{{{bus}:{shard}}}"


def slot_of(tag: bytes) -> int:
    """Return the slot of the keys that have this between their braces: its CRC16."""
    return crc_hqx(tag, 0) % _SLOTS
