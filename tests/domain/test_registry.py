"""The registry: defaults and checks of a type, and changes between two registries."""

from __future__ import annotations

import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from textwrap import dedent
from unittest.mock import Mock

import pytest

from scratchbus.domain.registry import ObservationType, Registry
from scratchbus.domain.registry_yaml import parse_registry
from scratchbus.domain.values import duration_ms
from scratchbus.errors import InvalidField, UnknownType
from scratchbus.readmodel.registry_files import as_registry
from scratchbus.settings import shipped

TICKET = """
lifecycles:
  ticket:
    statuses: {new: open, done: closed}
    initial: [new]
    transitions: {new: [done]}
"""


def parsed(text: str) -> Registry:
    return parse_registry(dedent(text), "types.yaml")


def only_type(body: str) -> ObservationType:
    """Return the type `x` with this body, written on one line."""
    return parsed(f"types: {{x: {body}}}").get("x")


@pytest.mark.parametrize(
    ("written", "expected"),
    [("", duration_ms("7d")), ("default_ttl: 2h", duration_ms("2h")), ("default_ttl: never", None)],
)
def test_the_ttl_of_a_type_overrides_the_setting(written, expected):
    given_type = only_type(f"{{{written}}}")
    assert given_type.ttl_ms(duration_ms("7d")) == expected


def test_auto_archive_after_of_a_type_overrides_the_setting():
    assert only_type("{auto_archive_after: never}").archive_after_ms(3_600_000) is None
    assert only_type("{}").archive_after_ms(3_600_000) == 3_600_000
    assert only_type("{}").archive_after_ms(None) is None


def test_an_unknown_type_error_names_the_nearest():
    file = shipped("observation_types.yaml")
    registry = parse_registry(file.read_text(encoding="utf-8"), str(file))
    with pytest.raises(UnknownType, match="did you mean 'risk_alert'") as raised:
        registry.get("risk_alrt")
    assert (raised.value.type, raised.value.nearest) == ("risk_alrt", "risk_alert")


def test_generated_types_match_the_shipped_file(tmp_path: Path):
    file = shipped("observation_types.yaml")
    text = file.read_text(encoding="utf-8")
    registry = as_registry(file)
    assert registry == parse_registry(text, str(file))
    assert (registry.text, list(registry.types)) == (text, list(parse_registry(text, str(file)).types))
    edited = tmp_path / "types.yaml"
    edited.write_text(text.replace("priority: 90", "priority: 91"), encoding="utf-8")
    assert as_registry(edited).get("risk_alert").priority == 91


def test_only_the_start_of_a_long_unknown_type_is_compared(monkeypatch):
    search = Mock(return_value=[])
    monkeypatch.setattr("difflib.get_close_matches", search)
    with pytest.raises(UnknownType):
        parsed("types: {x: }").get("z" * 1_000_000)
    assert search.call_args.args[0] == "z" * 64


def test_an_unknown_type_unlike_any_other_has_no_nearest():
    with pytest.raises(UnknownType) as raised:
        parsed("types: {x: }").get("zzzzzz")
    assert raised.value.nearest is None


def test_the_digest_depends_only_on_the_text():
    text = "types: {x: }\n"
    assert parse_registry(text, "a.yaml").text == text
    assert parse_registry(text, "a.yaml").digest == parse_registry(text, "b.yaml").digest
    assert parse_registry(text, "a.yaml").digest != parse_registry(text + "# and more\n", "a.yaml").digest


def test_changes_list_added_removed_and_changed_types():
    old = parsed(TICKET + "types: {stays: , went: , goes: , turns: , differs: {priority: 1}}")
    new = parsed(TICKET + "types: {turns: {lifecycle: ticket}, stays: , joins: , comes: , differs: {priority: 2}}")
    changes = new.changes_from(old)
    assert changes.added == ("comes", "joins")
    assert changes.removed == ("goes", "went")
    assert changes.changed == ("differs", "turns")
    assert changes.lifecycle_changed == ("turns",)
    assert changes.needs_none_open == ("goes", "turns", "went")


@pytest.mark.parametrize(
    "types",
    ["stays: , goes: , comes: ", "stays: ", "stays: {priority: 1}, goes: "],
    ids=["added", "removed", "changed"],
)
def test_each_kind_of_change_is_a_change(types):
    assert parsed(f"types: {{{types}}}").changes_from(parsed("types: {stays: , goes: }"))


def test_the_order_of_a_schemas_keys_is_not_a_change():
    old, new = (
        parsed(f"types: {{x: {{context: {{{keys}}}}}}}")
        for keys in ("minProperties: 1, $comment: a", "$comment: a, minProperties: 1")
    )
    assert not new.changes_from(old)


def test_a_registry_is_read_only():
    registry = parsed("types: {x: }")
    for table in (registry.types, registry.lifecycles):
        with pytest.raises(TypeError):
            table["y"] = table[next(iter(table))]


@pytest.mark.parametrize("field", ["context", "metadata"])
def test_true_instead_of_1_in_a_schema_is_a_change(field):
    old, new = (
        parsed(f"types: {{x: {{{field}: {{properties: {{a: {{enum: [{each}]}}}}}}}}}}") for each in ("1", "true")
    )
    assert new.changes_from(old).changed == ("x",)
    assert new.changes_from(new).changed == ()


def test_comments_and_lifecycle_names_are_not_changes():
    old = parsed(TICKET + "types: {x: {lifecycle: ticket}}")
    new = parsed(TICKET.replace("ticket:", "bug:") + "# renamed\ntypes: {x: {lifecycle: bug}}")
    assert new.changes_from(old).needs_none_open == ()
    assert not parsed("types: {x: }  # a comment").changes_from(parsed("types: {x: }"))


def test_a_dedupe_key_has_the_type_and_the_named_fields():
    given_type = only_type("{dedupe: [type, source, context.address]}")
    fields = {"source": "logwatch", "content": "a", "context": {"address": "192.0.2.1"}}
    assert given_type.dedupe_key_of(fields) == 'x:["logwatch","192.0.2.1"]'
    assert given_type.dedupe_key_of({**fields, "content": "b"}) == given_type.dedupe_key_of(fields)
    assert given_type.dedupe_key_of({**fields, "source": "other"}) != given_type.dedupe_key_of(fields)
    one, other = ({**fields, "context": {"address": address}} for address in ({"a": 1, "b": 2}, {"b": 2, "a": 1}))
    assert given_type.dedupe_key_of(one) == given_type.dedupe_key_of(other)


def test_a_missing_field_means_no_dedupe_key():
    given_type = only_type("{dedupe: [context.address]}")
    assert given_type.dedupe_key_of({"context": {}}) is None
    assert given_type.dedupe_key_of({"context": None}) is None
    assert only_type("{}").dedupe_key_of({"content": "a"}) is None


def test_long_dedupe_keys_are_shortened_and_stay_distinct():
    given_type = only_type("{dedupe: [content]}")
    one, other = (given_type.dedupe_key_of({"content": "a" * 60_000 + end}) for end in "bc")
    assert one == f"x:sha256-{sha256(json.dumps(['a' * 60_000 + 'b']).encode()).hexdigest()}"
    assert one != other
    readable = "a" * 156  # a key changes no more: the log has the keys of older versions
    assert given_type.dedupe_key_of({"content": readable}) == f'x:["{readable}"]'
    assert str(given_type.dedupe_key_of({"content": readable + "a"})).startswith("x:sha256-")


def test_a_dedupe_key_is_short_ascii():
    given_type = only_type("{dedupe: [content]}")
    for content in ("é", "\N{SNOWMAN}" * 150, "\ud800", "\n"):
        key = given_type.dedupe_key_of({"content": content})
        assert key is not None
        assert key.isascii()
        assert len(key) < 256


def test_an_invalid_context_is_refused_with_its_path():
    given_type = only_type("{context: {required: [job], properties: {job: {properties: {id: {type: integer}}}}}}")
    given_type.check_context({"job": {"id": 3}})
    with pytest.raises(InvalidField, match="'job' is a required property") as raised:
        given_type.check_context({})
    assert raised.value.field == "context"
    with pytest.raises(InvalidField, match="'3' is not of type 'integer'") as raised:
        given_type.check_context({"job": {"id": "3"}})
    assert raised.value.field == "context.job.id"


def test_metadata_has_its_own_schema():
    given_type = only_type("{metadata: {maxProperties: 1}}")
    given_type.check_context({"a": 1, "b": 2})
    with pytest.raises(InvalidField, match="metadata"):
        given_type.check_metadata({"a": 1, "b": 2})


def test_a_self_referencing_schema_is_an_error():
    with pytest.raises(InvalidField, match="leads to itself"):
        only_type("{context: {$ref: '#'}}").check_context({})


def test_a_registry_without_schemas_does_not_import_jsonschema():
    program = (
        "import sys; from scratchbus.domain.registry_yaml import parse_registry;"
        "from scratchbus.settings import shipped; file = shipped('observation_types.yaml');"
        "parse_registry(file.read_text(), str(file)).get('observation').check_context({});"
        "sys.exit('jsonschema' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=30).returncode == 0
