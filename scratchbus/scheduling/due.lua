-- What time has come for: the members of the due set up to now, each with its head.
--
-- KEYS  1 checkpoint  2 tail      ARGV  1 prefix of all keys   2 at most how many
-- Reply: {now, member, head or "", …}

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
now = math.max(now, tonumber(string.match(redis.call('GET', KEYS[2]) or '', '^%d+') or 0)) -- see query.lua
local build = string.match(redis.call('GET', KEYS[1]) or '', '|(%d+)|%d+|[^|]*|[^|]*$') or '1'
local due = ARGV[1] .. 'p' .. build .. ':due'
local reply = {now}
local members = redis.call('ZRANGEBYSCORE', due, '-inf', string.format('%.0f', now), 'LIMIT', 0, tonumber(ARGV[2]))
for _, member in ipairs(members) do
  local subject, page = string.match(member, '^([^@]+)@(.*)$')
  reply[#reply + 1] = member
  reply[#reply + 1] = redis.call('HGET', ARGV[1] .. 'heads:' .. page, subject) or ''
end
return reply
