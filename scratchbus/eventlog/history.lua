-- Walks the events of one subject back from one of them, newest first.
--
-- KEYS  1 log  2 heads      ARGV  1 subject  2 stream id to begin at ("" at its last event)  3 at most how many
-- Reply: {entries, the id to go on at or ""}

local at = ARGV[2]
if at == '' then
  local head = redis.call('HGET', KEYS[2], ARGV[1])
  at = head and string.match(head, '^%d+|[^|]*|%a|[^|]*|%d+|%d+|%d+|%d+|%d+|[^|]*|%d+|([^|]*)|') or ''
end
local entries = {}
while at ~= '' and #entries < tonumber(ARGV[3]) do
  local entry = redis.call('XRANGE', KEYS[1], at, at)[1]
  if not entry then return {entries, at} end
  entries[#entries + 1] = entry
  at = ''
  for f = 1, #entry[2], 2 do
    if entry[2][f] == 'prev' then at = entry[2][f + 1] end
  end
end
return {entries, at}
