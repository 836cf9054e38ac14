"""Lua generated from Python: patterns of stored forms, and the keys and arguments of scripts."""

from __future__ import annotations

import pytest

from scratchbus.engine.scripts import Key, Keys, lua_script
from scratchbus.eventlog.layouts import CHECKPOINT, HEAD, HOLD, KNOWN_ID, LUA, Head


def test_a_pattern_ends_after_the_last_wanted_field():
    assert HEAD.pattern("status", "type") == "'^%d+|([^|]*)|%a|([^|]*)|'"
    assert HEAD.pattern("dedupe_key").endswith("|(.*)$'")


def test_fields_after_one_with_bars_are_matched_from_the_end():
    assert CHECKPOINT.pattern("build") == "'|(%d+)|%d+|[^|]*|[^|]*$'"
    found = CHECKPOINT.regex.fullmatch("1-2|an|id|3|4|origin|token")
    assert found is not None
    assert found.groups() == ("1-2", "an|id", "3", "4", "origin", "token")


def test_python_reads_holds_and_known_ids():
    hold, known_id = HOLD.regex.fullmatch("0a9|17|a|b"), KNOWN_ID.regex.fullmatch("0a9|1-2")
    assert hold is not None
    assert hold.groups() == ("0a9", "17", "a|b")
    assert known_id is not None
    assert known_id.groups() == ("0a9", "1-2")


def test_lua_and_python_write_the_same_new_head():
    values = {"start": "1|active|o|t|5", "added": "7", "expires": "0", "position": "1-7", "tags": ",a,"}
    text = LUA["ADDED_HEAD_TEXT"]
    assert isinstance(text, str)
    parts = [part.strip("'") if part.startswith("'") else values[part] for part in text.split(" .. ")]
    assert "".join(parts) == str(Head(1, "active", "o", "t", 5, 7, 0, 0, 0, "", 0, "1-7", 0, 0, ",a,", ""))


def test_script_arguments_follow_the_declared_order():
    @lua_script("eventlog/fetch")
    def fetch(*ids: str, log: Key, limit: int, others: Keys, word: str = "") -> None: ...

    assert fetch.text.startswith(
        "local LOG, OTHERS, LIMIT, WORD, FIRST =\n  KEYS[1], 2, tonumber(ARGV[1]), ARGV[2], 3\n"
    )
    command = fetch("1-1", "1-2", limit=9, log="l", others=("a", "b"))
    assert command == ("EVALSHA", fetch.sha, "3", "l", "a", "b", "9", "", "1-1", "1-2")


def test_a_script_with_an_unknown_constant_is_refused():
    with pytest.raises(KeyError, match="HEAD"):

        @lua_script("eventlog/chains")
        def chains(*, log: Key) -> None: ...
