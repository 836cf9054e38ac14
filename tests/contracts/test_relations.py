"""Published relations of facts."""

from __future__ import annotations

from pathlib import Path

import pytest

from scratchbus.archive.export import line_of
from scratchbus.domain.events import RelationsChanged
from scratchbus.errors import EventIdReused, RelationsError, UnknownRelation, VersionConflict
from scratchbus.readmodel import relations_in_force
from tests.inspection import project

OURS = "relations:\n  tastes_like: {values: one}\n  uses: {}\n"
LATER = "relations:\n  tastes_like: {}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "relations.yaml"
    path.write_text(OURS)
    return path


def objects(found):
    return {fact.object for fact in found}


def test_every_client_takes_published_relations(bus, connect, file):
    other = connect("another")
    with pytest.raises(UnknownRelation):
        other.facts("a").assert_fact("tea", "tastes_like", "grass")
    assert bus.push_relations(file)
    other.facts("a").assert_fact("tea", "tastes_like", "grass", valid_at="2026-01-01")
    other.facts("a").assert_fact("tea", "Tastes like", "hay", valid_at="2026-01-02")
    for each in (bus, other, connect("third")):
        assert objects(each.facts("a").query("tea")) == {"hay"}
        assert set(each.relations().relations) == {"same_as", "tastes_like", "uses"}
        with pytest.raises(UnknownRelation, match="known: same_as, tastes_like, uses"):
            each.facts("a").assert_fact("tea", "depends_on", "water")


def test_facts_are_read_by_the_newest_relations(bus, connect, file, monkeypatch):
    bus.push_relations(file)
    other = connect("another")
    for number, taste in enumerate(("grass", "hay"), 1):
        other.facts("a").assert_fact("tea", "tastes_like", taste, valid_at=f"2026-01-0{number}")
    assert objects(other.facts("a").query("tea")) == {"hay"}
    file.write_text(LATER)
    assert bus.push_relations(file)
    assert objects(bus.facts("a").query("tea")) == {"grass", "hay"}
    monkeypatch.setattr(relations_in_force, "REGISTRY_AGE", 0.0)
    assert objects(other.facts("a").query("tea")) == {"grass", "hay"}


def test_recall_reads_facts_by_the_newest_relations(bus, connect, file, monkeypatch):
    file.write_text(LATER)
    bus.push_relations(file)
    other = connect("another")
    for number, taste in enumerate(("grass", "hay"), 1):
        other.facts("a").assert_fact("tea", "tastes_like", taste, valid_at=f"2026-01-0{number}")
    assert objects(each.item for each in other.recall("tea", scopes=["a"])) == {"grass", "hay"}
    file.write_text(OURS)
    assert bus.push_relations(file)
    monkeypatch.setattr(relations_in_force, "REGISTRY_AGE", 0.0)
    assert objects(each.item for each in other.recall("tea", scopes=["a"])) == {"hay"}


def test_pushing_equal_relations_changes_nothing(bus, connect, file):
    assert bus.push_relations(file, event_id="push-1")
    assert bus.push_relations(file, event_id="push-1")
    assert not connect("another").push_relations(file)
    (event,) = bus.events(kinds=["relations_changed"])
    assert isinstance(event, RelationsChanged)
    assert (event.page, event.subject, event.text) == ("_bus", "relations", OURS)
    file.write_text(LATER)
    with pytest.raises(EventIdReused):
        bus.push_relations(file, event_id="push-1")
    with pytest.raises(VersionConflict):
        bus.push_relations(file, expected_version=0)
    assert bus.push_relations(file, expected_version=1)


def test_a_retry_that_had_nothing_to_publish_publishes_nothing_later(bus, connect, file, tmp_path):
    bus.push_relations(file)
    assert not bus.push_relations(file, event_id="push-1")
    theirs = tmp_path / "theirs.yaml"
    theirs.write_text(LATER)
    assert connect("colleague").push_relations(theirs)
    assert not bus.push_relations(file, event_id="push-1")
    assert bus.relations().text == LATER
    with pytest.raises(EventIdReused):
        bus.push_relations(theirs, event_id="push-1")
    with pytest.raises(EventIdReused):
        bus.push_relations(file, event_id="push-1", expected_version=1)


def test_an_invalid_file_publishes_nothing(bus, file):
    before = bus.position()
    file.write_text("relations:\n  uses: {values: some}\n")
    with pytest.raises(RelationsError, match=r"relations\.yaml:2:10: relations.uses.values: 'some'"):
        bus.push_relations(file)
    for path in (file.parent / "missing.yaml", file.parent, "\0", 5):
        with pytest.raises(RelationsError):
            bus.push_relations(path)
    assert bus.position() == before
    assert "depends_on" in bus.relations().relations


def test_published_relations_are_exported_and_verified(bus, connect, file, bus_name):
    bus.push_relations(file)
    bus.facts("a").assert_fact("tea", "tastes_like", "grass")
    copy = connect(bus=f"{bus_name}-copy")
    copy.import_events([line_of(event) for event in bus.events()])
    assert objects(copy.facts("a").query("tea")) == {"grass"}
    assert set(copy.relations().relations) == {"same_as", "tastes_like", "uses"}
    for each in (bus, copy):
        project(each)
        assert each.verify().findings == []
