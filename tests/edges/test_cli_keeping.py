"""Keeping what is stored in order, on the command line."""

from __future__ import annotations

import pytest

from scratchbus import Bus
from tests.edges.conftest import Cli

pytestmark = pytest.mark.real


def test_the_state_is_rebuilt_and_the_page_is_as_before(cli: Cli, bus: Bus):
    added = cli.add("one")
    done = cli.json("rebuild")
    assert done.document["events"] >= 1
    assert done.err == ""
    assert cli("rebuild").out.startswith("rebuilt from ")
    assert cli.json("list").documents[0]["content"] == "one"
    assert added
