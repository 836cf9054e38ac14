r"""The rules that turn lines of a log into observations, from a file such as `config/logwatch.yaml`.

    rules:
      - name: ssh-failed-password
        match: 'Failed password for (?P<user>.*) from (?P<address>\S+) port'
        publish:
          type: risk_alert
          content: "Failed passwords from {address}"
          dedupe_key: "ssh:{address}"
          context: {address: "{address}"}

`match` is searched for in the line without its line end, in linear time. In every text of `publish`, including tags and
`context`, `{group}` is replaced by what the named group matched; write a literal brace twice. The group `times` gives
the number of sightings that the line stands for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Any

from scratchbus import check_confidence, duration_ms, is_type_name
from scratchbus.daemon import Spot
from scratchbus.errors import InvalidInput

from . import yaml_file
from .patterns import Pattern, UnfitPattern, linear_pattern

TIMES = "times"
"""The group that gives the number of sightings a line stands for."""

_REQUIRED = ("type", "content")
_TEXTS = ("dedupe_key", "owner")
_OPTIONAL = (*_TEXTS, "tags", "context", "confidence", "ttl")
_LONGEST_TIMES = 9  # digits
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

Groups = Mapping[str, str]
Fill = Callable[[Groups], Any]


@dataclass(frozen=True)
class Rule:
    """What to look for in a line, and what to publish when it is found.

    `type` is None when it depends on the line.
    """

    name: str
    match: Pattern
    type: str | None
    fill: Callable[[Groups], dict[str, Any]]

    def sighting(self, line: str) -> dict[str, Any] | None:
        """Return the arguments of `page.add` for this line, or None when the rule does not match.

        `line` has no line end. A group that did not match is empty; an empty tag, owner or dedupe key is left out.
        """
        found = self.match.search(line)
        if found is None:
            return None
        groups = found.groupdict(default="")
        return {**self.fill(groups), "times": _times(groups.get(TIMES, ""))}


def read_rules(path: Path) -> tuple[Rule, ...]:
    """Return the rules in a YAML file. Raises RulesError, which names the line, the key, and what is allowed."""
    return parse_rules(yaml_file.read(path), str(path))


def parse_rules(text: str, file: str) -> tuple[Rule, ...]:
    """Return the rules in a YAML text; errors call it `file`. Raises RulesError."""
    root = yaml_file.keys(yaml_file.parse(text, file), required=("rules",))
    rules: dict[str, Rule] = {}
    for spot in yaml_file.entries(root["rules"]):
        rule = _rule(spot)
        if rule.name in rules:
            raise spot.at(["name"]).wrong(f"{rule.name!r} is used by two rules; names tell them apart")
        rules[rule.name] = rule
    return tuple(rules.values())


def _rule(spot: Spot) -> Rule:
    found = yaml_file.keys(spot, required=("name", "match", "publish"))
    name = found["name"].text()
    if not _NAME.fullmatch(name):
        raise found["name"].wrong(f"{name!r} is not a name; use 1–64 letters, digits and _.-")
    try:
        match = linear_pattern(found["match"].text())
    except UnfitPattern as problem:
        raise found["match"].wrong(str(problem)) from None
    publish = yaml_file.keys(found["publish"], _REQUIRED, _OPTIONAL)
    return Rule(name, match, _type(publish["type"]), _publish(publish, match.groupindex))


def _type(spot: Spot) -> str | None:
    name = spot.text()
    if "{" in name:
        return None
    if not is_type_name(name):
        raise spot.wrong(f"{name!r} is not the name of a type; use a–z, 0–9 and _")
    return name


def _publish(found: Mapping[str, Spot], groups: Mapping[str, int]) -> Callable[[Groups], dict[str, Any]]:
    if "context" in found and not found["context"].is_mapping():
        raise found["context"].wrong("must be a mapping of keys to values")
    fixed = _fixed_values(found)
    texts = {key: _text_fill(found[key], groups) for key in (*_REQUIRED, *_TEXTS) if key in found}
    tags = [_text_fill(tag, groups) for tag in found["tags"].elements()] if "tags" in found else []
    context = _fill(found["context"], groups) if "context" in found else None

    def fill(seen: Groups) -> dict[str, Any]:
        filled: dict[str, Any] = {key: text(seen) for key, text in texts.items()}
        filled.update((key, filled[key] or None) for key in _TEXTS if key in filled)
        if tags:
            filled["tags"] = [text for text in (tag(seen) for tag in tags) if text]
        if context is not None:
            filled["context"] = context(seen)
        return {**fixed, **filled}

    return fill


def _fixed_values(found: Mapping[str, Spot]) -> dict[str, Any]:
    """Return confidence and ttl, which are the same for every line, after one check here."""
    checks: dict[str, Callable[[Any], object]] = {"confidence": check_confidence, "ttl": duration_ms}
    fixed: dict[str, Any] = {}
    for key, check in checks.items():
        if key in found:
            fixed[key] = found[key].scalar()
            try:
                check(fixed[key])
            except InvalidInput as problem:
                raise found[key].wrong(str(problem).removeprefix(f"{key}: ")) from None
    return fixed


def _fill(spot: Spot, groups: Mapping[str, int]) -> Fill:
    """Return a function that fills the groups into a value, at any depth."""
    value = spot.plain()
    if isinstance(value, str) and value.strip():
        return _text_fill(spot, groups)
    if isinstance(value, list):
        items = [_fill(item, groups) for item in spot.elements()]
        return lambda seen: [item(seen) for item in items]
    if isinstance(value, dict):
        members = {name: _fill(member, groups) for name, member in spot.fields().items()}
        return lambda seen: {name: member(seen) for name, member in members.items()}
    return lambda seen: value


def _text_fill(spot: Spot, groups: Mapping[str, int]) -> Callable[[Groups], str]:
    text = spot.text()
    try:
        parts = list(Formatter().parse(text))
    except ValueError as problem:
        raise spot.wrong(f"{text!r}: {problem}; write a literal brace twice") from None
    for _, group, spec, conversion in parts:
        if group is not None and (spec or conversion or group not in groups):
            raise spot.wrong(f"{{{group}}} is not a named group of `match`; write a literal brace twice", groups)
    pieces = [(literal, group) for literal, group, _, _ in parts]
    return lambda seen: "".join(literal + ("" if group is None else seen[group]) for literal, group in pieces)


def _times(text: str) -> int:
    """Return the number in a text, or 1 unless it is from 1 to 999,999,999."""
    return max(1, int(text)) if text.isdecimal() and len(text) <= _LONGEST_TIMES else 1
