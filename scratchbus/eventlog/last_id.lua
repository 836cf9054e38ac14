-- The last id that the log ever had; XADD accepts only higher ones, even if that entry was deleted.

local function last_id()
  local info = redis.call('EXISTS', LOG) == 1 and redis.call('XINFO', 'STREAM', LOG) or {}
  for f = 1, #info, 2 do
    if info[f] == 'last-generated-id' then return info[f + 1] end
  end
  return '0-0'
end

-- Whether a stream id is above another. Both parts have up to 64 bits, more than Lua's numbers.

local function is_above(id, other)
  local ms, seq = string.match(id, @STREAM_ID@)
  local other_ms, other_seq = string.match(other, @STREAM_ID@)
  if ms == other_ms then ms, other_ms = seq, other_seq end
  return #ms > #other_ms or (#ms == #other_ms and ms > other_ms)
end
