"""JSON Schemas of context and metadata.

Only this module imports jsonschema, and it is imported when the first schema is met: most registries have none, and
the import takes longer than hundreds of writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

Path = tuple[str | int, ...]

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_LONGEST: Final = 200


@dataclass(frozen=True)
class SchemaProblem:
    """What does not fit, and the path of keys and indexes that leads there."""

    path: Path
    message: str


def compile_schema(schema: Mapping[str, Any]) -> Draft202012Validator:
    """Return what validates against a sound schema. It never goes online."""
    return Draft202012Validator(dict(schema), registry=Registry())


def schema_problem(schema: Mapping[str, Any]) -> SchemaProblem | None:
    """Return what makes this no usable JSON Schema, if anything does: form, dialect, a pattern, a `$ref`."""
    if schema.get("$schema", _DIALECT) != _DIALECT:
        return SchemaProblem(("$schema",), f"only {_DIALECT} is supported; leave the key out")
    try:
        Draft202012Validator.check_schema(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    except SchemaError as problem:
        return SchemaProblem(tuple(problem.absolute_path), _short(problem.message))
    root = DRAFT202012.create_resource(dict(schema))
    resolver = Registry().with_resource("", root).resolver()
    for path, target in _references(schema, ()):
        try:
            resolver.lookup(target)
        except Unresolvable:
            return SchemaProblem(path, f"$ref {target!r} is not defined in this schema; define it under $defs")
    return None


def value_problem(validator: Draft202012Validator, value: Mapping[str, Any]) -> SchemaProblem | None:
    """Return what does not fit the schema most, if anything does."""
    try:
        worst = best_match(validator.iter_errors(value))
    except RecursionError:
        return SchemaProblem(
            (), "cannot be checked: it is nested too deep, or the schema has a $ref that leads to itself"
        )
    return None if worst is None else SchemaProblem(tuple(worst.absolute_path), _short(worst.message))


def _references(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key == "$ref" and isinstance(inner, str):
                yield (*path, key), inner
            yield from _references(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _references(inner, (*path, index))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
