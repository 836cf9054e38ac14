-- Reads the positions of a page behind one of them: finds the place by halving, while nobody cuts the string.
--
-- KEYS  1 positions      ARGV  1 ms and 2 seq of the position  3 at most how many
-- Reply: {how many are not behind it, how many there are, 16 bytes for each that was asked for}

local KEY, MS, SEQ, MOST = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local WIDTH = 16

local function is_behind(at)
  local row = redis.call('GETRANGE', KEY, at * WIDTH, at * WIDTH + WIDTH - 1)
  local ms, seq = 0, 0
  for i = 1, 8 do
    ms = ms * 256 + string.byte(row, i)
    seq = seq * 256 + string.byte(row, i + 8)
  end
  return ms > MS or (ms == MS and seq > SEQ)
end

local size = math.floor(redis.call('STRLEN', KEY) / WIDTH)
local low, high = 0, size
while low < high do
  local middle = math.floor((low + high) / 2)
  if is_behind(middle) then high = middle else low = middle + 1 end
end
return {low, size, MOST > 0 and redis.call('GETRANGE', KEY, low * WIDTH, (low + MOST) * WIDTH - 1) or ''}
