-- Commits what a projector folded: state and checkpoint move together, or not at all.
--
-- KEYS  1 checkpoint  2 log  3 origin  (4: a key that never exists, see keys.py)
-- ARGV  1 checkpoint as it was read   2 the new one   3 stream id and 4 event id it stands at   5 origin as it was read
--       6 key of the floor   7 … commands: number of arguments, then the arguments
-- Reply: {1} committed; {0} another was faster; {-1} the log is not the one that was folded

if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return {0} end
if redis.call('GET', KEYS[3]) ~= ARGV[5] then return {-1} end
local function seq(row) return tonumber(string.match(row or '', '^%d+%-(%d+)') or 0) end
local entry = redis.call('XRANGE', KEYS[2], ARGV[3], ARGV[3])[1]
if entry then
  local id = ''
  for f = 1, #entry[2], 2 do
    if entry[2][f] == 'id' then id = entry[2][f + 1] end
  end
  if id ~= ARGV[4] then return {-1} end
elseif seq(ARGV[3]) > seq(redis.call('GET', ARGV[6])) then -- what is below the floor was read from the archive
  return {-1}
end

local at, last = 7, #ARGV
while at <= last do
  local width = tonumber(ARGV[at])
  redis.call(unpack(ARGV, at + 1, at + width))
  at = at + width + 1
end
redis.call('SET', KEYS[1], ARGV[2])
return {1}
