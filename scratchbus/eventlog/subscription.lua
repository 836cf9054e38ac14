-- What happens to a durable subscription: taken, kept, given up; what failed, and what was set aside.
-- Whoever does not hold the lease changes nothing.
--
-- KEYS  1 subscription  2 names of all  3 dead letters  4 letters to deliver again  (5: never exists, see keys.py)
-- ARGV  1 operation  2 token of the lease  3 … what the operation needs
-- Reply: {0} the lease is someone else's; {1, …} done

local call = redis.call
local SUB, NAMES, DEAD, AGAIN = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local op, token = ARGV[1], ARGV[2]
local time = call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local function field(name) return call('HGET', SUB, name) or '' end
local function ms(number) return string.format('%.0f', number) end
local function done(position)
  call('HDEL', AGAIN, position)
  if field('trying') == position then call('HDEL', SUB, 'trying', 'attempts', 'due') end
end

-- The cursors of all shards, each at the further of two places.
local function further(one, other)
  local at, out = {}, {}
  for id in string.gmatch(one, '[^,]+') do at[#at + 1] = id end
  for id in string.gmatch(other, '[^,]+') do
    local before = at[#out + 1] or id
    local is_ahead = tonumber(string.match(id, '%d+$')) > tonumber(string.match(before, '%d+$'))
    out[#out + 1] = is_ahead and id or before
  end
  return table.concat(out, ',')
end

local holder = field('token')
local left = (tonumber(field('until')) or 0) - now

if op == 'idle' then -- 3 ms after which one that nobody consumes is dropped
  local last = math.max(tonumber(field('seen')) or 0, tonumber(field('until')) or 0)
  if field('cursor') == '' or field('dropped') ~= '' then return {1, 0} end
  if last == 0 then call('HSET', SUB, 'seen', ms(now)) end
  if last == 0 or now - last <= tonumber(ARGV[3]) then return {1, 0} end
  call('HSET', SUB, 'dropped', ms(now))
  call('HDEL', SUB, 'token', 'holder', 'since', 'until')
  return {1, 1, field('cursor')}
end

if op == 'take' or op == 'declare' then -- a name that is new begins, and one that is to be set anew
  local name, lease, who, filters, start, is_reset = ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6], ARGV[7], ARGV[8]
  if holder ~= '' and holder ~= token and left > 0 then
    return {field('filters') == filters and 0 or -1, field('holder'), left, field('filters')}
  end
  if field('dropped') ~= '' and is_reset ~= '1' then
    return {-3, tonumber(field('dropped')), field('cursor'), field('who')}
  end
  if field('cursor') == '' then
    if start == '' then return {-2} end
    call('SADD', NAMES, name)
    call('HSET', SUB, 'cursor', start, 'filters', filters, 'seen', ms(now))
  elseif is_reset == '1' then
    call('HSET', SUB, 'cursor', start, 'seen', ms(now))
    call('HDEL', SUB, 'origins', 'trying', 'attempts', 'due', 'dropped')
  end
  if op == 'declare' then return {1} end
  local since = holder == token and field('since') or ms(now)
  call('HSET', SUB, 'filters', filters, 'token', token, 'holder', who, 'since', since, 'until', ms(now + lease),
    'seen', ms(now), 'who', who)
  local is_takeover = holder ~= '' and holder ~= token
  local wait = math.max(0, (tonumber(field('due')) or 0) - now)
  return {
    1, field('cursor'), field('origins'), field('trying'), tonumber(field('attempts')) or 0, wait,
    is_takeover and 1 or 0, call('HLEN', AGAIN),
  }
end

if op == 'remove' then
  if field('cursor') == '' then return {-2} end
  if holder ~= '' and left > 0 then return {0, field('holder'), left} end
  call('SREM', NAMES, ARGV[3])
  call('DEL', SUB, DEAD, AGAIN)
  return {1}
end

if op == 'again' then -- dead letters are delivered again: 3 … their positions
  local moved = 0
  for i = 3, #ARGV do
    local letter = call('HGET', DEAD, ARGV[i])
    if letter then
      call('HSET', AGAIN, ARGV[i], letter)
      call('HDEL', DEAD, ARGV[i])
      moved = moved + 1
    end
  end
  return {moved}
end

if holder == '' or holder ~= token then return {0} end

if op == 'keep' then -- 3 length of the lease  4 cursor  5 origins of the logs it is in
  call('HSET', SUB, 'until', ms(now + tonumber(ARGV[3])), 'cursor', further(field('cursor'), ARGV[4]), 'origins', ARGV[5],
    'seen', ms(now))
  return {1, call('HLEN', AGAIN)}
elseif op == 'note' then -- 3 position  4 attempts that failed, or are in doubt  5 ms to wait before the next
  call('HSET', SUB, 'trying', ARGV[3], 'attempts', ARGV[4], 'due', ms(now + tonumber(ARGV[5])))
elseif op == 'done' then -- 3 position
  done(ARGV[3])
elseif op == 'bury' then -- 3 position  4 letter  5 cursor
  call('HSET', DEAD, ARGV[3], ARGV[4])
  done(ARGV[3])
  call('HSET', SUB, 'cursor', further(field('cursor'), ARGV[5]))
elseif op == 'leave' then
  call('HDEL', SUB, 'token', 'holder', 'since', 'until')
  call('HSET', SUB, 'seen', ms(now))
end
return {1}
