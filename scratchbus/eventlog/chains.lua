-- Walks the events of one subject backwards from one of them, newest first.
--
-- Reply: {entries, the stream id to continue at or ""}

local at = BEGIN
if at == '' then
  local head = redis.call('HGET', HEADS, SUBJECT)
  at = head and string.match(head, @HEAD(position)@) or ''
end
local entries = {}
while at ~= '' and #entries < LIMIT do
  local entry = redis.call('XRANGE', LOG, at, at)[1]
  if not entry then return {entries, at} end
  entries[#entries + 1] = entry
  at = field_of(entry, 'prev') or ''
end
return {entries, at}
