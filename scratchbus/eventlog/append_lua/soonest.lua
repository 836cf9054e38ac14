-- PAGES holds, for each page, a time before which no open observation expires, so a full page is seldom searched.

local stored = call('HGET', PAGES, PAGE)
local soonest = tonumber(stored or '') and stored -- else it was set by hand: write it again

local function note_expiry(ms)
  if not soonest then soonest = @FOREVER@ end
  if ms ~= '0' and tonumber(ms) < tonumber(soonest) then soonest = ms end
end
