-- Several reads in one consistent look, with where the log ends and how far the state is folded.
--
-- KEYS  1 tail  2 checkpoint  (3 … what is read)
-- ARGV  number of arguments of a command, then the arguments, and so on
-- Reply: {tail, checkpoint, a reply for each command}

local reply = {redis.call('GET', KEYS[1]) or '', redis.call('GET', KEYS[2]) or ''}
local at = 1
while at <= #ARGV do
  local width = tonumber(ARGV[at])
  reply[#reply + 1] = redis.call(unpack(ARGV, at + 1, at + width))
  at = at + width + 1
end
return reply
