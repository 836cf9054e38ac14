-- Building the state anew: who does it, and the switch to what was built.
-- Numbers of builds only grow, so that who lost the lease writes where nobody looks.
--
-- KEYS  1 lease  2 checkpoint of the live state  3 origin  4 tail  5 checkpoint of the new build  (6: never exists, see
--       keys.py; in the place of 5 too while that is not known)
-- ARGV  1 operation  2 token of the lease  3 its ms  4 who takes it
-- Reply: {0, holder, until} the lease is someone else's; {1, …} done: of "take" the number of the build and that of the
--        live one, of "keep" the log's tail. {2} the new build may not be switched to: it has less than the live one, or
--        is of another log

local call = redis.call
local LEASE, LIVE, ORIGIN, TAIL, NEXT = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local op, token = ARGV[1], ARGV[2]
local time = call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local function field(name) return call('HGET', LEASE, name) or '' end
local function seq(checkpoint) return tonumber(string.match(checkpoint, '^%d+-(%d+)') or 0) end
local function tell(checkpoint)
  local build, origin = string.match(checkpoint, '|(%d+)|%d+|([^|]*)|[^|]*$')
  return tonumber(build or 1), origin or ''
end

local holder, till = field('token'), tonumber(field('until')) or 0
local live = call('GET', LIVE) or ''

if op == 'take' then
  if holder ~= '' and holder ~= token and till > now then return {0, field('holder'), till} end
  local number = tell(live)
  local build = math.max(number, tonumber(field('build')) or 0) + 1
  call('HSET', LEASE, 'build', build, 'token', token, 'holder', ARGV[4],
    'until', string.format('%.0f', now + tonumber(ARGV[3])))
  return {1, build, number}
end

if holder ~= token then return {0, field('holder'), till} end
if op == 'keep' then
  call('HSET', LEASE, 'until', string.format('%.0f', now + tonumber(ARGV[3])))
  return {1, call('GET', TAIL) or ''}
end

if op == 'switch' then
  local new = call('GET', NEXT) or ''
  local _, made = tell(new)
  local _, was = tell(live)
  if made ~= (call('GET', ORIGIN) or '') or (was == made and seq(live) > seq(new)) then return {2} end
  call('SET', LIVE, new)
  call('DEL', NEXT)
end
call('HDEL', LEASE, 'token', 'holder', 'until')
return {1}
