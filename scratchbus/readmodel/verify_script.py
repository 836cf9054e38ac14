"""The script with which `verify` reads a shard; apart, since every connection loads the scripts for reading."""

from __future__ import annotations

from scratchbus.engine.scripts import Key, lua_script


@lua_script("eventlog/commands", "readmodel/verify/probe", only_reads=True)
def probe(*commands: object, tail: Key, checkpoint: Key) -> None:
    """Run reading commands in one consistent step."""
