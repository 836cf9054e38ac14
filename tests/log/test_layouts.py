"""What Lua gets from Python: stored forms, and the keys and arguments of a script."""

from __future__ import annotations

import pytest

from scratchbus.engine.scripts import Key, Keys, lua_script
from scratchbus.eventlog.layouts import CHECKPOINT, HEAD, LUA, Head


def test_a_pattern_stops_behind_the_last_field_that_is_wanted():
    assert HEAD.pattern("status", "type") == "'^%d+|([^|]*)|%a|([^|]*)|'"
    assert HEAD.pattern("dedupe_key").endswith("|(.*)$'")


def test_what_follows_a_field_with_bars_in_it_is_found_from_the_end():
    assert CHECKPOINT.pattern("build") == "'|(%d+)|%d+|[^|]*|[^|]*$'"
    found = CHECKPOINT.regex.fullmatch("1-2|an|id|3|4|origin|token")
    assert found is not None
    assert found.groups() == ("1-2", "an|id", "3", "4", "origin", "token")


def test_the_text_of_a_new_head_is_what_python_writes():
    values = {"start": "1|active|o|t|5", "added": "7", "expires": "0", "position": "1-7", "tags": ",a,"}
    text = LUA["ADDED_HEAD_TEXT"]
    assert isinstance(text, str)
    parts = [part.strip("'") if part.startswith("'") else values[part] for part in text.split(" .. ")]
    assert "".join(parts) == str(Head(1, "active", "o", "t", 5, 7, 0, 0, 0, "", 0, "1-7", 0, 0, ",a,", ""))


def test_a_script_takes_its_keys_and_arguments_in_the_order_of_its_declaration():
    @lua_script("eventlog/fetch")
    def fetch(*ids: str, log: Key, limit: int, others: Keys, word: str = "") -> None: ...

    assert fetch.text.startswith(
        "local LOG, OTHERS, LIMIT, WORD, FIRST =\n  KEYS[1], 2, tonumber(ARGV[1]), ARGV[2], 3\n"
    )
    command = fetch("1-1", "1-2", limit=9, log="l", others=("a", "b"))
    assert command == ("EVALSHA", fetch.sha, "3", "l", "a", "b", "9", "", "1-1", "1-2")


def test_a_script_with_an_unknown_constant_is_refused_at_once():
    with pytest.raises(KeyError, match="HEAD"):

        @lua_script("eventlog/chains")
        def chains(*, log: Key) -> None: ...
