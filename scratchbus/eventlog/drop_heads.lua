-- Drops heads that have not changed since they were read.
--
-- Reply: how many were dropped

local count = 0
for at = FIRST, #ARGV, 2 do
  if redis.call('HGET', HEADS, ARGV[at]) == ARGV[at + 1] then
    count = count + redis.call('HDEL', HEADS, ARGV[at])
  end
end
return count
