"""The work that the query script gives the engine, counted in instructions of Lua."""

from __future__ import annotations

import pytest

from scratchbus.readmodel.query_script import query_script

lua51 = pytest.importorskip("lupa.lua51")

_ENGINE = """
function(command, types, total)
  local instructions, KEYS, ARGV = 0, {}, {}
  for k = 1, command.keys do KEYS[k] = command.parts[k] end
  for k = command.keys + 1, #command.parts do ARGV[k - command.keys] = command.parts[k] end
  local commands = {TIME = function() return {'1', '0'} end, GET = function() return false end}
  function commands.HKEYS()
    local names = {}
    for k = 1, types do names[k] = tostring(k - 1) end
    return names
  end
  function commands.ZREVRANGEBYSCORE(set, from, _, _, _, _, limit) -- type t has the scores t, t + types, ...
    local rows, kind = {}, tonumber(string.match(set, '%d+$'))
    local below = from == '+inf' and total + 1 or tonumber(string.sub(from, 2))
    for score = below - 1, 1, -1 do
      if #rows == 2 * limit then break end
      if score % types == kind then
        rows[#rows + 1] = 'id' .. score
        rows[#rows + 1] = tostring(score)
      end
    end
    return rows
  end
  function commands.HMGET(_, ...) return {...} end
  redis = {call = function(name, ...)
    debug.sethook()
    local reply = commands[name](...)
    debug.sethook(function() instructions = instructions + 1 end, '', 1)
    return reply
  end}
  _G.KEYS, _G.ARGV = KEYS, ARGV
  local reply = loadstring(command.text)()
  debug.sethook()
  return instructions, table.concat(reply[8], ' ')
end
"""
"""Runs the script on an engine whose observations 1 to `total` are of `types` types in turn."""


def _listed(types: int, total: int, text: str = "") -> tuple[int, list[str]]:
    """Return the instructions that a list of a page takes, and its documents that contain a text."""
    names = ("tail", "checkpoint", "log", "docs", "heads", "open", "types")
    texts = ("page", "folded", "cached_checkpoint", "cached_tail")
    _, _, keys, *parts = query_script(
        str(total), "", "", text,
        **dict.fromkeys(names, "key"), **dict.fromkeys(texts, ""),
        sets=(), max_behind=200, operation="list", of_type="type:",
    )  # fmt: skip
    lua = lua51.LuaRuntime()
    command = lua.table(text=query_script.text, keys=int(keys), parts=lua.table(*parts))
    instructions, documents = lua.eval(_ENGINE)(command, types, total)
    return int(instructions), documents.split()


def test_a_list_of_all_types_takes_little_more_work_with_hundreds_of_types() -> None:
    few, newest_first = _listed(8, 1_000)
    assert newest_first == [f"id{score}" for score in range(1_000, 0, -1)]
    many, same = _listed(500, 1_000)
    assert same == newest_first
    assert many < 5 * few


def test_a_list_that_finds_nothing_looks_at_little_more_than_five_thousand_documents() -> None:
    some, none = _listed(1, 6_000, "absent")
    many, same = _listed(1, 60_000, "absent")
    assert none == same == []
    assert many < 1.1 * some
