-- Searches the history index of a page: the positions of its events, in order, each a ms and a seq of 8 bytes.

local POSITION_WIDTH = @POSITION_BYTES@

-- Returns the number in the 8 bytes of a text that begin at `from`.
local function number_at(text, from)
  local number = 0
  for i = from, from + 7 do number = number * 256 + string.byte(text, i) end
  return number
end

-- Returns the first index from `low` up to `high` for which `is_behind` is true, or `high`. It is true for all after it.
local function first_behind(low, high, is_behind)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if is_behind(middle) then high = middle else low = middle + 1 end
  end
  return low
end
