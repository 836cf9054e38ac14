-- The end of the log, and NOW: the engine's time in ms, which never runs backwards in a log. Numbers stay text where
-- possible, since reading and printing them is slow.
--
-- There may be an entry behind the tail that was added by hand; see append_lua/inputs.lua.

local call, sub, byte, format = redis.call, string.sub, string.byte, string.format

local tail = call('GET', TAIL)
if not tail or call('EXISTS', IDS .. 'retried') == 1 then return {'other'} end
local ms, seq = string.match(tail, @STREAM_ID@)
local found = call('XREAD', 'COUNT', 1, 'STREAMS', LOG, ms .. '-' .. seq)
if found and #found > 0 then return {'refused', 1, 'blocked', found[1][2][1][1]} end
local time = call('TIME')
local NOW = time[1] .. sub('00000' .. time[2], -6, -4)
if #ms > #NOW or #ms == #NOW and ms > NOW then NOW = ms end
