-- The only writer of the log: checks a whole batch first, then writes all of it.
--
-- append_script.py declares the arguments. From FIRST on they are the fields of each event (`Guarded` in writes.py),
-- addressed by number, counted from 0. An event's op selects its guard; see `Op` in writes.py.
--
-- A fence is valid only from the connection that holds the claim: one with the same owner token.
--
-- Reply: {"written", ms, count, then per event: seq, version, kind, subject, fence; then each displaced, and by which}
--                                                                               count: of all events written;
--                                                                               seq 0: skipped, kind is the reason
--        {"known", stream id, …}                                                all events had been written before
--        {"refused", index, reason, …}                                          nothing was written; nobody waits for
--                                                                               the reply if the reason is "late"
--        {"refused", 1, "blocked", stream id}                                   nothing was written; this entry is, or
--                                                                               was, in the stream behind the tail
-- If there is nothing to pick the reason is "idle", with: ms, when something may be free (ms, 0 never), below which
-- score to search on ("" at the end), the priority of a free one below the minimum priority (-1: none), and a hint
-- for the next pick ("": none). After a pick the reply ends in such a hint

local WIDTH = @WIDTH@
local call, match, gmatch, find, sub = redis.call, string.match, string.gmatch, string.find, string.sub
local count = (#ARGV - FIRST + 1) / WIDTH

-- The log's time never runs backwards: an event is never before the last one. Its seq continues from the last one.

local last_seq, END = 0, '0-0' -- of the log
local tail = call('GET', TAIL)
if tail then
  END = match(tail, @LAST(stream_id)@)
  local last_ms, seq = match(tail, @STREAM_ID@)
  last_seq = tonumber(seq)
  if tonumber(last_ms) > now then now = tonumber(last_ms) end
end
local NOW = int(now)

-- Someone may have added an entry behind the tail by hand. Readers end at the tail, and nothing is appended until a
-- repair has removed the entry: among events it could not be recognised. A deleted entry still moves the last id.

local function blocked()
  local found = call('XREAD', 'COUNT', 1, 'STREAMS', LOG, END) -- faster than XRANGE when there is nothing
  return found and #found > 0 and {'refused', 1, 'blocked', found[1][2][1][1]}
end

local function blocked_by_id()
  local last = last_id()
  return is_above(last, NOW .. '-' .. int(last_seq)) and {'refused', 1, 'blocked', last}
end

-- Returns the error if the call fails.

local function add_entry(...)
  local id = redis.pcall('XADD', LOG, ...)
  return type(id) == 'table' and id
end

local function start(k) return FIRST + (k - 1) * WIDTH end

local function later(text, current)
  if text == '' then return current end
  if sub(text, 1, 1) == '+' then return int(now + tonumber(sub(text, 2))) end
  return text
end
