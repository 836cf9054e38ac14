"""YAML texts as pydantic models; an error names the file, line, column and key, and what to write instead."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator
from yaml.constructor import SafeConstructor

from scratchbus.domain.values import is_type_name
from scratchbus.errors import shown

# The C parser is ten times faster; a PyYAML built without it has only the plain one.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = "tag:yaml.org,2002:null"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_MAX_FILE_DEPTH = 64
_MAX_JSON_DEPTH = 32
_MAX_REPEATED = 100_000

K = TypeVar("K")
T = TypeVar("T")
M = TypeVar("M", bound="YamlModel")
Path = tuple[str | int, ...]


class YamlProblem(ValueError):
    """A problem with a value, raised by validators of a YamlModel.

    A leading `{}` in the text stands for the value. `at` is the path from the validated value to the wrong one.
    """

    def __init__(self, problem: str, allowed: Iterable[str] | None = None, at: Path = ()) -> None:
        super().__init__(problem)
        self.problem = problem
        self.allowed = allowed
        self.at = at

    @classmethod
    def unknown(cls, noun: str, name: str, known: Collection[str], at: Path = ()) -> YamlProblem:
        """Return the problem of a name that is not a known one, with the nearest known name."""
        similar = get_close_matches(name, known, n=1)
        hint = f" (did you mean {similar[0]!r}?)" if similar else ""
        return cls(f"unknown {noun} {shown(name)}{hint}", known, at)


FileError = Callable[..., Exception]
"""The class of a file's errors: RegistryError, RulesError, SettingsFileError."""


# -- the types of fields ---------------------------------------------------------------------------------------------


class YamlModel(BaseModel):
    """A mapping in a file. A key without a value is an empty mapping or list, or None."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    noun: ClassVar[str] = "key"
    """What errors call a key."""

    advice: ClassVar[str] = "add it"
    """The advice for a missing key."""

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, value: Any) -> Any:
        value = _mapping(value)
        fields = {field.alias or name: field for name, field in cls.model_fields.items()}
        for name in value:
            if name not in fields:
                raise YamlProblem.unknown(cls.noun, name, fields, (name,))
        for name, field in fields.items():
            if field.is_required() and name not in value:
                raise YamlProblem(f"{name!r} is missing; {cls.advice}", fields)
        return value


def _mapping(value: Any) -> Any:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise YamlProblem("{} is not a mapping; write one `name: value` per line")
    return value


def _items(value: Any) -> Any:
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise YamlProblem("{} is not a list; write it as [one, two]")
    return value


def _not_empty(value: tuple[T, ...]) -> tuple[T, ...]:
    if not value:
        raise YamlProblem("is empty; it needs at least one entry")
    return value


def _scalar(value: Any) -> Any:
    if isinstance(value, dict | list):
        raise YamlProblem("must be a single value, not a list or mapping")
    return value


def _text(value: Any) -> Any:
    if not isinstance(_scalar(value), str):
        raise YamlProblem("{} is not a text; put it in quotes")
    if not value.strip():
        raise YamlProblem("is empty; write a text or leave the key out")
    return value


def _type_name(value: str) -> str:
    if not is_type_name(value):
        problem = "is not a valid name; use 1–64 lower-case letters, digits and _, and begin with a letter"
        raise YamlProblem(f"{shown(value)} {problem}")
    return value


def _json(value: Any, path: Path = ()) -> Any:
    """Return a mapping's value if JSON can express it. Raises YamlProblem for infinite numbers and deep nesting."""
    if len(path) > _MAX_JSON_DEPTH:
        raise YamlProblem(f"is nested more than {_MAX_JSON_DEPTH} deep", at=path)
    if isinstance(value, dict | list):
        for step, each in value.items() if isinstance(value, dict) else enumerate(value):
            _json(each, (*path, step))
        return value
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise YamlProblem("{} is not a JSON number", at=path) from None
    return value


def whole_number(lowest: int, highest: int) -> BeforeValidator:
    """Return a validator of whole numbers within these bounds, both included."""

    def check(value: Any) -> Any:
        if isinstance(_scalar(value), bool) or not isinstance(value, int) or not lowest <= value <= highest:
            raise YamlProblem(f"{{}} is not a whole number from {lowest} to {highest}")
        return value

    return BeforeValidator(check)


Scalar = Annotated[Any, BeforeValidator(_scalar)]
Text = Annotated[str, BeforeValidator(_text)]
TypeName = Annotated[Text, AfterValidator(_type_name)]
Items = Annotated[tuple[T, ...], BeforeValidator(_items)]
Entries = Annotated[tuple[T, ...], AfterValidator(_not_empty), BeforeValidator(_items)]
Table = Annotated[dict[K, T], BeforeValidator(_mapping)]
JsonTable = Annotated[dict[str, Any], BeforeValidator(_json), BeforeValidator(_mapping)]


# -- the text --------------------------------------------------------------------------------------------------------


class _Location(NamedTuple):
    """The location of a value: the line and column of its key, or of its entry in a list."""

    line: int
    column: int
    key: str
    node: yaml.Node

    def inner(self, step: object, node: yaml.Node, begin: yaml.Node) -> _Location:
        mark = begin.start_mark
        key = f"{self.key}[{step}]" if isinstance(step, int) else f"{self.key}.{step}" if self.key else str(step)
        return _Location(mark.line + 1, mark.column + 1, key, node)


class YamlText:
    """A YAML text; `file` is its name in errors, `error` their class. Dates are read as text."""

    def __init__(self, text: str, file: str, error: FileError) -> None:
        self._file = file
        self._error = error
        self._walked: set[int] = set()  # the ids of the nodes that `_plain` has visited
        self._repeated = 0
        try:
            self._check_nesting(text)
            node = yaml.compose(text, Loader=_Loader)
        except (yaml.YAMLError, UnicodeError) as problem:
            mark = getattr(problem, "problem_mark", None)
            line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
            raise error(file, line, None, f"not YAML: {_reason(problem)}", None, column) from None
        self._root = _Location(1, 1, "", yaml.ScalarNode(_NULL, "") if node is None else node)
        self._data = self._plain(self._root)

    def read(self, model: type[M], context: object = None) -> M:
        """Return the text as a model; its validators get the context. Raises the error that comes first in the file."""
        try:
            return model.model_validate(self._data, context=context)
        except ValidationError as problem:
            found = []
            for each in problem.errors(include_url=False):
                cause = each.get("ctx", {}).get("error", each["msg"])
                if not isinstance(cause, YamlProblem):
                    cause = YamlProblem(str(cause).removeprefix(f"{''.join(map(str, each['loc'][-1:]))}: "))
                found.append((self._find((*each["loc"], *cause.at)), cause))
            raise self._wrong(*min(found, key=lambda each: each[0][:2])) from None

    def wrong(self, problem: YamlProblem) -> Exception:
        """Return the error for a problem whose `at` begins at the root."""
        return self._wrong(self._find(problem.at), problem)

    def location(self, *path: str | int) -> str:
        """Return file, line and column of a value, as errors show them."""
        location = self._find(path)
        return f"{self._file}:{location.line}:{location.column}"

    def _wrong(self, location: _Location, problem: YamlProblem) -> Exception:
        text = problem.problem
        if text.startswith("{}"):
            text = _shown(location.node) + text.removeprefix("{}")
        return self._error(self._file, location.line, location.key or None, text, problem.allowed, location.column)

    def _find(self, path: Path) -> _Location:
        """Return the location of a path; steps that the file does not have are pydantic's own and are skipped."""
        location = self._root
        for step in path:
            if isinstance(location.node, yaml.MappingNode):
                for key, node in location.node.value:
                    if key.value == step:
                        location = location.inner(step, node, key)
                        break
            elif isinstance(location.node, yaml.SequenceNode) and isinstance(step, int):
                node = location.node.value[step]
                location = location.inner(step, node, node)
        return location

    def _plain(self, location: _Location) -> Any:
        """Return a value as dicts, lists, texts, numbers, booleans and None. Raises the error for a duplicate key."""
        if id(location.node) in self._walked:
            self._repeated += 1
            if self._repeated > _MAX_REPEATED:
                problem = f"its aliases repeat more than {_MAX_REPEATED:,} values; use fewer"
                raise self._wrong(location, YamlProblem(problem))
        self._walked.add(id(location.node))
        if isinstance(location.node, yaml.SequenceNode):
            return [self._plain(location.inner(index, node, node)) for index, node in enumerate(location.node.value)]
        if not isinstance(location.node, yaml.MappingNode):
            return self._scalar(location)
        found: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, node in location.node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._wrong(location.inner("?", node, key), YamlProblem("is not a plain name"))
            name, inner = str(key.value), location.inner(key.value, node, key)
            if name in found:
                raise self._wrong(inner, YamlProblem(f"is given twice, first in line {lines[name]}; keep one"))
            found[name], lines[name] = self._plain(inner), inner.line
        return found

    def _scalar(self, location: _Location) -> str | int | float | bool | None:
        if location.node.tag == _TIMESTAMP:
            return str(location.node.value)
        try:
            value = SafeConstructor().construct_document(location.node)
        except (yaml.YAMLError, ValueError) as problem:
            raise self._wrong(location, YamlProblem(f"{{}} cannot be read: {_reason(problem)}")) from None
        except LookupError:  # `!!bool 5`, or `!!int` of nothing
            raise self._wrong(location, YamlProblem(f"{{}} is not a {location.node.tag.rpartition(':')[2]}")) from None
        if value is None or isinstance(value, str | int | float):
            return value
        raise self._wrong(location, YamlProblem("{} is not a text or number; put it in quotes"))

    def _check_nesting(self, text: str) -> None:
        """Refuse a text in which the composer would run out of stack, and one with a value inside itself."""
        anchors: list[str | None] = []  # of the values around the event
        for event in yaml.parse(text, Loader=_Loader):
            problem, mark = None, event.start_mark
            if isinstance(event, yaml.AliasEvent) and event.anchor in anchors:
                problem = f"alias *{event.anchor} is inside its own anchor; write the value out"
            elif isinstance(event, yaml.CollectionStartEvent):
                anchors.append(event.anchor)
                if len(anchors) > _MAX_FILE_DEPTH:
                    problem = f"is nested more than {_MAX_FILE_DEPTH} deep; flatten it"
            elif isinstance(event, yaml.CollectionEndEvent):
                anchors.pop()
            if problem is not None and mark is not None:
                raise self._error(self._file, mark.line + 1, None, problem, None, mark.column + 1)


def _shown(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return shown(str(node.value))
    return "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"


def _reason(problem: Exception) -> str:
    reason = getattr(problem, "problem", None) or getattr(problem, "reason", None) or problem
    return " ".join(str(reason).split())
