"""The observation types file: valid content, and refusals with line and key."""

from __future__ import annotations

import re
from textwrap import dedent

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from scratchbus.domain.lifecycle import DEFAULT
from scratchbus.domain.registry import ObservationType, Registry
from scratchbus.domain.registry_yaml import TYPE_KEYS, parse_registry
from scratchbus.domain.values import duration_ms
from scratchbus.errors import RegistryError
from scratchbus.settings import shipped

BUILT_IN = {
    "pending_confirmation",
    "contextual_insight",
    "risk_alert",
    "observation",
    "action_suggestion",
    "pattern_detected",
    "dependency",
    "reminder",
}
SHIPPED = shipped("observation_types.yaml")
TICKET = """
lifecycles:
  ticket:
    statuses: {new: open, in_progress: open, done: closed}
    initial: [new]
    transitions:
      new: [in_progress, archived]
      in_progress: [new, done]
      done: [in_progress, archived]
"""


def parsed(text: str) -> Registry:
    return parse_registry(dedent(text), "types.yaml")


def only_type(body: str) -> ObservationType:
    """Return the type `x` with this body, written on one line."""
    return parsed(f"types: {{x: {body}}}").get("x")


def refusal(text: str) -> RegistryError:
    with pytest.raises(RegistryError) as raised:
        parsed(text)
    assert "\n" not in str(raised.value)
    return raised.value


# -- the shipped file ----------------------------------------------------------------------------------------------


def test_the_shipped_file_has_the_eight_built_in_types():
    registry = parse_registry(SHIPPED.read_text(encoding="utf-8"), str(SHIPPED))
    assert set(registry.types) == BUILT_IN
    assert all(each.description and each.lifecycle is DEFAULT for each in registry.types.values())


def test_risk_alert_has_the_highest_built_in_priority():
    registry = parse_registry(SHIPPED.read_text(encoding="utf-8"), str(SHIPPED))
    assert max(registry.types.values(), key=lambda each: each.priority).name == "risk_alert"


def test_the_example_in_the_shipped_file_is_valid_and_complete():
    text = SHIPPED.read_text(encoding="utf-8")
    example = re.compile(r"^#(?=(?:  )+\S|lifecycles:)", re.MULTILINE)
    header, types, body = text.partition("\ntypes:\n")
    text = header + types + example.sub("", body)
    assert set(parse_registry(text, "types.yaml").types) == {*BUILT_IN, "build_failed"}
    assert set(yaml.safe_load(text)["types"]["build_failed"]) == set(TYPE_KEYS)


# -- valid files ---------------------------------------------------------------------------------------------------


def test_a_type_needs_only_a_name():
    assert parsed("types:\n  build_failed:\n").get("build_failed") == ObservationType("build_failed")


def test_every_key_of_a_type_is_read():
    given_type = parsed(
        TICKET
        + """
types:
  build_failed:
    description: A build is red.
    priority: 80
    default_ttl: 12h
    default_owner: agent
    initial_status: new
    lifecycle: ticket
    max_content: 4096
    max_tags: 8
    context: {required: [job]}
    metadata: {properties: {run: {type: integer}}}
    auto_archive_after: 1d
    dedupe: [source, context.job]
"""
    ).get("build_failed")
    assert given_type.description == "A build is red."
    assert given_type.priority == 80
    assert given_type.default_ttl_ms == duration_ms("12h")
    assert given_type.default_owner == "agent"
    assert (given_type.initial_status, given_type.lifecycle.name) == ("new", "ticket")
    assert (given_type.max_content, given_type.max_tags) == (4096, 8)
    assert given_type.context_schema == {"required": ["job"]}
    assert given_type.metadata_schema == {"properties": {"run": {"type": "integer"}}}
    assert given_type.auto_archive_after_ms == duration_ms("1d")
    assert given_type.dedupe == ("source", "context.job")


def test_a_type_can_have_an_inline_lifecycle():
    own = "{statuses: {new: open, done: closed}, initial: [new], transitions: {new: [done]}}"
    given_type = only_type(f"{{lifecycle: {own}}}")
    assert given_type.initial_status == "new"
    assert given_type.lifecycle.allowed_from("new") == {"done"}


def test_every_lifecycle_implicitly_has_archived():
    registry = parsed(TICKET + "types: {x: {lifecycle: ticket}}")
    assert registry.get("x").lifecycle.class_of("archived") == "final"
    assert set(registry.lifecycles) == {"default", "ticket"}


def test_windows_line_ends_and_a_byte_order_mark_are_accepted():
    assert set(parse_registry("\ufefftypes:\r\n  x:\r\n    priority: 1\r\n", "types.yaml").types) == {"x"}


# -- invalid files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "key", "says"),
    [
        ("prority: 3", "types.x.prority", "unknown key 'prority'"),
        ("priority: 101", "types.x.priority", "'101' is not a whole number from 0 to 100"),
        ("priority: -1", "types.x.priority", "not a whole number"),
        ("priority: true", "types.x.priority", "not a whole number"),
        ("priority: high", "types.x.priority", "not a whole number"),
        ("priority: [1]", "types.x.priority", "must be a single value"),
        ("description: 5", "types.x.description", "put it in quotes"),
        ("description: ''", "types.x.description", "is empty"),
        ("description: !thing a", "types.x.description", "!thing"),
        ("default_ttl: 2 moons", "types.x.default_ttl", "'2 moons' is not a duration"),
        ("default_ttl: 0", "types.x.default_ttl", "is not a duration"),
        ("default_ttl: .nan", "types.x.default_ttl", "is not a duration"),
        ("default_ttl:", "types.x.default_ttl", "is not a duration"),
        ("auto_archive_after: -1h", "types.x.auto_archive_after", "is not a duration"),
        ('default_owner: "a\\tb"', "types.x.default_owner", "is not an owner"),
        ("max_content: 65537", "types.x.max_content", "from 1 to 65536"),
        ("max_tags: 1000", "types.x.max_tags", "from 0 to 256"),
        ("lifecycle: ticket", "types.x.lifecycle", "unknown lifecycle 'ticket'"),
        ("initial_status: done", "types.x.initial_status", "has no status 'done'"),
        ("initial_status: resolved", "types.x.initial_status", "'resolved' is not an initial status"),
        ("dedupe: content", "types.x.dedupe", "is not a list"),
        ("dedupe: []", "types.x.dedupe", "is empty"),
        ("dedupe: [colour]", "types.x.dedupe[0]", "observations cannot be deduplicated by 'colour'"),
        ("dedupe: [context.]", "types.x.dedupe[0]", "observations cannot be deduplicated by 'context.'"),
        ("context: yes", "types.x.context", "must be a JSON Schema"),
        ("context: {type: strin}", "types.x.context.type", "not a JSON Schema"),
        ("context: {pattern: '['}", "types.x.context.pattern", "'[' is not a regular expression"),
        ("context: {pattern: '(?=a)b'}", "types.x.context.pattern", "without backreferences, lookaround"),
        (
            "metadata: {properties: {a: {type: string, pattern: '(a)\\1'}}}",
            "types.x.metadata.properties.a.pattern",
            "cannot be searched for in linear time",
        ),
        (
            "context: {patternProperties: {'(?!a)b': {}}}",
            "types.x.context.patternProperties",
            "cannot be searched for in linear time",
        ),
        (
            "context: {patternProperties: {a: {}}, unevaluatedProperties: false}",
            "types.x.context",
            "use additionalProperties",
        ),
        ("context: {$ref: '#/$defs/no'}", "types.x.context.$ref", "is not defined in this schema"),
        ("context: {$dynamicRef: '#no'}", "types.x.context.$dynamicRef", "is not defined in this schema"),
        ("context: {$ref: '#/enum/x', enum: [1]}", "types.x.context.$ref", "is not defined in this schema"),
        ("context: {$ref: '#/enum/0', enum: [1]}", "types.x.context.$ref", "leads to something that is not a schema"),
        ("context: {$ref: 'https://example.com/s'}", "types.x.context.$ref", "is not defined in this schema"),
        (
            "context: {$schema: 'http://json-schema.org/draft-07/schema#'}",
            "types.x.context.$schema",
            "leave the key out",
        ),
        ("context: {maximum: .inf}", "types.x.context.maximum", "not a JSON number"),
        ("metadata: {a: 1, a: 2}", "types.x.metadata.a", "given twice"),
        ("metadata: &m {allOf: [*m]}", None, "alias *m is inside its own anchor"),
    ],
)
def test_an_invalid_value_is_refused_with_line_and_key(body, key, says):
    problem = refusal(f"types:\n  other:\n  x:\n    {body}\n")
    assert says in str(problem)
    assert str(problem).startswith(f"types.yaml:4:{problem.column}: ")
    assert (problem.file, problem.line) == ("types.yaml", 4)
    assert key is None or problem.key == key


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "there are no types"),
        ("# only a comment\n", 1, "there are no types"),
        ("lifecycles: {}\n", 1, "there are no types"),
        ("\ntypes:\n", 2, "there are no types"),
        ("types: 3\n", 1, "is not a mapping"),
        ("types: [x]\n", 1, "a list is not a mapping"),
        ("- x\n", 1, "a list is not a mapping"),
        ("types:\n  x: 3\n", 2, "is not a mapping"),
        ("typs:\n  x:\n", 1, "unknown key 'typs'"),
        ("types:\n  x:\n  y:\n  x:\n", 4, "given twice, first in line 2"),
        ("types:\n  X:\n", 2, "'X' is not a valid name"),
        ("types:\n  a b:\n", 2, "'a b' is not a valid name"),
        ("types:\n  ? [a]\n  : 3\n", 2, "not a plain name"),
        ("types:\n  x: {a\n", 3, "not YAML"),
        ("types:\n\tx:\n", 2, "not YAML"),
        ("types: {x: }\n---\ntypes: {y: }\n", 2, "not YAML"),
        ("types: \x00\n", None, "not YAML"),
    ],
)
def test_a_file_that_is_not_a_registry_is_refused_with_a_line(text, line, says):
    problem = refusal(text)
    assert says in str(problem)
    assert problem.line == line


def test_an_unknown_key_error_names_the_nearest_and_all_keys():
    problem = refusal("types: {x: {prority: 3}}")
    assert problem.allowed == sorted(TYPE_KEYS)
    assert str(problem).startswith("types.yaml:1:13: types.x.prority: unknown key 'prority' (did you mean 'priority'?)")


def test_the_error_names_the_first_wrong_line():
    problem = refusal("types:\n  b:\n    priority: 200\n  a:\n    max_tags: 1\n    max_content: 0\n")
    assert (problem.line, problem.column, problem.key) == (3, 5, "types.b.priority")


def test_a_list_entry_is_refused_at_its_own_column():
    assert refusal("types: {x: {dedupe: [content, colour]}}").column == 31


@pytest.mark.parametrize(
    ("change", "key", "says"),
    [
        (("new: open, ", ""), "initial[0]", "'new' is not an open status"),
        (("new: open", "new: opened"), "statuses.new", "'opened' is not a status class"),
        (("new: open", "New: open"), "statuses.New", "'New' is not a valid name"),
        (("done: closed", "done: closed, archived: closed"), "statuses.archived", "it must be final"),
        (("initial: [new]", "initial: []"), "initial", "name at least one open status"),
        (("initial: [new]", "initial: [done]"), "initial[0]", "'done' is not an open status"),
        (("initial: [new]", "first: [new]"), "first", "unknown key 'first'"),
        (("    initial: [new]\n", ""), "", "'initial' is missing"),
        (("      new: [in", "      old: [in"), "transitions.old", "unknown status 'old'"),
        (("[in_progress, archived]", "[gone]"), "transitions.new[0]", "'gone' is not a status"),
        (("[in_progress, archived]", "[new]"), "transitions.new[0]", "cannot lead to itself"),
        (("      done: [in", "      archived: [in"), "transitions.archived", "final and leads nowhere"),
    ],
)
def test_an_invalid_lifecycle_is_refused_with_line_and_key(change, key, says):
    given, instead = change
    text = TICKET.replace(given, instead, 1) + "types: {x: }\n"
    assert text != TICKET + "types: {x: }\n"
    problem = refusal(text)
    assert says in str(problem)
    assert problem.key == f"lifecycles.ticket.{key}".rstrip(".")
    assert problem.line is not None
    assert key.rpartition(".")[2].partition("[")[0] in text.splitlines()[problem.line - 1]


def test_a_lifecycle_that_can_never_close_is_refused():
    problem = refusal(
        """\
        lifecycles:
          ring:
            statuses: {new: open, waiting: open, retrying: open, done: closed}
            initial: [new]
            transitions:
              new: [waiting, done]
              waiting: [retrying]
              retrying: [waiting]
        types: {x: {lifecycle: ring}}
        """
    )
    assert "retrying, waiting can never close" in str(problem)
    assert (problem.line, problem.allowed) == (5, ["archived", "done"])


def test_the_default_lifecycle_cannot_be_redefined():
    text = TICKET.replace("ticket:", "default:") + "types: {x: }"
    assert "is built in" in str(refusal(text))


@given(st.text() | st.text(alphabet="types:{}[]x \n-&*!#?'\"\t"))
def test_any_text_is_a_registry_or_a_one_line_error(text):
    try:
        parse_registry(text, "types.yaml")
    except RegistryError as problem:
        assert "\n" not in str(problem)  # noqa: PT017  # both outcomes are valid


def test_a_lone_surrogate_is_refused():
    assert "not YAML" in str(refusal("types: {x: {description: '\ud800'}}"))
