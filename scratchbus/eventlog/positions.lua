-- Reads the positions of a page after one of them by binary search, while no other client can cut the string.
--
-- Reply: {how many are not after it, how many there are, a record for each requested one}

local function is_behind(at)
  local row = redis.call('GETRANGE', POSITIONS, at * POSITION_WIDTH, (at + 1) * POSITION_WIDTH - 1)
  local ms, seq = number_at(row, 1), number_at(row, 9)
  return ms > MS or (ms == MS and seq > SEQ)
end

local size = math.floor(redis.call('STRLEN', POSITIONS) / POSITION_WIDTH)
local low = first_behind(0, size, is_behind)
local first, last = low * POSITION_WIDTH, (low + LIMIT) * POSITION_WIDTH - 1
return {low, size, LIMIT > 0 and redis.call('GETRANGE', POSITIONS, first, last) or ''}
