"""The script with which `verify` looks at a shard; apart, since everyone who connects loads the scripts for reading."""

from __future__ import annotations

from scratchbus.engine.scripts import Key, lua_script


@lua_script("eventlog/commands", "readmodel/verify/probe", only_reads=True)
def probe(*commands: object, tail: Key, checkpoint: Key) -> None:
    """Run commands that read, in one consistent look."""
