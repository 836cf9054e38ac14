"""The staged keys of imports that can no longer end."""

from __future__ import annotations

from secrets import token_hex

from scratchbus.engine.scripts import Key, lua_script
from scratchbus.engine.steps import Call, Step, ask, scan
from scratchbus.eventlog.keys import ShardKeys

_KEYS_AT_ONCE = 1_000


@lua_script("eventlog/end_import")
def _end_import(*, importing: Key, token: str) -> None:
    """Record that no import is at work, unless another one has begun."""


def abort_import(keys: ShardKeys) -> Step[None]:
    """Abort an import into a shard that is at work or was killed, and delete its staged keys."""
    if not (yield from ask(keys.shard, "EXISTS", keys.importing)):
        return
    token = token_hex(8)
    yield from ask(keys.shard, "HSET", keys.importing, "token", token)  # it writes nothing from now on
    found = list[bytes]()
    yield from scan(keys.shard, found.extend, "SCAN", match=f"{keys.staged.tag}*", count=_KEYS_AT_ONCE)
    for start in range(0, len(found), _KEYS_AT_ONCE):
        yield from ask(keys.shard, "DEL", *found[start : start + _KEYS_AT_ONCE])
    yield Call(keys.shard, (_end_import(importing=keys.importing, token=token),))
