"""The blocks of a segment: runs of lines, each compressed as a frame of its own, so that one can be read alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256
from itertools import accumulate, chain
from math import ceil
from typing import NamedTuple

from scratchbus.archive.manifest import DIVIDED, FORMAT, Block
from scratchbus.eventlog.compression import decompress, zstd

LEVEL = 3
"""The compression level of zstd."""

BLOCK_BYTES = 512 * 1024
"""A block has about as many bytes of lines: enough to compress well, and little to read for one event."""

MAX_UNPACKED = 128 * 1024 * 1024
"""The most bytes that a segment or an index may unpack to; more than a segment has, since a batch is not divided."""

_MIN_LINE = 20  # bytes in a line


class Packed(NamedTuple):
    """Compressed lines, and the blocks that they consist of."""

    content: bytes
    blocks: list[Block]


class BlockPacker:
    """Compresses lines in a thread of its own, while the next ones are read and encoded."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "archive")
        self._packed: list[Future[Packed]] = []
        self._lines: list[bytes] = []
        self._bytes = 0

    def add(self, lines: Sequence[bytes], size: int) -> None:
        """Add lines that have so many bytes."""
        self._lines += lines
        self._bytes += size
        if self._bytes >= BLOCK_BYTES:
            self._compress()

    def finish(self) -> Packed:
        """Return all lines, compressed."""
        self._compress()
        self._thread.shutdown()
        return _join(future.result() for future in self._packed)

    def _compress(self) -> None:
        for lines in _divide(self._lines, self._bytes):
            self._packed.append(self._submit(lines))
        self._lines, self._bytes = [], 0

    def _submit(self, lines: Sequence[bytes]) -> Future[Packed]:
        try:
            return self._thread.submit(_pack, lines)
        except RuntimeError:  # once the main thread has ended, executors accept nothing; other threads still run
            packed: Future[Packed] = Future()
            packed.set_result(_pack(lines))
            return packed


def pack(lines: Sequence[bytes], format: int = FORMAT) -> Packed:
    """Return lines as the file of a segment of this format."""
    if format < DIVIDED:
        return Packed(_pack(lines).content, [])
    return _join(map(_pack, _divide(lines, sum(map(len, lines)))))


def unpack(content: bytes, blocks: Sequence[Block]) -> list[bytes]:
    """Return the lines of a segment's file. Raises ValueError unless it consists of these blocks."""
    return [*chain.from_iterable(unpack_each(content, blocks))]


def unpack_each(content: bytes, blocks: Sequence[Block]) -> Iterator[list[bytes]]:
    """Yield the lines of each of these blocks, which follow one another and unpack to MAX_UNPACKED bytes at most.

    Raises ValueError unless the content consists of them.
    """
    ends = [*accumulate(block.size for block in blocks)]
    if not ends or ends[-1] != len(content):
        raise ValueError("its size is not that of its blocks")
    left = MAX_UNPACKED
    for block, end in zip(blocks, ends, strict=True):
        lines = _unpack(content[end - block.size : end], block, left)
        left -= sum(map(len, lines)) + len(lines)
        yield lines


def _unpack(content: bytes, block: Block, limit: int) -> list[bytes]:
    """Return the lines of a block of at most `limit` bytes. Raises ValueError if its content was changed."""
    if sha256(content).hexdigest() != block.sha256:
        raise ValueError("the SHA-256 of a block differs from the one in its manifest: it was changed")
    text = decompress(content, limit)
    if not text.endswith(b"\n"):
        raise ValueError("its last line is incomplete")
    if text.count(b"\n") > len(text) // _MIN_LINE:
        raise ValueError("its lines are too short to be events")
    lines = text[:-1].split(b"\n")
    if len(lines) != block.lines:
        raise ValueError(f"it has {len(lines):,} lines; its manifest says {block.lines:,}")
    return lines


def _divide(lines: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    """Yield lines, which have so many bytes, in the fewest equal parts of at most about the size of a block."""
    count = min(len(lines), max(1, ceil(size / BLOCK_BYTES)))
    for at in range(count):
        yield lines[len(lines) * at // count : len(lines) * (at + 1) // count]


def _pack(lines: Sequence[bytes]) -> Packed:
    content = zstd.compress(b"\n".join([*lines, b""]), level=LEVEL)
    return Packed(content, [Block(lines=len(lines), size=len(content), sha256=sha256(content).hexdigest())])


def _join(parts: Iterable[Packed]) -> Packed:
    packed = [*parts]
    return Packed(b"".join(each.content for each in packed), [block for each in packed for block in each.blocks])
