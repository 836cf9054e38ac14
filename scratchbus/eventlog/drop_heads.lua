-- Drops heads that are still as they were read.
--
-- KEYS  1 heads  (2: a key that never exists, see keys.py)      ARGV  subject, head, …      Reply: how many were dropped

local count = 0
for at = 1, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[at]) == ARGV[at + 1] then
    count = count + redis.call('HDEL', KEYS[1], ARGV[at])
  end
end
return count
