"""YAML read strictly: every value knows its file, line and key, so that a complaint can name them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any, Protocol

import yaml
from yaml.constructor import SafeConstructor

from scratchbus.errors import shown

# The C parser is ten times faster; a PyYAML built without it has only the plain one.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = "tag:yaml.org,2002:null"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_DEEPEST = 32
_DEEPEST_FILE = 64  # which leaves room around the deepest value
_MOST_REPEATED = 100_000


class FileError(Protocol):
    """What makes the error of a file: RegistryError, RulesError."""

    def __call__(
        self, file: str, line: int | None, key: str | None, problem: str, allowed: Iterable[str] | None = None, /
    ) -> Exception:
        """Return the error that names the place, the problem and what is allowed there."""
        ...


class Spot:
    """One value of a YAML file, and where it stands.

    `line` is that of the value's key, or of the entry in a list. A key without a value reads as an empty mapping,
    an empty list or None, whichever is asked for.
    """

    def __init__(self, node: yaml.Node, file: str, line: int, key: str, error: FileError) -> None:
        self._node = node
        self._error = error
        self.file = file
        self.line = line
        self.key = key

    def wrong(self, problem: str, allowed: Iterable[str] | None = None) -> Exception:
        """Return the error that says what is wrong with this value, to be raised."""
        return self._error(self.file, self.line, self.key or None, problem, allowed)

    def fields(self, known: Collection[str] | None = None, what: str = "key") -> dict[str, Spot]:
        """Return the values of a mapping by key. Refuses a key that is given twice, or is not among the known."""
        if self._is_null():
            return {}
        if not isinstance(self._node, yaml.MappingNode):
            raise self.wrong(f"{self._shown()} is not a mapping; write one `name: value` per line")
        found: dict[str, Spot] = {}
        for key_node, node in self._node.value:
            name = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "?"
            spot = self._inner(node, key_node.start_mark.line + 1, f"{self.key}.{name}" if self.key else name)
            if not isinstance(key_node, yaml.ScalarNode):
                raise spot.wrong("is not a plain name")
            if name in found:
                raise spot.wrong(f"is given twice, first in line {found[name].line}; keep one")
            if known is not None and name not in known:
                raise spot.wrong(f"unknown {what} {shown(name)}", known)
            found[name] = spot
        return found

    def elements(self) -> list[Spot]:
        """Return the entries of a list."""
        if self._is_null():
            return []
        if not isinstance(self._node, yaml.SequenceNode):
            raise self.wrong(f"{self._shown()} is not a list; write it as [one, two]")
        return [
            self._inner(node, node.start_mark.line + 1, f"{self.key}[{index}]")
            for index, node in enumerate(self._node.value)
        ]

    def scalar(self) -> str | int | float | bool | None:
        """Return a single value: a text, a number, true, false or None. A date is a text."""
        if not isinstance(self._node, yaml.ScalarNode):
            raise self.wrong("must be a single value, not a list or mapping")
        if self._node.tag == _TIMESTAMP:
            return str(self._node.value)
        try:
            value = SafeConstructor().construct_document(self._node)
        except (yaml.YAMLError, ValueError) as problem:
            raise self.wrong(f"{self._shown()} cannot be read: {_reason(problem)}") from None
        if value is None or isinstance(value, str | int | float):
            return value
        raise self.wrong(f"{self._shown()} is not a text or number; put it in quotes")

    def text(self) -> str:
        """Return a text that is not empty."""
        value = self.scalar()
        if not isinstance(value, str):
            raise self.wrong(f"{self._shown()} is not a text; put it in quotes")
        if not value.strip():
            raise self.wrong("is empty; write a text or leave the key out")
        return value

    def whole(self, lowest: int, highest: int) -> int:
        """Return a whole number within these bounds, which belong to them."""
        value = self.scalar()
        if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
            raise self.wrong(f"{self._shown()} is not a whole number from {lowest} to {highest}")
        return value

    def plain(self, depth: int = 0) -> Any:
        """Return the value as JSON has it: dicts, lists, texts, numbers, true, false, None."""
        if depth > _DEEPEST:
            raise self.wrong(f"is nested more than {_DEEPEST} deep")
        if isinstance(self._node, yaml.MappingNode):
            return {name: spot.plain(depth + 1) for name, spot in self.fields().items()}
        if isinstance(self._node, yaml.SequenceNode):
            return [spot.plain(depth + 1) for spot in self.elements()]
        value = self.scalar()
        try:
            json.dumps(value, allow_nan=False)
        except ValueError:
            raise self.wrong(f"{self._shown()} is not a JSON number") from None
        return value

    def at(self, path: Iterable[str | int]) -> Spot:
        """Return the value at the end of a path of keys and list indexes that is known to be there."""
        spot = self
        for step in path:
            spot = spot.elements()[step] if isinstance(step, int) else spot.fields()[step]
        return spot

    def is_mapping(self) -> bool:
        """Say whether the value is a mapping."""
        return isinstance(self._node, yaml.MappingNode)

    def _inner(self, node: yaml.Node, line: int, key: str) -> Spot:
        return Spot(node, self.file, line, key, self._error)

    def _is_null(self) -> bool:
        return isinstance(self._node, yaml.ScalarNode) and self._node.tag == _NULL

    def _shown(self) -> str:
        if isinstance(self._node, yaml.ScalarNode):
            return shown(str(self._node.value))
        return "a list" if isinstance(self._node, yaml.SequenceNode) else "a mapping"


def compose(text: str, file: str, error: FileError) -> Spot:
    """Return the root of a YAML text; `file` is its name in complaints, `error` their class. An empty text is null."""
    try:
        _check_size(text, file, error)
        node = yaml.compose(text, Loader=_Loader)
    except (yaml.YAMLError, UnicodeError) as problem:
        mark = getattr(problem, "problem_mark", None)
        raise error(file, mark.line + 1 if mark else None, None, f"not YAML: {_reason(problem)}") from None
    return Spot(yaml.ScalarNode(_NULL, "") if node is None else node, file, 1, "", error)


def _check_size(text: str, file: str, error: FileError) -> None:
    """Refuse a text that makes far more of itself than it says, before anything is made of it.

    That is one nested so deep that the parser would run out of stack, one with aliases of aliases of aliases, and one
    with a value inside itself.
    """
    sizes: dict[str, int] = {}  # of the anchored values that are complete: how many values they make
    open_values: list[tuple[str | None, int]] = []  # each with its anchor, and what the values before it make
    count = repeated = 0
    for event in yaml.parse(text, Loader=_Loader):
        line = event.start_mark.line + 1 if event.start_mark else None
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in open_values):
                raise error(file, line, None, f"alias *{event.anchor} is inside its own anchor; write the value out")
            repeated += sizes.get(event.anchor or "", 0)
            count += sizes.get(event.anchor or "", 0)
            if repeated > _MOST_REPEATED:
                raise error(file, line, None, f"its aliases repeat more than {_MOST_REPEATED:,} values; use fewer")
        elif isinstance(event, yaml.CollectionStartEvent):
            open_values.append((event.anchor, count))
            count += 1
            if len(open_values) > _DEEPEST_FILE:
                raise error(file, line, None, f"is nested more than {_DEEPEST_FILE} deep; flatten it")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_values.pop()
            if anchor is not None:
                sizes[anchor] = count - before
        elif isinstance(event, yaml.ScalarEvent):
            count += 1
            if event.anchor is not None:
                sizes[event.anchor] = 1


def _reason(problem: Exception) -> str:
    reason = getattr(problem, "problem", None) or getattr(problem, "reason", None) or problem
    return " ".join(str(reason).split())
