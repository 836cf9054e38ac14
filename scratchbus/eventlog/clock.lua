-- The engine's time in ms, and numbers as text: Lua itself prints only 14 digits.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local function int(number) return string.format('%d', number) end
