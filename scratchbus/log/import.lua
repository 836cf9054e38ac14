-- Writes events as they are, with what follows from them, behind the end of the log: all of it, or nothing.
--
-- KEYS  1 tail  2 origin  3 log  (4: a key that never exists, see keys.py)
-- ARGV  1 the tail as it was, "" of an empty log   2 the new one   3 a random word for the origin of a new log
--       4 … commands: number of arguments, then the arguments
-- Reply: {1} written, now or before; {0} the log ends elsewhere

local tail = redis.call('GET', KEYS[1]) or ''
if tail == ARGV[2] then return {1} end
if tail ~= ARGV[1] then return {0} end
redis.call('XDEL', KEYS[3], '0-1') -- nothing; but who may not delete, and so may not write all there is, is refused here
if tail == '' then redis.call('SET', KEYS[2], ARGV[3]) end
local at = 4
while at <= #ARGV do
  local width = tonumber(ARGV[at])
  redis.call(unpack(ARGV, at + 1, at + width))
  at = at + width + 1
end
redis.call('SET', KEYS[1], ARGV[2])
return {1}
