"""JSON Schemas of context and metadata, which are checked in linear time.

jsonschema itself would use Python's `re`, which may backtrack for hours, and would compare each of the `uniqueItems`
with all others. Only this module imports jsonschema, and it is imported for the first schema: most registries have
none, and the import takes longer than hundreds of writes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, UnknownType, ValidationError, best_match
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from scratchbus.domain.linear_patterns import UnfitPattern, linear_pattern

Path = tuple[str | int, ...]

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_MAX_LINE: Final = 200


@dataclass(frozen=True)
class SchemaProblem:
    """A problem, and the path of keys and indexes that leads to it."""

    path: Path
    message: str


_WITH_VALUES: Final = ("const", "enum", "default", "examples")
"""Keywords with values in which no schema is looked for."""

_WITH_NAMES: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords with schemas by name."""

_compiled = lru_cache(256)(linear_pattern)


def _is_linear(pattern: object) -> bool:
    """Return True for a linear pattern, and for a value that is not a text. Raises UnfitPattern."""
    return not isinstance(pattern, str) or _compiled(pattern) is not None


def _is_found(pattern: str, text: str) -> bool:
    return _compiled(pattern).search(text) is not None


def _pattern(_validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[ValidationError]:
    if isinstance(value, str) and not _is_found(pattern, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, schemas: Mapping[str, Any], value: Any, _schema: Any
) -> Iterator[ValidationError]:
    for pattern, schema in schemas.items() if isinstance(value, dict) else ():
        for name, inner in value.items():
            if _is_found(pattern, name):
                yield from validator.descend(inner, schema, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, schema: Any, value: Any, parent: Mapping[str, Any]
) -> Iterator[ValidationError]:
    """Check the properties that no pattern matches, as if the schema had no patterns."""
    if isinstance(value, dict) and (patterns := parent.get("patternProperties")):
        value = {name: inner for name, inner in value.items() if not any(_is_found(each, name) for each in patterns)}
        parent = {name: inner for name, inner in parent.items() if name != "patternProperties"}
    yield from Draft202012Validator.VALIDATORS["additionalProperties"](validator, schema, value, parent)


def _unique_items(_validator: Any, is_unique: bool, value: Any, _schema: Any) -> Iterator[ValidationError]:
    if is_unique and isinstance(value, list) and len(set(map(_comparable, value))) < len(value):
        yield ValidationError(f"{value!r} has non-unique elements")


def _comparable(value: Any) -> Hashable:
    """Return a hashable form of a JSON value that is equal for equal values: 1 equals 1.0, but not true."""
    if isinstance(value, dict):
        return dict, frozenset((name, _comparable(inner)) for name, inner in value.items())
    if isinstance(value, list):
        return list, tuple(map(_comparable, value))
    hashable: Hashable = (bool, value) if isinstance(value, bool) else value
    return hashable


_MIXED: Final = "unevaluatedProperties is not supported beside patternProperties; use additionalProperties"


def _mixed(*_: Any) -> Iterator[ValidationError]:
    raise UnfitPattern(_MIXED)


_LINEAR: Final = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
}
"""The keywords that take jsonschema more than linear time, besides `unevaluatedProperties` and `patternProperties`."""

_FORMATS: Final = FormatChecker(())
_FORMATS.checkers = Draft202012Validator.FORMAT_CHECKER.checkers | {"regex": (_is_linear, UnfitPattern)}


def compile_schema(schema: Mapping[str, Any]) -> Draft202012Validator:
    """Return the validator of a valid schema. It never fetches a reference from the network."""
    keywords = _LINEAR | {"unevaluatedProperties": _mixed} if _mixes(schema) else _LINEAR
    kind: type[Draft202012Validator] = extend(Draft202012Validator, keywords)  # type: ignore[no-untyped-call]
    kind.evolve = _evolve  # type: ignore[method-assign]  # jsonschema warns about subclasses
    return kind(dict(schema), registry=Registry())


def _evolve(self: Any, **changes: Any) -> Any:
    """Return this validator for a part of the schema. A `$schema` in it would select one that uses `re`."""
    part = changes.get("schema")
    if isinstance(part, Mapping) and "$schema" in part:
        changes["schema"] = {name: value for name, value in part.items() if name != "$schema"}
    return Draft202012Validator.evolve(self, **changes)


def schema_problem(schema: Mapping[str, Any], *, is_published: bool = False) -> SchemaProblem | None:
    """Return why this is not a usable JSON Schema, or None: form, dialect, a pattern, a `$ref`.

    A schema that `is_published` may have any pattern that Python accepts; values fail on those that cannot be matched
    in linear time.
    """
    if schema.get("$schema", _DIALECT) != _DIALECT:
        return SchemaProblem(("$schema",), f"only {_DIALECT} is supported; leave the key out")
    try:
        formats = Draft202012Validator.FORMAT_CHECKER if is_published else _FORMATS
        Draft202012Validator.check_schema(schema, format_checker=formats)
    except SchemaError as problem:
        message = (
            f"{problem.instance!r} {problem.cause}" if isinstance(problem.cause, UnfitPattern) else problem.message
        )
        return SchemaProblem(tuple(problem.absolute_path), _short(message))
    if not is_published and _mixes(schema):
        return SchemaProblem((), _MIXED)
    root = DRAFT202012.create_resource(dict(schema))
    resolver = Registry().with_resource("", root).resolver()
    for path, target in _entries(schema, ()):
        if path[-1] not in (("$ref",) if is_published else ("$ref", "$dynamicRef")) or not isinstance(target, str):
            continue
        if _is_in_value(path):
            continue
        try:
            part = resolver.lookup(target).contents
        except (Unresolvable, ValueError):
            return SchemaProblem(path, f"{path[-1]} {target!r} is not defined in this schema; define it under $defs")
        if not is_published and not isinstance(part, Mapping | bool):
            return SchemaProblem(path, f"{path[-1]} {target!r} leads to something that is not a schema")
    return None


def value_problem(validator: Draft202012Validator, value: Mapping[str, Any]) -> SchemaProblem | None:
    """Return the most relevant problem of a value, None if it fits the schema."""
    try:
        worst = best_match(validator.iter_errors(value))
    except UnfitPattern as problem:
        return SchemaProblem((), f"cannot be checked: a pattern of its schema {problem}")
    except (Unresolvable, UnknownType, AttributeError, TypeError):
        return SchemaProblem((), "cannot be checked: a reference in its schema leads to something that is not a schema")
    except RecursionError:
        return SchemaProblem(
            (), "cannot be checked: it is nested too deeply, or the schema has a $ref that leads to itself"
        )
    return None if worst is None else SchemaProblem(tuple(worst.absolute_path), _short(worst.message))


def _mixes(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema has both keywords for which jsonschema would use `re` after all."""
    return {"patternProperties", "unevaluatedProperties"} <= {path[-1] for path, _ in _entries(schema, ())}


def _entries(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the entries of all mappings in a value, each with its path."""
    children = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in children:
        if isinstance(value, Mapping):
            yield (*path, key), inner
        yield from _entries(inner, (*path, key))


def _is_in_value(path: Path) -> bool:
    """Return whether a path leads into a value that a schema has, as in `const`, which is no schema itself."""
    names = iter(path[:-1])
    for name in names:
        if name in _WITH_NAMES:
            next(names, None)  # a name chosen by the author of the schema
        elif name in _WITH_VALUES:
            return True
    return False


def _short(text: str) -> str:
    """Return a text in one line; a long one loses its middle, since the problem may be named after a value."""
    line, half = " ".join(text.split()), _MAX_LINE // 2
    return line if len(line) <= _MAX_LINE else f"{line[:half]}…{line[1 - half :]}"
