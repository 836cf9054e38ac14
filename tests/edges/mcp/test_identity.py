"""Who speaks through a connection, and what it may use."""

from __future__ import annotations

from typing import Any

import pytest

from scratchbus.errors import InvalidField, InvalidName, InvalidSource
from scratchbus.mcp.identity import GROUPS, OF_A_SESSION, Identity


def test_an_identity_has_all_tools_there_are_for_it():
    assert Identity.of("a", session="s").tools == GROUPS
    assert not set(Identity.of("a").tools) & set(OF_A_SESSION)
    assert "scratchpad" not in Identity.of("a", kind="person").tools


def test_tools_are_those_that_were_chosen_in_the_order_of_the_groups():
    assert Identity.of("a", session="s", tools=["todo", "observations"]).tools == ("observations", "todo")


def test_who_has_all_that_the_other_tools_combine_has_those_too():
    five = ["observations", "notes", "notepad", "todo", "scratchpad"]
    assert Identity.of("a", session="s", tools=five).tools == GROUPS
    assert Identity.of("a", session="s", tools=five[1:]).tools == tuple(five[1:])


def test_tools_of_a_session_need_one():
    with pytest.raises(InvalidField, match="--session"):
        Identity.of("a", tools=["notes"])


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"agent": "no spaces"}, InvalidSource),
        ({"agent": "a", "page": "no spaces"}, InvalidName),
        ({"agent": "a", "session": "no spaces"}, InvalidName),
        ({"agent": "a", "kind": "god"}, InvalidField),
        ({"agent": "a", "tools": ["everything"]}, InvalidField),
    ],
)
def test_an_invalid_identity_is_refused(wrong: dict[str, Any], error: type[Exception]):
    with pytest.raises(error):
        Identity.of(**wrong)
