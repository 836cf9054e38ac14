-- Building the state anew: the lease of who does it, and the switch to what was built.
-- Numbers of builds only grow, so that who lost the lease writes where nobody looks.
--
-- Reply: {0, holder, until} the lease is someone else's; {1, …} done: of "take" the number of the build and that of the
--        live one, of "keep" the log's tail. {2} the new build may not be switched to: it has less than the live one, or
--        is of another log

local call = redis.call

local function field(name) return call('HGET', LEASE, name) or '' end
local function tell(checkpoint)
  local build, origin = string.match(checkpoint, @CHECKPOINT(build, origin)@)
  return tonumber(build or 1), origin or ''
end

local function ms_of(text) return tonumber(string.match(text or '', @MS@) or 0) end

local holder, till = field('token'), tonumber(field('until')) or 0
local live = call('GET', LIVE) or ''

if OPERATION == 'take' then
  if holder ~= '' and holder ~= TOKEN and till > now then return {0, field('holder'), till} end
  local number = tell(live)
  local build = math.max(number, tonumber(field('build')) or 0) + 1
  call('HSET', LEASE, 'build', build, 'token', TOKEN, 'holder', WHO,
    'until', int(now + LEASE_MS))
  return {1, build, number}
end

if holder ~= TOKEN then return {0, field('holder'), till} end
if OPERATION == 'keep' then
  call('HSET', LEASE, 'until', int(now + LEASE_MS))
  return {1, call('GET', TAIL) or ''}
end

if OPERATION == 'switch' then
  local new = call('GET', NEXT) or ''
  local _, made = tell(new)
  local _, was = tell(live)
  local tail = call('GET', TAIL) -- what is behind it was not an event; older versions folded it
  local is_of_log = was == made and seq_of(live) <= seq_of(tail) and ms_of(live) <= ms_of(tail)
  if made ~= (call('GET', ORIGIN) or '') or (is_of_log and seq_of(live) > seq_of(new)) then return {2} end
  if new == '' then call('DEL', LIVE) else call('SET', LIVE, new) end
  call('DEL', NEXT)
end
call('HDEL', LEASE, 'token', 'holder', 'until')
return {1}
