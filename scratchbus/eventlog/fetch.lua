-- Reads entries by their ids.
--
-- Reply: the entries found

local entries = {}
for at = FIRST, #ARGV do
  local entry = redis.call('XRANGE', LOG, ARGV[at], ARGV[at])[1]
  if entry then entries[#entries + 1] = entry end
end
return entries
