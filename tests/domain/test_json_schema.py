"""Schemas of context and metadata mean what JSON Schema says, and no pattern in them can stop a process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from scratchbus.domain.json_schema import compile_schema, schema_problem, value_problem
from scratchbus.domain.registry_yaml import parse_registry
from scratchbus.errors import InvalidField, RegistryError

HELD_UP = "^(a+)+$"
"""Python's own search for this takes twice as long for each further letter."""

LINEAR = {
    "pattern": f"{{properties: {{b: {{pattern: '{HELD_UP}'}}}}}}",
    "patternProperties": f"{{patternProperties: {{'{HELD_UP}': false}}}}",
    "additionalProperties": f"{{patternProperties: {{'{HELD_UP}': true}}, additionalProperties: {{type: string}}}}",
    "propertyNames": f"{{propertyNames: {{anyOf: [{{pattern: '{HELD_UP}'}}, {{maxLength: 100000}}]}}}}",
}


@pytest.mark.parametrize("keyword", LINEAR)
def test_no_pattern_takes_longer_than_the_text_is_long(keyword):
    """In a process of its own: a search that backtracks holds the interpreter, and nothing else could stop it."""
    code = f"""
from scratchbus.domain.registry_yaml import parse_registry
kind = parse_registry({f"types: {{x: {{context: {LINEAR[keyword]}}}}}"!r}, "types").get("x")
text = "a" * 50_000 + "#"
try:
    kind.check_context({{"b": text, text: text}})
except Exception as problem:
    print(type(problem).__name__)
else:
    print("valid")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=20, check=True)
    assert done.stdout.decode().strip() == ("InvalidField" if keyword == "pattern" else "valid")


def problem_of(schema, value):
    assert schema_problem(schema) is None
    return value_problem(compile_schema(schema), value)


@pytest.mark.parametrize(
    ("schema", "fits", "does_not"),
    [
        ({"properties": {"a": {"pattern": "^T-[0-9]+$"}}}, [{"a": "T-1"}, {"a": 5}, {}], [{"a": "T-"}]),
        ({"properties": {"a": {"pattern": r"\d"}}}, [{"a": "٣"}], [{"a": "x"}]),
        ({"properties": {"a": {"pattern": r"^[\u00e0-\u00ff]+\u0021?$"}}}, [{"a": "é"}, {"a": "é!"}], [{"a": "e"}]),
        ({"patternProperties": {"^n_": {"type": "number"}}}, [{"n_a": 1, "b": "x"}], [{"n_a": "x"}]),
        (
            {"properties": {"a": {}}, "patternProperties": {"^n_": {}, "^m": {}}, "additionalProperties": False},
            [{"a": 1, "n_b": 2, "m": 3}],
            [{"b": 1}, {"a": 1, "b": 2}],
        ),
        ({"patternProperties": {"^n_": {}}, "additionalProperties": {"type": "string"}}, [{"b": "x"}], [{"b": 1}]),
        ({"additionalProperties": False}, [{}], [{"a": 1}]),
        ({"properties": {"a": {}}, "unevaluatedProperties": False}, [{"a": 1}], [{"b": 1}]),
        ({"properties": {"a": {"$ref": "#/$defs/t"}}, "$defs": {"t": {"pattern": "^x"}}}, [{"a": "x"}], [{"a": "y"}]),
        ({"properties": {"a": {"const": {"pattern": "(?=x)"}}}}, [{"a": {"pattern": "(?=x)"}}], [{"a": 1}]),
    ],
    ids=str,
)
def test_patterns_mean_what_json_schema_says(schema, fits, does_not):
    for value in fits:
        assert problem_of(schema, value) is None
    for value in does_not:
        assert problem_of(schema, value) is not None


@pytest.mark.parametrize(
    "schema", ["{properties: {a: {pattern: '(?=a)b'}}}", "{patternProperties: {b: {}}, unevaluatedProperties: false}"]
)
def test_a_schema_that_an_older_version_published_is_read_and_nothing_passes_it(schema):
    text = f"types: {{x: {{context: {schema}}}, y: {{}}}}"
    with pytest.raises(RegistryError):
        parse_registry(text, "types")
    registry = parse_registry(text, "types", is_published=True)
    registry.get("y").check_context({"a": "b"})
    with pytest.raises(InvalidField, match="context: cannot be checked: "):
        registry.get("x").check_context({"a": "b"})
