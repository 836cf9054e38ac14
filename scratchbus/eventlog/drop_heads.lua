-- Drops heads that have not changed since they were read.

for at = FIRST, #ARGV, 2 do
  if redis.call('HGET', HEADS, ARGV[at]) == ARGV[at + 1] then
    redis.call('HDEL', HEADS, ARGV[at])
  end
end
