"""Relations of facts: their names, and refusals of an invalid file."""

from __future__ import annotations

import pytest

from scratchbus.domain.relation_registry import SAME_AS, parse_relations
from scratchbus.errors import InvalidField, RelationsError, UnknownRelation
from scratchbus.settings import shipped


def test_the_shipped_file_is_valid():
    found = parse_relations(shipped("relations.yaml").read_text(), "relations.yaml")
    assert found.find("Upgraded to") == found.find("runs-on") == found.find("runs_on")
    assert found.find("runs_on").relation.is_single
    assert found.find("needed by").is_inverse
    assert found.find("needed by").name == "needed_by"
    assert found.find("requires").name == "depends_on"
    assert found.find(SAME_AS).relation.symmetric
    assert found.read("runs_on").relation.is_single
    assert found.read("needed_by") == found.find(" Needed by ")
    assert not found.read("gone").relation.is_single
    assert found.knows("Needed by")
    assert not found.knows("gone")


@pytest.mark.parametrize(("text", "is_single"), [("values: one", True), ("values: many", False), ("{}", False)])
def test_a_subject_has_one_value_or_many(text: str, is_single: bool):
    found = parse_relations(f"relations:\n  uses:\n    {text}", "r.yaml")
    assert found.find("uses").relation.is_single == is_single


def test_an_unknown_relation_error_names_the_nearest():
    found = parse_relations("relations: {depends_on: {inverse: needed_by}}", "r.yaml")
    with pytest.raises(UnknownRelation, match="did you mean 'needed_by'") as refused:
        found.find("nedded by")
    assert refused.value.known == ["depends_on", "same_as"]
    with pytest.raises(UnknownRelation) as refused:
        found.find("x" * 10_000)
    assert refused.value.nearest is None
    assert len(str(refused.value)) < 400
    with pytest.raises(InvalidField):
        found.find(7)


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("relations: {}", 1, "there are no relations"),
        ("relation:\n  uses: {}", 1, "did you mean 'relations'"),
        ("relations:\n  uses:\n    valus: one", 3, "did you mean 'values'"),
        ("relations:\n  uses:\n    values: some", 3, "'some' is not how many values a subject has; allowed: many, one"),
        ("relations:\n  uses:\n    symmetric: maybe", 3, "'maybe' is neither true nor false"),
        ("relations:\n  uses:\n    aliases: needs", 3, "is not a list"),
        ("relations:\n  uses:\n    aliases: [a b]", 3, "'a b' is not a valid name"),
        ("relations:\n  Uses: {}", 2, "'Uses' is not a valid name"),
        ("relations:\n  same_as: {}", 2, "which is built in"),
        ("relations:\n  uses: {}\n  needs:\n    aliases: [wants, uses]", 4, "already a name of a relation, of 'uses'"),
        ("relations:\n  uses: {inverse: uses}", 2, "already a name"),
        ("relations:\n  uses: {}\n  needs:\n    inverse: uses", 4, "already a name of a relation, of 'uses'"),
        ("relations:\n  knows:\n    symmetric: true\n    inverse: known_by", 4, "its own inverse"),
        ("relations:\n  uses: {}\n  uses: {}", 3, "is given twice"),
        ("relations: ]", 1, "not YAML"),
    ],
)
def test_an_invalid_file_is_refused_with_its_line(text: str, line: int, problem: str):
    with pytest.raises(RelationsError, match=problem) as refused:
        parse_relations(text, "r.yaml")
    assert (refused.value.file, refused.value.line) == ("r.yaml", line)
