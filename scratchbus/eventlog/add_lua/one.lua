-- Adds an observation in the plain case. On a full page it displaces the lowest and oldest observation, if that is
-- allowed. Most appends are of this kind. Writes what the append script would write; in every other case the append
-- script does the work.
--
-- Reply: the stream id of the event
--        {"displaced", stream id, subject}       the subject was displaced by it
--        {"other"}                               nothing was written; the append script has to do it
--        {"refused", 1, "blocked", stream id}    nothing was written; see append_lua/inputs.lua

local @ADDITION@ = unpack(ARGV, FIRST)
local life, tags, start, type, priority = string.match(shape, @SHAPE@)
local kind, prev, batch, number = 'added', '', '1/1', seq + 1

-- PAGES holds a time before which no open observation of the page expires.

local stored = call('HGET', PAGES, PAGE)
local soonest = tonumber(stored or '') and stored or @FOREVER@ -- the value may have been set by hand

local displaced, displaced_event, displaced_head
local size = ROOM > 0 and call('ZCARD', OPEN) or -1
if size >= ROOM then
  if size > ROOM or DISPLACED == '' or soonest ~= stored or tonumber(soonest) <= tonumber(NOW) then return {'other'} end
  displaced = call('ZRANGE', OPEN, 0, 0)[1]
  local newcomer, newcomers_id, newcomers_priority = subject, id, tonumber(priority)
  local @HEAD_VARIABLES@ = string.match(call('HGET', HEADS, displaced) or '', @HEAD@)
  if status_class ~= 'o' or holder ~= '' or not_before ~= '' or dedupe_key ~= '' or tonumber(priority) > newcomers_priority then return {'other'} end
  local id, subject, kind, batch, prev = newcomers_id .. '.d1', displaced, 'status_changed', '1/2', position
  local body = string.gsub(DISPLACED, '#new#', newcomer, 1)
  position = NOW .. '-' .. format('%d', number)
  displaced_event, displaced_head = {position, @ENTRY@}, @DISPLACED_HEAD_TEXT@
end
if displaced then batch, number = '2/2', number + 1 end

local added, expires = format('%d', number), life
if life == '' then
  expires = '0'
elseif byte(life) == 43 then -- "+": relative to now
  expires = format('%d', NOW + sub(life, 2))
end
local position = NOW .. '-' .. added
if redis.pcall('HSETNX', HEADS, subject, @ADDED_HEAD_TEXT@) ~= 1 then return {'other'} end
local failed = displaced and redis.pcall('XADD', LOG, unpack(displaced_event)) ~= displaced_event[1]
if failed or redis.pcall('XADD', LOG, position, @ENTRY@) ~= position then
  call('HDEL', HEADS, subject)
  return {'other'} -- the append script reports the obstacle
end
call('SET', TAIL, @LAST_TEXT(position, id)@)
if displaced then
  call('HSET', HEADS, displaced, displaced_head)
  call('ZREM', OPEN, displaced)
end
call('ZADD', OPEN, priority * @SPAN@ + number, subject)
if expires ~= '0' and tonumber(expires) < tonumber(soonest) then soonest = expires end
if soonest ~= stored then call('HSET', PAGES, PAGE, soonest) end
if displaced then return {'displaced', position, displaced} end
return position
