"""The tools of an executor, and the table that picks one for an observation (`config/tools.yaml`).

tools:
  - tool: blocklist
    type: risk_alert
    tags: [brute-force]
    success: done
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Literal

import structlog

from scratchbus import Observation
from scratchbus.daemon import Entries, Items, Text, TypeName, YamlModel, YamlProblem, YamlText
from scratchbus.errors import InvalidField, RulesError, shown
from scratchbus.settings import read_text

from .bookmark import state_directory

Tool = Callable[[Observation], str]
"""Acts on an observation and returns the name of the action. Acting twice has the same effect as acting once.

Raises InvalidInput for an observation that it cannot handle, OSError for a problem that may pass.
"""

logger = structlog.get_logger(__name__)


class Choice(YamlModel):
    """A tool, the type and tags of the observations it handles, and the outcome of its success."""

    tool: Text
    type: TypeName
    tags: Items[Text] = ()
    success: Literal["done", "notified", "pending"]


class ToolTable(YamlModel):
    """The choices in their order: the first that fits an observation counts."""

    tools: Entries[Choice]

    def pick(self, observation: Observation) -> Choice | None:
        """Return the choice for an observation, or None when none fits."""
        for choice in self.tools:
            if choice.type == observation.type and set(choice.tags).issubset(observation.tags):
                return choice
        return None


def read_tools(path: Path, known: Collection[str]) -> ToolTable:
    """Return the table in a YAML file, whose tools must be among `known`. Raises RulesError."""
    return parse_tools(read_text(path, RulesError), str(path), known)


def parse_tools(text: str, file: str, known: Collection[str]) -> ToolTable:
    """Return the table in a YAML text; errors call it `file`. Raises RulesError."""
    source = YamlText(text, file, RulesError)
    table = source.read(ToolTable)
    for index, choice in enumerate(table.tools):
        if choice.tool not in known:
            raise source.wrong(YamlProblem.unknown("tool", choice.tool, known, ("tools", index, "tool")))
    return table


def blocklist(file: Path) -> Tool:
    """Return a tool that appends the address in an observation's context to a file, one per line, each once."""

    def block(observation: Observation) -> str:
        address = _address(observation)
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a+b", buffering=0) as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)  # until it is closed
            stream.seek(0)
            content = stream.read()
            if address.encode() not in content.split():
                torn = b"" if content.endswith(b"\n") or not content else b"\n"
                _append(stream.fileno(), torn + address.encode() + b"\n", len(content))
        return f"blocklist:{address}"

    return block


def _append(descriptor: int, line: bytes, size: int) -> None:
    """Append a line to a file of this size, durably and whole: a part of an address may be another one's.

    Raises OSError.
    """
    try:
        written = os.write(descriptor, line)
        while written < len(line):  # a full disk takes what fits, and the next write says why
            written += os.write(descriptor, line[written:])
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def default_blocklist() -> Path:
    """Return the default path of the blocklist."""
    return state_directory() / "blocklist.txt"


def notify(observation: Observation) -> str:
    """Log the observation as a warning, for people to see."""
    logger.warning("notice", observation=observation.id, type=observation.type, content=observation.content)
    return f"notify:{observation.id}"


def _address(observation: Observation) -> str:
    """Return the address of one other machine, without a zone, and as IPv4 where IPv6 maps one.

    Raises InvalidField for anything else.
    """
    value = observation.context.get("address")
    try:
        address = ipaddress.ip_address(value if isinstance(value, str) and "%" not in value else "")
    except ValueError:
        raise InvalidField(
            "context", f"address: {shown(value)} is not an IP address, so it cannot be blocked"
        ) from None
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback or address.is_unspecified:
        raise InvalidField("context", f"address: {address} is this machine's own, so it is not blocked")
    if address.is_multicast or address.is_link_local or address.is_reserved:
        raise InvalidField("context", f"address: {address} does not name one machine, so it is not blocked")
    return str(address)
