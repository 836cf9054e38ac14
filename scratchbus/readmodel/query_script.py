"""The script that reads a page."""

from __future__ import annotations

from scratchbus.engine.scripts import Key, Keys, lua_script
from scratchbus.eventlog.layouts import LUA


@lua_script("eventlog/clock", "eventlog/entries", "readmodel/query", only_reads=True, constants=LUA)
def query_script(
    *arguments: object,
    tail: Key,
    checkpoint: Key,
    log: Key,
    docs: Key,
    heads: Key,
    open: Key,
    types: Key,
    sets: Keys,
    page: str,
    max_behind: int,
    folded: str,
    cached_checkpoint: str,
    cached_tail: str,
    operation: str,
    of_type: str,
) -> None:
    """Read a page, and up to `max_behind` events after the stream id `folded` or, if that is "", after the checkpoint.

    If the checkpoint is still `cached_checkpoint`, the events up to `cached_tail`, unless that is "", are left out.

    The operations and their arguments: "get": ids; "active": the limit, then of a cached read, whose unchanged
    documents need not be returned, the checkpoint and the tail ("" for no such read), and "1" if it found all (else
    both must still be the same), and for a further part of a read, whose earlier ones are like a cached read, the score
    to continue below; "list": the least number of results, the seq to continue below ("" for the newest), statuses
    (",a,b," or ""), and a text that the document must contain (or ""). `open` is the sorted set that "active" walks,
    `sets` are those that "list" intersects; without any it walks those of all `types`, whose names begin with
    `of_type`.
    """
