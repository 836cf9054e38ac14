"""Compression with zstd, which unpacks no more than a limit: a few kilobytes may otherwise become gigabytes."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd


def decompress(content: bytes, limit: int) -> bytes:
    """Return the content of a single frame. Raises ValueError if it is larger than `limit` bytes, or damaged."""
    decompressor = zstd.ZstdDecompressor()
    try:
        unpacked = decompressor.decompress(content, max_length=limit + 1)
    except zstd.ZstdError as problem:
        raise ValueError(str(problem)) from None
    if len(unpacked) > limit:
        raise ValueError(f"it unpacks to more than {limit:,} bytes")
    if not decompressor.eof:
        raise ValueError("it is cut short")
    if decompressor.unused_data:
        raise ValueError("there is data after its end")
    return unpacked
