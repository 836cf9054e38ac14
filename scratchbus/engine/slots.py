"""The hash slots of Redis Cluster."""

from __future__ import annotations

from binascii import crc_hqx

_SLOTS = 16_384


def hash_tag(bus: str, shard: int) -> str:
    """Return the part of a shard's keys that Redis Cluster hashes to choose their slot."""
    return f"{{{bus}:{shard}}}"


def slot_of(tag: bytes) -> int:
    """Return the slot of keys with this text between their braces: its CRC16, modulo the number of slots."""
    return crc_hqx(tag, 0) % _SLOTS
