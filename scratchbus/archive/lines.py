"""A line of a segment: one event as JSON, from which its log entry can be restored byte for byte.

    {"seq":1,"ms":…,"id":…,"subject":…,"page":…,"kind":…,"type":…,"batch":…,"prev":…,"salt":…,"event":{…}}

The body comes last, byte for byte. An entry with other fields, or with a body that is not JSON, has `raw` instead: all
its fields and values, in base64. The hash of an event is the SHA-256 of its line. An erased event leaves only its hash,
which reveals nothing, since the salt cannot be guessed.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64decode, b64encode
from binascii import hexlify
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from itertools import chain, count, repeat
from operator import call
from typing import Any, NamedTuple

import msgspec
from pydantic_core import from_json

from scratchbus.errors import ArchiveDamaged
from scratchbus.eventlog.raw_entries import LAYOUT, RawEntry, text_of

_SALT_BYTES = 16
_SALT, _EVENT, _RAW, _KIND = b',"salt":"', b',"event":', b',"raw":', b'","kind":"'
_WIDTH = 2 * _SALT_BYTES
_AFTER_SALT = len(_SALT) + _WIDTH + 1
_HEAD = b'{"seq":%b,"ms":%b,"id":"%b","subject":"%b","page":"%b","kind":"%b","type":"%b","batch":"%b","prev":"%b"'
_HEAD += _SALT + b'%b"'
_LINE = [repeat(part) for part in (_HEAD + _EVENT + b"%b}").split(b"%b")]
_NAMES = [name.decode() for name in LAYOUT[:-1]]
_SUBJECT, _PAGE = LAYOUT.index(b"subject"), LAYOUT.index(b"page")
_SAFE = bytes(char for char in range(0x20, 0x7F) if char not in b'"\\')  # characters that JSON never escapes
_NO_HASH = bytes(32)  # stands for the hash of an event that was erased before it was archived
_AT_ONCE = 50  # entries encoded together, few enough for the processor's caches
_MAX_BRACKETS = 190  # in a body: pydantic refuses JSON nested 200 deep, msgspec does not
_NO_BRACKETS = bytes({*range(256)} - {*b"{[\n"})  # all characters except opening brackets and line breaks

_TEXT = rb"([ !#-\[\]-~]*)"  # without escapes
_PLAIN = rb"([1-9]\d{0,17})", rb"(0|[1-9]\d{0,17})", *[_TEXT] * len(_NAMES), b"[0-9a-f]{%d}" % _WIDTH
_plain_line = re.compile(re.escape(_HEAD) % _PLAIN + _EVENT + b"(.*)}", re.DOTALL).fullmatch
"""Matches a line without escapes in its head, as most are: its seq, its ms, and the values of its entry."""

Line = tuple[bytes, bytes, int, bytes, bytes]
"""An archived event: its line without the line break, its hash, its number, its page and its subject."""


class _Skipped(msgspec.Struct):
    """Any JSON object. msgspec checks its contents by RFC 8259, except for UTF-8 and the depth of nesting."""


_skip = msgspec.json.Decoder(_Skipped).decode


class Lines(NamedTuple):
    """Archived events by column: the parts of a `Line`."""

    texts: Sequence[bytes]
    hashes: Sequence[bytes]
    seqs: Sequence[int]
    pages: Sequence[bytes]
    subjects: Sequence[bytes]

    @classmethod
    def of(cls, lines: Iterable[Line]) -> Lines:
        """Return the columns of lines."""
        columns = [*zip(*lines, strict=True)]
        return cls(*columns) if columns else cls((), (), (), (), ())


class BadLine(ArchiveDamaged, ValueError):
    """A line of a segment is not a valid event."""


@contextmanager
def _read_strictly() -> Iterator[None]:
    try:
        yield
    except BadLine:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise BadLine(f"it is not a valid event ({type(problem).__name__}: {problem})") from None


def encode_entries(entries: Sequence[RawEntry]) -> Lines:
    """Return the lines of entries, each with its own salt; an entry without fields was erased before archiving."""
    salts = hexlify(os.urandom(_SALT_BYTES * len(entries)), b" ", _SALT_BYTES).split()
    starts = range(0, len(entries), _AT_ONCE)
    batches = [_encode(entries[at : at + _AT_ONCE], salts[at : at + _AT_ONCE]) for at in starts]
    return Lines(*map(list, map(chain.from_iterable, zip(*batches, strict=True))))


def _encode(entries: Sequence[RawEntry], salts: list[bytes]) -> Lines:
    columns = _plain_columns(entries)
    if columns is None:
        return Lines.of(_encode_one(entry, salt) for entry, salt in zip(entries, salts, strict=True))
    ids = b"-".join([id for id, _ in entries]).split(b"-")
    *texts, bodies = columns
    parts = [part for pair in zip(_LINE, (ids[1::2], ids[::2], *texts, salts, bodies), strict=False) for part in pair]
    lines = [*map(b"".join, zip(*parts, _LINE[-1], strict=False))]  # not strict: the parts of _LINE are infinite
    hashes = [sha256(line).digest() for line in lines]
    return Lines(lines, hashes, [*map(int, ids[1::2])], columns[_PAGE], columns[_SUBJECT])


def _plain_columns(entries: Sequence[RawEntry]) -> list[tuple[bytes, ...]] | None:
    """Return the values of entries by field, or None if any needs escaping or `raw`."""
    try:
        columns: list[tuple[bytes, ...]] = [*zip(*[flat for _, flat in entries], strict=True)]
    except ValueError:  # their numbers of fields differ
        return None
    if [*map(tuple.count, columns[::2], LAYOUT)] != [len(entries)] * len(LAYOUT):
        return None
    *texts, bodies = columns[1::2]
    body = b"\n".join(bodies)
    brackets = body.translate(None, _NO_BRACKETS).split(b"\n")  # by body, if no body has a line break
    if b"".join(map(b"".join, texts)).translate(None, _SAFE) or len(brackets) != len(bodies) or b"\r" in body:
        return None
    checks = [_is_line if len(each) > _MAX_BRACKETS else _skip for each in brackets]
    try:
        if not all(map(call, checks, bodies)):
            return None
        if not body.isascii():
            body.decode()
    except ValueError:
        return None
    return columns[1::2]


def _encode_one(entry: RawEntry, salt: bytes) -> Line:
    id, flat = entry
    ms, _, seq = id.partition(b"-")
    if not flat:
        return _erased(int(seq), int(ms), _NO_HASH), _NO_HASH, int(seq), b"", b""
    text, values = _encode_escaped(ms, seq, flat, salt)
    return text, sha256(text).digest(), int(seq), values[_PAGE], values[_SUBJECT]


def _encode_escaped(ms: bytes, seq: bytes, flat: list[bytes], salt: bytes) -> tuple[bytes, list[bytes]]:
    """Return the line of an entry that may need escaping or `raw`, and the values of the fields before the body."""
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    texts = [text_of(fields.get(name, b"")) for name in LAYOUT[:-1]]
    values = [text.encode() for text in texts]
    head = _HEAD % (seq, ms, *(json.dumps(text, ensure_ascii=False)[1:-1].encode() for text in texts), salt)
    if flat[::2] == LAYOUT and values == flat[1:-1:2] and _is_line(flat[-1]):
        return head + _EVENT + flat[-1] + b"}", values
    raw = json.dumps([b64encode(part).decode() for part in flat], separators=(",", ":"))
    return head + _RAW + raw.encode() + b"}", values


def _is_line(body: bytes) -> bool:
    """Return whether a body is a JSON object by RFC 8259 without line breaks."""
    try:
        found = from_json(body, allow_inf_nan=False)
    except ValueError:
        return False
    return isinstance(found, dict) and b"\n" not in body and b"\r" not in body


def restore(line: bytes) -> RawEntry | None:
    """Return the entry of a line; None if it was erased. Raises BadLine."""
    plain = _plain_line(line)
    if plain is not None:
        seq, ms, *values = plain.groups()
        return [b"%b-%b" % (ms, seq), [*chain.from_iterable(zip(LAYOUT, values, strict=True))]]
    return _restore_parsed(line)


def _restore_parsed(line: bytes) -> RawEntry | None:
    """Return what `restore` returns of any line."""
    with _read_strictly():
        cut = line.find(_SALT)
        if cut < 0:
            if "erased" in _object_of(line):
                return None
            raise BadLine("it has no salt")
        head, tail = _object_of(line[:cut] + b"}"), line[cut + _AFTER_SALT :]
        id = b"%d-%d" % _position(head)
        if tail.startswith(_EVENT):
            values = [head[name].encode() for name in _NAMES]
            flat = [part for pair in zip(LAYOUT, [*values, tail[len(_EVENT) : -1]], strict=True) for part in pair]
            return [id, flat]
        if not tail.startswith(_RAW):
            raise BadLine("it has no event")
        raw = [b64decode(part, validate=True) for part in from_json(tail[len(_RAW) : -1])]
        if not raw or len(raw) % 2:
            raise BadLine("a field has no value")
        return [id, raw]


def hash_of(line: bytes) -> bytes:
    """Return the hash of a line's event. Raises BadLine."""
    with _read_strictly():
        return sha256(line).digest() if _SALT in line else bytes.fromhex(str(_object_of(line).get("erased")))


def position_of(line: bytes) -> tuple[int, int]:
    """Return the ms and seq of a line. Raises BadLine."""
    plain = _plain_line(line)
    return _position_parsed(line) if plain is None else (int(plain[2]), int(plain[1]))


def _position_parsed(line: bytes) -> tuple[int, int]:
    """Return what `position_of` returns of any line."""
    with _read_strictly():
        cut = line.find(_SALT)
        return _position(_object_of(line if cut < 0 else line[:cut] + b"}"))


def _object_of(text: bytes) -> dict[str, Any]:
    found = from_json(text)
    if not isinstance(found, dict):
        raise BadLine("it is not a JSON object")
    return found


def _position(head: dict[str, Any]) -> tuple[int, int]:
    """Return the ms and seq of a parsed line. Raises BadLine."""
    ms, seq = head["ms"], head["seq"]
    if not (type(ms) is int and type(seq) is int and 0 <= ms < 2**63 and 0 < seq < 2**63):
        raise BadLine("its ms or seq is not a valid number")
    return ms, seq


def is_kind(line: bytes, quoted: tuple[bytes, ...]) -> bool:
    """Return whether a line's event is of one of these kinds, each given with its closing quote."""
    at = line.find(_KIND)
    return at >= 0 and line.startswith(quoted, at + len(_KIND))


def check_line(line: bytes, seq: int) -> Line:
    """Return the parts of a line. Raises BadLine unless it is exactly the line of the event with this number."""
    entry = restore(line)
    if entry is None:
        ms, found = position_of(line)
        canonical = _erased(found, ms, hash_of(line)), hash_of(line), found, b"", b""
    else:
        cut = line.find(_SALT)
        (canonical,) = zip(*_encode([entry], [line[cut + len(_SALT) : cut + _AFTER_SALT - 1]]), strict=True)
    if canonical[0] != line:
        raise BadLine("its format is not the canonical one")
    if canonical[2] != seq:
        raise BadLine(f"it is event {canonical[2]}")
    return canonical


def check_lines(texts: Sequence[bytes], seq: int) -> Iterator[Line]:
    """Yield what `check_line` returns of each line, the first with this number. Raises BadLine at a bad one."""
    for at in range(0, len(texts), _AT_ONCE):
        some = texts[at : at + _AT_ONCE]
        yield from _checked_together(some, seq + at) or map(check_line, some, count(seq + at))


def _checked_together(texts: Sequence[bytes], seq: int) -> list[Line]:
    """Return what `check_line` returns for each of these lines; nothing if one is bad, or erased."""
    try:
        entries = [each for each in map(restore, texts) if each is not None]
    except BadLine:
        return []
    if len(entries) < len(texts):
        return []
    salts = [text[(at := text.find(_SALT) + len(_SALT)) : at + _WIDTH] for text in texts]
    lines = _encode(entries, salts)
    is_sound = [*lines.texts] == [*texts] and [*lines.seqs] == [*range(seq, seq + len(texts))]
    return [*zip(*lines, strict=True)] if is_sound else []


def is_erased(line: bytes) -> bool:
    """Return whether a checked line is that of an erased event."""
    return _SALT not in line


def erase_lines(lines: Sequence[bytes], seqs: Collection[int]) -> list[bytes]:
    """Return the lines of a segment with these events reduced to their hashes."""
    rewritten = []
    for line in lines:
        ms, seq = position_of(line)
        rewritten.append(_erased(seq, ms, hash_of(line)) if seq in seqs else line)
    return rewritten


def _erased(seq: int, ms: int, hash: bytes) -> bytes:
    return b'{"seq":%d,"ms":%d,"erased":"%b"}' % (seq, ms, hash.hex().encode())
