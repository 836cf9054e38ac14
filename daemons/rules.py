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
`context`, `{group}` is replaced by the match of the named group; write a literal brace twice. The group `times` gives
the number of sightings that the line stands for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from string import Formatter
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, model_validator

from scratchbus import check_confidence, duration_ms, is_type_name
from scratchbus.daemon import (
    Entries,
    Items,
    JsonTable,
    Pattern,
    Text,
    UnfitPattern,
    YamlModel,
    YamlProblem,
    YamlText,
    linear_pattern,
)
from scratchbus.errors import RulesError
from scratchbus.settings import read_text

TIMES = "times"
"""The group that gives the number of sightings a line stands for."""

_MAX_TIMES = 9  # digits
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

Groups = Mapping[str, str]
Fill = Callable[[Groups], Any]


def _name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise YamlProblem(f"{name!r} is not a name; use 1–64 letters, digits and _.-")
    return name


def _type(name: str) -> str:
    if "{" not in name and not is_type_name(name):
        raise YamlProblem(f"{name!r} is not the name of a type; use a–z, 0–9 and _")
    return name


def _duration(value: Any) -> Any:
    duration_ms(value)
    return value


class _Publish(YamlModel):
    type: Annotated[Text, AfterValidator(_type)]
    content: Text
    dedupe_key: Text = ""
    owner: Text = ""
    tags: Items[Text] = ()
    context: JsonTable = Field({})
    confidence: Annotated[float, BeforeValidator(check_confidence)] = 1.0
    ttl: Annotated[Any, AfterValidator(_duration)] = None

    def filler(self, groups: Collection[str]) -> Fill:
        """Return a function that makes the arguments of `page.add` from the matched groups. Raises YamlProblem."""
        fixed = {"confidence", "ttl"}
        fills = {key: _filler(getattr(self, key), groups, ("publish", key)) for key in self.model_fields_set - fixed}
        fixed_values = {key: getattr(self, key) for key in self.model_fields_set & fixed}

        def fill(match: Groups) -> dict[str, Any]:
            values = {key: each(match) for key, each in fills.items()}
            values.update({key: values[key] or None for key in ("dedupe_key", "owner") if key in values})
            if "tags" in values:
                values["tags"] = [tag for tag in values["tags"] if tag]
            return {**fixed_values, **values}

        return fill


class Rule(YamlModel):
    """A pattern to find in lines, and the observation to publish for a match."""

    name: Annotated[Text, AfterValidator(_name)]
    match: Text
    publish: _Publish
    _pattern: Pattern = PrivateAttr()
    _fill: Fill = PrivateAttr()

    @model_validator(mode="after")
    def _compile(self) -> Self:
        try:
            self._pattern = linear_pattern(self.match)
        except UnfitPattern as problem:
            raise YamlProblem(str(problem), at=("match",)) from None
        self._fill = self.publish.filler(self._pattern.groupindex)
        return self

    @property
    def type(self) -> str | None:
        """The type of the published observation; None if it depends on the line."""
        return None if "{" in self.publish.type else self.publish.type

    def sighting(self, line: str) -> dict[str, Any] | None:
        """Return the arguments of `page.add` for this line, or None when the rule does not match.

        `line` has no line end. A group that did not match is empty; an empty tag, owner or dedupe key is left out.
        """
        found = self._pattern.search(line)
        if found is None:
            return None
        groups = found.groupdict(default="")
        return {**self._fill(groups), "times": _times(groups.get(TIMES, ""))}


class _RulesFile(YamlModel):
    rules: Entries[Rule]

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        seen = set()
        for index, rule in enumerate(self.rules):
            if rule.name in seen:
                problem = f"{rule.name!r} is used by two rules; names tell them apart"
                raise YamlProblem(problem, at=("rules", index, "name"))
            seen.add(rule.name)
        return self


def read_rules(path: Path) -> tuple[Rule, ...]:
    """Return the rules in a YAML file. Raises RulesError, which names the line, the key, and what is allowed."""
    return parse_rules(read_text(path, RulesError), str(path))


def parse_rules(text: str, file: str) -> tuple[Rule, ...]:
    """Return the rules in a YAML text; errors call it `file`. Raises RulesError."""
    return YamlText(text, file, RulesError).read(_RulesFile).rules


def _filler(value: Any, groups: Collection[str], at: tuple[str | int, ...]) -> Fill:
    """Return a function that fills the groups into a value, at any depth. Raises YamlProblem."""
    if isinstance(value, str) and value.strip():
        return _text_filler(value, groups, at)
    if isinstance(value, list | tuple):
        items = [_filler(item, groups, (*at, index)) for index, item in enumerate(value)]
        return lambda match: [item(match) for item in items]
    if isinstance(value, dict):
        members = {name: _filler(member, groups, (*at, name)) for name, member in value.items()}
        return lambda match: {name: member(match) for name, member in members.items()}
    return lambda match: value


def _text_filler(text: str, groups: Collection[str], at: tuple[str | int, ...]) -> Callable[[Groups], str]:
    try:
        parts = list(Formatter().parse(text))
    except ValueError as problem:
        raise YamlProblem(f"{text!r}: {problem}; write a literal brace twice", at=at) from None
    for _, group, spec, conversion in parts:
        if group is not None and (spec or conversion or group not in groups):
            problem_text = f"{{{group}}} is not a named group of `match`; write a literal brace twice"
            raise YamlProblem(problem_text, groups, at)
    segments = [(literal, group) for literal, group, _, _ in parts]
    return lambda match: "".join(literal + ("" if group is None else match[group]) for literal, group in segments)


def _times(text: str) -> int:
    """Return the number in a text, or 1 unless it is from 1 to 999,999,999."""
    return max(1, int(text)) if text.isdecimal() and len(text) <= _MAX_TIMES else 1
