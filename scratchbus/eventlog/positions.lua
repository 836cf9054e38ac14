-- Reads the positions of a page after one of them by binary search, while no other client can cut the string.
--
-- Reply: {how many are not after it, how many there are, a record for each requested one}

local WIDTH = @POSITION_BYTES@

local function is_behind(at)
  local row = redis.call('GETRANGE', POSITIONS, at * WIDTH, at * WIDTH + WIDTH - 1)
  local ms, seq = 0, 0
  for i = 1, 8 do
    ms = ms * 256 + string.byte(row, i)
    seq = seq * 256 + string.byte(row, i + 8)
  end
  return ms > MS or (ms == MS and seq > SEQ)
end

local size = math.floor(redis.call('STRLEN', POSITIONS) / WIDTH)
local low, high = 0, size
while low < high do
  local middle = math.floor((low + high) / 2)
  if is_behind(middle) then high = middle else low = middle + 1 end
end
return {low, size, LIMIT > 0 and redis.call('GETRANGE', POSITIONS, low * WIDTH, (low + LIMIT) * WIDTH - 1) or ''}
