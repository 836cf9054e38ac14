-- Runs the commands among the arguments from FIRST on (see `packed` in engine/scripts.py), and returns their replies.
-- Besides the engine's, there is UNLIST: it removes a field of a hash, given both, if a third key does not exist.

local function run_commands()
  local replies, at = {}, FIRST
  while at <= #ARGV do
    local width = tonumber(ARGV[at])
    if ARGV[at + 1] == 'UNLIST' then
      if redis.call('EXISTS', ARGV[at + 4]) == 0 then redis.call('HDEL', ARGV[at + 2], ARGV[at + 3]) end
    else
      replies[#replies + 1] = redis.call(unpack(ARGV, at + 1, at + width))
    end
    at = at + width + 1
  end
  return replies
end
