"""Objects that several readers of a process share refuse changes: one reader cannot change what the others read."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from scratchbus import Bus, Page
from tests.engines import ONE

pytestmark = pytest.mark.engines(*ONE)

CHANGES: dict[str, Callable[[Any], object]] = {
    "a tag": lambda seen: seen.tags.append("other"),
    "no tag": lambda seen: seen.tags.clear(),
    "another tag": lambda seen: seen.tags.__setitem__(0, "other"),
    "a link": lambda seen: seen.links.append("act"),
    "a name": lambda seen: seen.context.update(other=1),
    "a nested name": lambda seen: seen.context["of"].pop("user"),
    "a nested list": lambda seen: seen.context["of"]["user"].extend([3]),
    "an empty dict": lambda seen: seen.metadata.setdefault("other", 1),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_observation_of_a_view_refuses_changes(bus: Bus, page: Page, change: Callable[[Any], object]) -> None:
    added = page.add("observation", "x", tags=["t"], context={"of": {"user": [1, 2]}})
    with bus.view("main") as view:
        view.wait_for(added)
        assert [each.id for each in view.list(tags="t")] == [added.id]
        with pytest.raises(TypeError, match="change a copy"):
            change(view.get(added.id))
        assert view.get(added.id) == added
        updated = page.update(added.id, tags=["u"])
        view.wait_for(updated)
        with pytest.raises(TypeError, match="change a copy"):
            change(view.get(added.id))
        assert view.list(tags="u") == [updated]
        assert view.list(tags="t") == view.list(tags="other") == []


def test_what_a_view_returns_can_be_copied_and_added_again(bus: Bus, page: Page) -> None:
    added = page.add("observation", "x", tags=["t"], context={"of": {"user": [1, 2]}}, event_id="first")
    with bus.view("main") as view:
        view.wait_for(added)
        seen = view.get(added.id)
    unpickled = pickle.loads(pickle.dumps(seen))  # noqa: S301  # our own
    for same in (copy.deepcopy(seen), unpickled, seen.model_copy(deep=True)):
        assert same == added
        same.tags.append("mine")
        same.context["of"]["user"].append(3)
    assert (json.dumps(seen.context), seen.model_dump()) == (json.dumps(added.context), added.model_dump())
    assert page.add("observation", "x", tags=seen.tags, context=seen.context, event_id="first") == added
    assert page.update(added.id, context=seen.context | {"more": seen.tags}).context == {**seen.context, "more": ["t"]}


def test_a_handler_cannot_change_what_a_view_folds(bus: Bus, page: Page) -> None:
    with bus.view("main") as view, bus.subscribe("changes") as subscription:
        added = page.add("observation", "x", tags=["t"])
        with pytest.raises(TypeError, match="change a copy"):
            next(subscription).event.tags.append("other")
        view.wait_for(added)
        assert view.get(added.id) == added


def test_notes_and_turns_refuse_changes(bus: Bus) -> None:
    notes, turns = bus.notes("s1"), bus.turns("s1")
    notes.add("hello", tags=["a"])
    turns.append("user", "hi")
    for shared in (notes.list().notes[0].tags, turns.list()[0].replaces):
        with pytest.raises(TypeError, match="change a copy"):
            shared.append("other")
    assert (notes.tags().tags, turns.list()[0].replaces) == ({"a": 1}, [])


def test_changing_an_item_of_a_store_changes_no_other_read(bus: Bus) -> None:
    items = bus.items("store")
    items.put(("users",), "ada", {"likes": ["wine"]})
    for _ in range(2):
        item = items.read().get(("users",), "ada")
        assert item is not None
        assert item.value == {"likes": ["wine"]}
        item.value["likes"].append("beer")
