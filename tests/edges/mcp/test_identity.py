"""The identity of a connection, and its tools."""

from __future__ import annotations

from typing import Any

import pytest

from scratchbus.errors import InvalidField, InvalidName, InvalidSource
from scratchbus.mcp.identity import GROUPS, OF_A_SESSION, OF_SCOPES, Identity


def test_all_means_all_tools_that_fit_the_identity():
    assert Identity.of("a", session="s", tools=["all"], knowledge=["ada"]).tools == GROUPS[1:]
    assert not set(Identity.of("a", session="s", tools=["all"]).tools) & set(OF_SCOPES)
    assert not set(Identity.of("a", tools=["all"]).tools) & set(OF_A_SESSION)


def test_an_identity_has_the_basic_tools_by_default():
    identity = Identity.of("a", session="s", knowledge=["ada"])
    assert identity.tools == ("basic",)
    assert all(identity.has(group) for group in GROUPS[1:])
    assert not Identity.of("a").has("notes")
    assert not Identity.of("a", session="s", kind="person").has_scratchpad


def test_the_basic_tools_are_narrowed_to_the_groups_of_a_server():
    narrowed = Identity.of("a", session="s").narrowed(["observations"])
    assert narrowed.has("observations")
    assert not narrowed.has("notes")


def test_chosen_groups_are_kept_in_their_usual_order():
    assert Identity.of("a", session="s", tools=["todo", "observations"]).tools == ("observations", "todo")


def test_five_groups_together_include_context_and_sessions():
    five = ["observations", "notes", "notepad", "todo", "scratchpad"]
    assert Identity.of("a", session="s", tools=five).tools == ("context", *five, "sessions")
    assert Identity.of("a", session="s", tools=five[1:]).tools == tuple(five[1:])


def test_tools_of_a_session_need_a_session():
    with pytest.raises(InvalidField, match="--session"):
        Identity.of("a", tools=["notes"])


def test_tools_of_scopes_need_a_scope():
    with pytest.raises(InvalidField, match="--knowledge"):
        Identity.of("a", tools=["preferences"])
    assert Identity.of("a", tools=["preferences"], knowledge=["ada", "ada"]).knowledge == ("ada",)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"agent": "no spaces"}, InvalidSource),
        ({"agent": "a", "page": "no spaces"}, InvalidName),
        ({"agent": "a", "session": "no spaces"}, InvalidName),
        ({"agent": "a", "knowledge": ["no spaces"]}, InvalidName),
        ({"agent": "a", "kind": "god"}, InvalidField),
        ({"agent": "a", "tools": ["everything"]}, InvalidField),
    ],
)
def test_an_invalid_identity_is_refused(wrong: dict[str, Any], error: type[Exception]):
    with pytest.raises(error):
        Identity.of(**wrong)
