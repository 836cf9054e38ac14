-- Changes a durable subscription: its lease, its cursor, what failed, and what was set aside.
-- Without the lease only "take", "declare", "remove", "again" and "idle" change anything.
--
-- Reply: {0} the lease is someone else's; {1, …} done

local call = redis.call

local function field(name) return call('HGET', SUBSCRIPTION, name) or '' end
local function done(position)
  call('HDEL', AGAIN, position)
  if field('trying') == position then call('HDEL', SUBSCRIPTION, 'trying', 'attempts', 'due') end
end

local function all(text, pattern)
  local found = {}
  for word in string.gmatch(text, pattern) do found[#found + 1] = word end
  return found
end

-- Moves the cursor on where CURSOR is further, never back. EVENTS has the ids of the events there: another log, as
-- after a failover, may have others at these positions.
local function move_on()
  local at, ids, new_ids = all(field('cursor'), '[^,]+'), all(field('events'), '[^ ]+'), all(EVENTS, '[^ ]+')
  for n, id in ipairs(all(CURSOR, '[^,]+')) do
    local before = at[n] or id
    if not at[n] or tonumber(string.match(id, '%d+$')) > tonumber(string.match(before, '%d+$')) then
      at[n], ids[n] = id, new_ids[n]
    end
    ids[n] = ids[n] or before .. '|'
  end
  call('HSET', SUBSCRIPTION, 'cursor', table.concat(at, ','), 'events', table.concat(ids, ' '))
end

local holder = field('token')
local left = (tonumber(field('until')) or 0) - now

if OPERATION == 'idle' then -- drops one that nobody has consumed for IDLE_MS
  local last = math.max(tonumber(field('seen')) or 0, tonumber(field('until')) or 0)
  if field('cursor') == '' or field('dropped') ~= '' then return {1, 0} end
  if last == 0 then call('HSET', SUBSCRIPTION, 'seen', int(now)) end
  if last == 0 or now - last <= IDLE_MS then return {1, 0} end
  call('HSET', SUBSCRIPTION, 'dropped', int(now))
  call('HDEL', SUBSCRIPTION, 'token', 'holder', 'since', 'until')
  return {1, 1, field('cursor')}
end

if OPERATION == 'take' or OPERATION == 'declare' then -- begins a new name, or one that is to be reset
  if holder ~= '' and holder ~= TOKEN and left > 0 then
    return {field('filters') == FILTERS and 0 or -1, field('holder'), left, field('filters')}
  end
  if field('dropped') ~= '' and RESET ~= 1 then
    return {-3, tonumber(field('dropped')), field('cursor'), field('who')}
  end
  if field('cursor') == '' then
    if START == '' then return {-2} end
    call('SADD', NAMES, NAME)
    call('HSET', SUBSCRIPTION, 'cursor', START, 'filters', FILTERS, 'seen', int(now))
  elseif RESET == 1 then
    call('HSET', SUBSCRIPTION, 'cursor', START, 'seen', int(now))
    call('HDEL', SUBSCRIPTION, 'events', 'origins', 'trying', 'attempts', 'due', 'dropped')
  end
  if OPERATION == 'declare' then return {1} end
  local since = holder == TOKEN and field('since') or int(now)
  call('HSET', SUBSCRIPTION, 'filters', FILTERS, 'token', TOKEN, 'holder', WHO, 'since', since,
    'until', int(now + LEASE_MS), 'seen', int(now), 'who', WHO)
  local is_takeover = holder ~= '' and holder ~= TOKEN
  local wait = math.max(0, (tonumber(field('due')) or 0) - now)
  return {
    1, field('cursor'), field('origins'), field('trying'), tonumber(field('attempts')) or 0, wait,
    is_takeover and 1 or 0, call('HLEN', AGAIN), field('events'),
  }
end

if OPERATION == 'remove' then
  if field('cursor') == '' then return {-2} end
  if holder ~= '' and left > 0 then return {0, field('holder'), left} end
  call('SREM', NAMES, NAME)
  call('DEL', SUBSCRIPTION, DEAD, AGAIN)
  return {1}
end

if OPERATION == 'again' then -- delivers the dead letters at these positions again
  local moved = 0
  for i = FIRST, #ARGV do
    local letter = call('HGET', DEAD, ARGV[i])
    if letter then
      call('HSET', AGAIN, ARGV[i], letter)
      call('HDEL', DEAD, ARGV[i])
      moved = moved + 1
    end
  end
  return {moved}
end

if holder == '' or holder ~= TOKEN then return {0} end

if OPERATION == 'keep' then
  move_on()
  call('HSET', SUBSCRIPTION, 'until', int(now + LEASE_MS), 'origins', ORIGINS, 'seen', int(now))
  return {1, call('HLEN', AGAIN)}
elseif OPERATION == 'note' then
  call('HSET', SUBSCRIPTION, 'trying', POSITION, 'attempts', ATTEMPTS, 'due', int(now + WAIT_MS))
elseif OPERATION == 'done' then
  done(POSITION)
elseif OPERATION == 'bury' then
  call('HSET', DEAD, POSITION, LETTER)
  done(POSITION)
  move_on()
elseif OPERATION == 'leave' then
  call('HDEL', SUBSCRIPTION, 'token', 'holder', 'since', 'until')
  call('HSET', SUBSCRIPTION, 'seen', int(now))
end
return {1}
