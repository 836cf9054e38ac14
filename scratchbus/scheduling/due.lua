-- Reads the members of the due set whose time has come, each with its head.
--
-- Reply: {now, member, head or "", …}

now = math.max(now, tonumber(string.match(redis.call('GET', TAIL) or '', @MS@) or 0)) -- see query.lua
local prefix = @PREFIX(TAIL)@
local build = string.match(redis.call('GET', CHECKPOINT) or '', @CHECKPOINT(build)@) or '1'
local due = prefix .. @BUILD_KEY(build, due)@
local reply = {now}
local members = redis.call('ZRANGEBYSCORE', due, '-inf', int(now), 'LIMIT', SKIP, LIMIT)
for _, member in ipairs(members) do
  local subject, page = string.match(member, '^([^@]+)@(.*)$')
  reply[#reply + 1] = member
  reply[#reply + 1] = page and redis.call('HGET', prefix .. @KEY(heads)@ .. page, subject) or '' -- else added by hand
end
return reply
