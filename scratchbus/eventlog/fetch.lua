-- Reads the entries of ranges of ids, each given by its first and last id and the most entries to read.
--
-- Reply: the entries found

local entries = {}
for at = FIRST, #ARGV, 3 do
  for _, entry in ipairs(redis.call('XRANGE', LOG, ARGV[at], ARGV[at + 1], 'COUNT', ARGV[at + 2])) do
    entries[#entries + 1] = entry
  end
end
return entries
