"""Schemas of context and metadata follow JSON Schema, and their patterns match in linear time."""

from __future__ import annotations

import re
import subprocess
import time

import pytest

from scratchbus.domain.json_schema import SchemaProblem, compile_schema, schema_problem, value_problem
from scratchbus.domain.registry_yaml import parse_registry
from scratchbus.errors import InvalidField, RegistryError
from tests import launcher

BACKTRACKS = "^(a+)+$"
"""Python's `re` takes twice as long for each additional letter."""

LINEAR = {
    "pattern": f"{{properties: {{b: {{pattern: '{BACKTRACKS}'}}}}}}",
    "patternProperties": f"{{patternProperties: {{'{BACKTRACKS}': false}}}}",
    "additionalProperties": f"{{patternProperties: {{'{BACKTRACKS}': true}}, additionalProperties: {{type: string}}}}",
    "propertyNames": f"{{propertyNames: {{anyOf: [{{pattern: '{BACKTRACKS}'}}, {{maxLength: 100000}}]}}}}",
    "$schema in a schema that refers to itself": (
        "{$schema: 'https://json-schema.org/draft/2020-12/schema', properties: {"
        f"inner: {{$ref: '#'}}, b: {{pattern: '{BACKTRACKS}'}}}}}}"
    ),
    "$schema of a property": (
        "{properties: {inner: {$schema: 'http://json-schema.org/draft-07/schema#', properties: {"
        f"b: {{pattern: '{BACKTRACKS}'}}}}}}}}}}"
    ),
}


@pytest.mark.parametrize("keyword", LINEAR)
def test_patterns_match_in_linear_time(keyword):
    """Run in a separate process, because a backtracking search blocks the interpreter."""
    has_schema = keyword.startswith("$schema")
    value = '{"inner": {"b": text}}' if has_schema else '{"b": text, text: text}'
    code = f"""
from scratchbus.domain.registry_yaml import parse_registry
kind = parse_registry({f"types: {{x: {{context: {LINEAR[keyword]}}}}}"!r}, "types").get("x")
text = "a" * 50_000 + "#"
try:
    kind.check_context({value})
except Exception as problem:
    print(type(problem).__name__)
else:
    print("valid")
"""
    done = subprocess.run(launcher.command("-c", code), capture_output=True, timeout=20, check=True)
    assert done.stdout.decode().strip() == ("InvalidField" if keyword == "pattern" or has_schema else "valid")


def test_unique_items_are_compared_in_linear_time():
    validator = compile_schema({"properties": {"a": {"uniqueItems": True}}})
    value = {"a": [{"name": each} for each in range(1_000)]}
    began = time.process_time()
    assert value_problem(validator, value) is None
    assert time.process_time() - began < 0.2


def problem_of(schema, value):
    assert schema_problem(schema) is None
    return value_problem(compile_schema(schema), value)


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
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
        (
            {"patternProperties": {"^n": {"type": "integer"}, "^s": {"type": "string"}}},
            [{"n": 1, "s": "x"}],
            [{"n": 1, "na": "x"}, {"n": 1, "s": 1}],
        ),
        (
            {"properties": {"a": {"patternProperties": {"^n": False}, "additionalProperties": False}}},
            [{"a": "n"}, {"a": {}}],
            [{"a": {"n": 1}}, {"a": {"b": 1}}],
        ),
        ({"additionalProperties": False}, [{}], [{"a": 1}]),
        (
            {"properties": {"a": {"uniqueItems": True}}},
            [{"a": [1, True, "1", [1], {"b": 1}, None]}, {"a": [{"b": 1}, {"b": True}, {"c": 1}]}, {"a": "aa"}],
            [{"a": [1, 1.0]}, {"a": [{"b": [1], "c": 0}, {"c": 0, "b": [1]}]}, {"a": [None, None]}],
        ),
        ({"properties": {"a": {"uniqueItems": False}}}, [{"a": [1, 1]}], []),
        ({"properties": {"a": {}}, "unevaluatedProperties": False}, [{"a": 1}], [{"b": 1}]),
        ({"properties": {"a": {"$ref": "#/$defs/t"}}, "$defs": {"t": {"pattern": "^x"}}}, [{"a": "x"}], [{"a": "y"}]),
        ({"properties": {"a": {"$ref": "#/$defs/any"}}, "$defs": {"any": True}}, [{"a": 1}], []),
        ({"properties": {"a": {"const": {"pattern": "(?=x)"}}}}, [{"a": {"pattern": "(?=x)"}}], [{"a": 1}]),
        ({"properties": {"a": {"enum": [{"$ref": "#/no"}]}}}, [{"a": {"$ref": "#/no"}}], [{"a": 1}]),
        ({"properties": {"a": {"default": {"$ref": "#/no"}, "type": "object"}}}, [{"a": {}}], [{"a": 1}]),
    ],
    ids=str,
)
def test_pattern_keywords_follow_json_schema(schema, valid, invalid):
    for value in valid:
        assert problem_of(schema, value) is None
    for value in invalid:
        assert problem_of(schema, value) is not None


@pytest.mark.parametrize(
    "schema",
    [
        "{properties: {a: {pattern: '(?=a)b'}}}",
        "{patternProperties: {b: {}}, unevaluatedProperties: false}",
        "{$dynamicRef: '#no'}",
        "{title: a text, properties: {a: {$ref: '#/title'}}}",
        "{enum: [5], $ref: '#/enum/0'}",
    ],
)
def test_a_published_unsupported_schema_refuses_every_value(schema):
    text = f"types: {{x: {{context: {schema}}}, y: {{}}}}"
    with pytest.raises(RegistryError):
        parse_registry(text, "types")
    registry = parse_registry(text, "types", is_published=True)
    registry.get("y").check_context({"a": "b"})
    with pytest.raises(InvalidField, match="context: cannot be checked: "):
        registry.get("x").check_context({"a": "b"})


@pytest.mark.parametrize("part", [{"type": "no"}, {"minimum": "5"}], ids=str)
def test_a_reference_to_something_that_is_no_schema_refuses_the_value(part):
    problem = problem_of({"properties": {"a": {"$ref": "#/unknown"}}, "unknown": part}, {"a": 5})
    assert problem.message.startswith("cannot be checked: ")


def test_a_reference_in_a_property_named_const_must_be_defined():
    schema = {"properties": {"const": {"$ref": "#/no"}}}
    assert schema_problem(schema).path == ("properties", "const", "$ref")


def test_a_long_value_does_not_hide_its_problem():
    problem = problem_of({"properties": {"a": {"maxLength": 3}}}, {"a": "x" * 1_000})
    assert problem.message == f"'{'x' * 99}…{'x' * 86}' is too long"
    assert (problem.path, len(problem.message)) == (("a",), 200)


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ({"properties": {"a": {"pattern": "^x"}}}, "y", "'y' does not match '^x'"),
        ({"patternProperties": {"a": {"type": "string"}}}, 1, "1 is not of type 'string'"),
        ({"properties": {"a": {"uniqueItems": True}}}, [1, 1], "[1, 1] has non-unique elements"),
    ],
)
def test_a_problem_has_the_path_and_the_value(schema, value, message):
    assert problem_of(schema, {"a": value}) == SchemaProblem(("a",), message)


def test_the_path_of_a_problem_leads_to_the_value():
    schema = {"properties": {"a": {"items": {"properties": {"b": {"type": "integer"}}}}}}
    assert problem_of(schema, {"a": [{"b": 1}, {"b": "x"}]}).path == ("a", 1, "b")


@pytest.mark.parametrize(
    ("schema", "path", "message"),
    [
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, ("$schema",), "only .* is supported"),
        ({"properties": {"a": {"pattern": "("}}}, ("properties", "a", "pattern"), "is not a regular expression"),
        ({"properties": {"a": {"pattern": "(?=a)"}}}, ("properties", "a", "pattern"), "searched for in linear time"),
        ({"patternProperties": {"a": {}}, "allOf": [{"unevaluatedProperties": False}]}, (), "is not supported beside"),
        ({"allOf": [{"$ref": "#/no"}]}, ("allOf", 0, "$ref"), "'#/no' is not defined"),
        ({"$dynamicRef": "#no"}, ("$dynamicRef",), "'#no' is not defined"),
        ({"properties": {"default": {"$ref": "#/no"}}}, ("properties", "default", "$ref"), "'#/no' is not defined"),
        ({"title": "x", "$ref": "#/title"}, ("$ref",), "leads to something that is not a schema"),
    ],
    ids=str,
)
def test_an_unusable_schema_is_refused_with_its_path(schema, path, message):
    problem = schema_problem(schema)
    assert problem.path == path
    assert re.search(message, problem.message)
