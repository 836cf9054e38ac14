-- Rebuilding the state: the builder's lease, and the switch to the new build.
-- Build numbers only grow, so a builder that lost its lease writes where nobody reads.
--
-- Reply: {0, holder, until} another process holds the lease; {1, …} done: for "take" the numbers of the new build and
--        of the live one, for "keep" the log's tail; {2} the new build cannot replace the live one: it is behind it, or
--        was made from another log

local call = redis.call

local function field(name) return call('HGET', LEASE, name) or '' end
local function build_and_origin(checkpoint)
  local build, origin = string.match(checkpoint, @CHECKPOINT(build, origin)@)
  return tonumber(build or 1), origin or ''
end

local function ms_of(text) return tonumber(string.match(text or '', @MS@) or 0) end

local holder, till = field('token'), tonumber(field('until')) or 0
local live = call('GET', LIVE) or ''

if OPERATION == 'take' then
  if holder ~= '' and holder ~= TOKEN and till > now then
    if till > now + LEASE_MS then -- the clock was set back; a holder that is alive renews its lease
      till = now + LEASE_MS
      call('HSET', LEASE, 'until', int(till))
    end
    return {0, field('holder'), till}
  end
  local number = build_and_origin(live)
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
  local _, made = build_and_origin(new)
  local _, was = build_and_origin(live)
  local tail = call('GET', TAIL) -- entries behind it are not events; older versions folded them
  local is_of_log = was == made and seq_of(live) <= seq_of(tail) and ms_of(live) <= ms_of(tail)
  if made ~= (call('GET', ORIGIN) or '') or (is_of_log and seq_of(live) > seq_of(new)) then return {2} end
  if new == '' then call('DEL', LIVE) else call('SET', LIVE, new) end
  call('DEL', NEXT)
end
call('HDEL', LEASE, 'token', 'holder', 'until')
return {1}
