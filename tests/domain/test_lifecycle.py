"""Lifecycles are tables; the default one is the table of the documentation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scratchbus.domain.lifecycle import ARCHIVED, DEFAULT, Lifecycle, StatusClass, never_closing
from scratchbus.errors import InvalidField

ALLOWED = {
    "active": {"pending_review", "resolved", "archived"},
    "pending_review": {"active", "resolved", "archived"},
    "resolved": {"active", "pending_review", "archived"},
    "archived": set(),
}


@pytest.mark.parametrize("status", ALLOWED)
def test_the_default_lifecycle_allows_exactly_its_table(status):
    assert DEFAULT.allowed_from(status) == ALLOWED[status]
    assert DEFAULT.sources_of(status) == {source for source, targets in ALLOWED.items() if status in targets}


def test_an_observation_begins_active_or_pending_review():
    assert DEFAULT.initial == ("active", "pending_review")


def test_default_statuses_have_their_classes():
    assert DEFAULT.of_class("open") == {"active", "pending_review"}
    assert DEFAULT.class_of("resolved") == "closed"
    assert DEFAULT.class_of("archived") == "final"


@pytest.mark.parametrize("method", ["class_of", "allowed_from", "sources_of"])
def test_an_unknown_status_error_lists_the_statuses(method):
    with pytest.raises(InvalidField, match="use one of: active, archived, pending_review, resolved") as refused:
        getattr(DEFAULT, method)("done")
    assert refused.value.field == "status"


def test_a_lifecycle_is_immutable():
    statuses: dict[str, StatusClass] = {"new": "open", "done": "closed", ARCHIVED: "final"}
    transitions = {"new": frozenset({"done"})}
    lifecycle = Lifecycle("ticket", statuses, ("new",), transitions)
    transitions["done"] = frozenset({"new"})
    statuses["done"] = "open"
    assert lifecycle.allowed_from("done") == frozenset()
    assert lifecycle.class_of("done") == "closed"
    with pytest.raises(TypeError):
        lifecycle.statuses["new"] = "final"  # that is the point


def test_same_table_ignores_the_name():
    renamed = Lifecycle(
        "other", DEFAULT.statuses, DEFAULT.initial[::-1], {**DEFAULT.transitions, ARCHIVED: frozenset()}
    )
    assert renamed.same_table(DEFAULT)
    assert not renamed.same_table(Lifecycle("less", DEFAULT.statuses, ("active",), DEFAULT.transitions))
    assert not renamed.same_table(Lifecycle("less", DEFAULT.statuses, DEFAULT.initial, {}))


@pytest.mark.parametrize("changes", [{"resolved": "open"}, {"waiting": "open"}])
def test_a_table_with_another_status_or_class_is_not_the_same(changes):
    statuses = {**DEFAULT.statuses, **changes}
    assert not DEFAULT.same_table(Lifecycle("default", statuses, DEFAULT.initial, DEFAULT.transitions))


@pytest.mark.parametrize(
    ("status", "status_class"),
    [("resolved", "closed"), ("active", "open"), ("archived", "final"), ("new", "open"), ("resolved", "open")],
)
def test_other_observations_have_the_lifecycle_of_their_type(status, status_class):
    assert DEFAULT.of_observation(status, status_class) is DEFAULT


@pytest.mark.parametrize("status", ["done", "active"])
def test_a_closed_status_of_an_earlier_lifecycle_can_only_be_archived(status):
    lifecycle = DEFAULT.of_observation(status, "closed")
    assert (lifecycle.leftover, lifecycle.class_of(status)) == (status, "closed")
    assert lifecycle.allowed_from(status) == {"archived"}
    for other in DEFAULT.statuses.keys() - {status}:
        assert lifecycle.sources_of(other) - {status} == DEFAULT.sources_of(other) - {status}
        assert lifecycle.class_of(other) == DEFAULT.class_of(other)


def test_the_default_lifecycle_can_always_close():
    assert never_closing(DEFAULT) == frozenset()


def test_a_cycle_without_an_exit_never_closes():
    statuses: dict[str, StatusClass] = {"new": "open", "a": "open", "b": "open", "done": "closed", ARCHIVED: "final"}
    transitions = {"new": frozenset({"a", "done"}), "a": frozenset({"b"}), "b": frozenset({"a"})}
    assert never_closing(Lifecycle("ring", statuses, ("new",), transitions)) == {"a", "b"}


OPEN = ["a", "b", "c", "d"]
TABLES = st.dictionaries(st.sampled_from(OPEN), st.frozensets(st.sampled_from([*OPEN, "done"])))


@given(TABLES)
def test_never_closing_agrees_with_a_search_of_the_table(transitions):
    lifecycle = Lifecycle(
        "any", {**dict.fromkeys(OPEN, "open"), "done": "closed", ARCHIVED: "final"}, ("a",), transitions
    )
    for status in OPEN:
        reached = {status}
        while more := {target for each in reached for target in lifecycle.allowed_from(each)} - reached:
            reached |= more
        assert ("done" in reached) == (status not in never_closing(lifecycle))
