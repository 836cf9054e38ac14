"""The names of the keys that are not compared member by member, and the type of each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from scratchbus.engine.scans import find_keys
from scratchbus.engine.steps import Step, ask, ask_all, batches
from scratchbus.errors import InvalidInput, shown
from scratchbus.eventlog.below_floor import Floor
from scratchbus.eventlog.bus_log import Log
from scratchbus.eventlog.checkpoint import checkpoint_key
from scratchbus.eventlog.keys import PageKeys
from scratchbus.eventlog.raw_entries import texts_of
from scratchbus.readmodel.verify.expected import PageState
from scratchbus.readmodel.verify.findings import Verified
from scratchbus.readmodel.verify.stored import StoredKeys

_AT_ONCE = 500  # keys per read

_APART = {"subscription": "hash", "dead": "hash", "again": "hash", "cursor": "string", "checkpoint": "string"}
"""The types of keys, by their names up to the first colon."""

_APART_WHOLE = {
    "log": "stream", "tail": "string", "origin": "string", "floor": "string", "archiver": "string",
    "archived": "string", "kept": "stream", "meta": "hash", "subscriptions": "set", "rebuilding": "hash",
    "erased": "zset", "ids:retried": "set", "ids:erased": "set",
}  # fmt: skip
"""The types of the other keys, by their whole names."""

_EXPIRING = ("ids:retried",)
"""The names of the keys that have a time to live."""

_APART_IN_BUILD = {"rejected": "stream", "paging": "hash", "snapshots:": "hash", "positions:": "string"}
"""The types of keys of a build of the state, by the beginnings of their names."""

_KINDS = {
    "tail": "tail", "origin": "tail", "log": "tail", "floor": "floor", "erased": "erased", "rejected": "rejected",
    "snapshots:": "snapshot", "positions:": "position", "checkpoint": "checkpoint",
}  # fmt: skip
"""The kinds of findings about these keys, "key" for the others."""

_DAY = re.compile(r"ids:\d+")

_WORDS = {"zset": "sorted set"}


def is_day(name: str) -> bool:
    """Return whether a key has the callers' event ids of one day."""
    return _DAY.fullmatch(name) is not None


def check_types(wanted: StoredKeys, verified: Verified, names: Sequence[str]) -> Step[None]:
    """Report the keys that have the wrong type, and note them as unreadable."""
    tag = wanted.keys.tag
    for batch in batches(names, _AT_ONCE):
        found = yield from ask_all(wanted.keys.shard, [("TYPE", key) for key in batch])
        for key, reply in zip(batch, found, strict=True):
            actual = reply.decode() if isinstance(reply, bytes) else str(reply)
            stored = wanted.find(key)
            kind, expected = (stored.kind, stored.type) if stored else _expected(key.removeprefix(tag), wanted)
            if expected and actual not in (expected, "none"):
                wanted.unreadable.add(key)
                verified.add(
                    kind, key, f"is a {_WORDS.get(actual, actual)} instead of a {_WORDS.get(expected, expected)}"
                )


def check_lifetimes(wanted: StoredKeys, verified: Verified, names: Sequence[str]) -> Step[None]:
    """Report the keys that the server will delete, though none of them may have a time to live."""
    for batch in batches([name for name in names if name.removeprefix(wanted.keys.tag) not in _EXPIRING], _AT_ONCE):
        found = yield from ask_all(wanted.keys.shard, [("PTTL", key) for key in batch])
        for key, left_ms in zip(batch, found, strict=True):
            if left_ms >= 0:
                what = f"will be deleted by the server in {left_ms // 1000:,} s; send it PERSIST for this key"
                verified.add("unknown", key, what)


def check_essential(wanted: StoredKeys, verified: Verified) -> Step[bool]:
    """Report the keys without which nothing else can be compared, if they cannot be read; return whether they can."""
    keys, before = wanted.keys, verified.count
    names = [keys.log, keys.tail, keys.origin, keys.floor, keys.erased, keys.archiver, checkpoint_key(keys)]
    yield from check_types(wanted, verified, names)
    if verified.count == before:
        row = yield from ask(keys.shard, "GET", keys.floor)
        try:
            Floor.parse(row, None, keys.shard)
        except InvalidInput:
            verified.add("floor", keys.floor, f"cannot be read: {shown(row)}")
    return verified.count == before


def check_other_shards(log: Log, verified: Verified) -> Step[None]:
    """Report keys of shards that the bus does not have, on the server of shard 0.

    If the number of shards was lost, the next client stores the default, and all other shards seem empty.
    """
    keys = log.keys(0)
    known = {log.keys(shard).tag for shard in range(log.shards)}
    found = texts_of((yield from find_keys(0, match=f"{{{keys.bus}:*")))
    tags = {tag + mark for tag, mark, _ in (key.partition("}:") for key in found)}
    for tag in sorted(tags - known):
        what = f"is no shard of this bus, whose number of shards is {log.shards}"
        verified.add("unknown", f"{tag}*", f"{what}; if that is wrong, restore {keys.meta} from a backup")


def check_pages(log: Log, shard: int, pages: Mapping[str, PageState], verified: Verified) -> None:
    """Report pages whose events are not on their shard, so that no one finds them: the number of shards is wrong."""
    wrong = [page for page, state in pages.items() if log.shard(page) != shard and any(state.sure())]
    if not wrong:
        return
    what = f"has events of a page of shard {log.shard(wrong[0])}, as the bus has {log.shards} shards"
    if len(wrong) > 1:
        what += f", and {len(wrong) - 1:,} more pages are on a wrong shard too"
    where = PageKeys(log.keys(shard), wrong[0]).heads
    verified.add("unknown", where, f"{what}; if that is wrong, restore {log.keys(0).meta} from a backup")


def recognise(wanted: StoredKeys, verified: Verified, name: str) -> None:
    """Report a key that should not exist. Leftovers of other builds do no harm."""
    kind, _, rest = name.partition(":")
    if name in _APART_WHOLE or kind in _APART:
        return
    is_of_build = kind[:1] == "p" and kind[1:].isdecimal()
    if is_of_build and (int(kind[1:]) != wanted.base.build or "".join(rest.partition(":")[:2]) in _APART_IN_BUILD):
        return
    if kind == "import":
        what = "is of an import that is at work, or was cut short; import the file again to complete it"
        verified.add("import", wanted.keys.tag + name, what)
        return
    if name == "repaired":
        what = "is of a repair that is at work, or was cut short; run `scratchbus repair` to complete it"
        verified.add("foreign", wanted.keys.tag + name, what)
        return
    verified.add("unknown", wanted.keys.tag + name, "should not be there")


def _expected(name: str, wanted: StoredKeys) -> tuple[str, str]:
    """Return the kind of findings about a key and its type, no type for an unknown key."""
    if is_day(name):
        return "id", "hash"
    if name in _APART_WHOLE:
        return _KINDS.get(name, "key"), _APART_WHOLE[name]
    kind, _, rest = name.partition(":")
    if kind == f"p{wanted.base.build}":
        beginning = "".join(rest.partition(":")[:2])
        return _KINDS.get(beginning, "key"), _APART_IN_BUILD.get(beginning, "")
    return _KINDS.get(kind, "key"), _APART.get(kind, "")
