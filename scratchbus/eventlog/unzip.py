"""Unpack zstd within bounds: a few kilobytes may otherwise become gigabytes."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd


def unzip(content: bytes, most: int) -> bytes:
    """Return the content of a single frame. Raises ValueError if it is larger than `most` bytes, or damaged."""
    unpacker = zstd.ZstdDecompressor()
    try:
        found = unpacker.decompress(content, max_length=most + 1)
    except zstd.ZstdError as problem:
        raise ValueError(str(problem)) from None
    if len(found) > most:
        raise ValueError(f"it unpacks to more than {most:,} bytes")
    if not unpacker.eof:
        raise ValueError("it is cut short")
    if unpacker.unused_data:
        raise ValueError("there is data after its end")
    return found
