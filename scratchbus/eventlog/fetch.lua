-- Fetches entries of the log by their ids.
--
-- KEYS  1 log      ARGV  stream ids      Reply: the entries that are there

local entries = {}
for _, id in ipairs(ARGV) do
  local entry = redis.call('XRANGE', KEYS[1], id, id)[1]
  if entry then entries[#entries + 1] = entry end
end
return entries
