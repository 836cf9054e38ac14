-- Runs the commands among the arguments from FIRST on (see `packed` in engine/scripts.py), and returns their replies.

local function run_commands()
  local replies, at = {}, FIRST
  while at <= #ARGV do
    local width = tonumber(ARGV[at])
    replies[#replies + 1] = redis.call(unpack(ARGV, at + 1, at + width))
    at = at + width + 1
  end
  return replies
end
