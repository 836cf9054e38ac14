-- Changes a durable subscription: its definition, lease, cursor, failed events and dead letters.
-- Without the lease only "take", "pull", "declare", "define", "remove", "redeliver", "drop" and "idle" change anything.
--
-- `out` has the events handed out to a pulling client, from the first one that it has not acked: each is
-- position|event id|1 if it is a redelivered dead letter|state|attempt|due (ms), the state `o` (out), `a` (acked)
-- or `w` (waits for redelivery).
--
-- Reply: {0} another consumer holds the lease; {1, …} done, "settle" with the number of events that were still out

local call = redis.call
local OUT_ENTRY = '^([^|]+)|(.*)|(%d)|(%a)|(%d+)|(%d+)$'

local function field(name) return call('HGET', SUBSCRIPTION, name) or '' end
local function forget_failures(position)
  call('HDEL', AGAIN, position)
  if field('trying') == position then call('HDEL', SUBSCRIPTION, 'trying', 'attempts', 'due') end
end

local function matches(text, pattern)
  local found = {}
  for word in string.gmatch(text, pattern) do found[#found + 1] = word end
  return found
end

local function number(id) return tonumber(string.match(id, '%d+$')) end

-- Moves the cursor forward to CURSOR, never back. EVENTS has the ids of the events there: another log, as after a
-- failover, may have other events at these positions.
local function move_on()
  local at, ids = matches(field('cursor'), '[^,]+'), matches(field('events'), '[^ ]+')
  local new_ids = matches(EVENTS, '[^ ]+')
  for n, id in ipairs(matches(CURSOR, '[^,]+')) do
    local before = at[n] or id
    if not at[n] or number(id) > number(before) then
      at[n], ids[n] = id, new_ids[n]
    end
    ids[n] = ids[n] or before .. '|'
  end
  call('HSET', SUBSCRIPTION, 'cursor', table.concat(at, ','), 'events', table.concat(ids, ' '))
end

-- Returns the index of the cursor for an event's shard, and the id of its entry.
local function cursor_of(position)
  local shard, id = string.match(position, '^(%d+)/(.+)$')
  return (tonumber(shard) or 0) + 1, id or position
end

-- Whether the cursor is at an event or after it.
local function is_passed(position)
  local n, id = cursor_of(position)
  local at = matches(field('cursor'), '[^,]+')[n]
  return at ~= nil and number(id) <= number(at)
end

-- Moves the cursor past an event, never back.
local function pass(position, event_id)
  if is_passed(position) then return end
  local n, id = cursor_of(position)
  local at, ids = matches(field('cursor'), '[^,]+'), matches(field('events'), '[^ ]+')
  for k, each in ipairs(at) do ids[k] = ids[k] or each .. '|' end
  at[n], ids[n] = id, position .. '|' .. event_id
  call('HSET', SUBSCRIPTION, 'cursor', table.concat(at, ','), 'events', table.concat(ids, ' '))
end

local function read_out()
  local found = {}
  for word in string.gmatch(field('out'), '[^ ]+') do
    local position, id, is_redelivered, state, attempt, due = string.match(word, OUT_ENTRY)
    found[#found + 1] = {position, id, is_redelivered, state, tonumber(attempt), due}
  end
  return found
end

-- Stores the events handed out, and what consumers of another kind need to know of the first one; releases the lease
-- when none are out any longer.
local function keep_out(entries)
  local words, is_out, first = {}, false, entries[1]
  for k, entry in ipairs(entries) do
    words[k] = table.concat(entry, '|')
    is_out = is_out or entry[4] == 'o'
  end
  if first and first[5] > 1 then
    call('HSET', SUBSCRIPTION, 'trying', first[1], 'attempts', first[5] - 1, 'due', first[6])
  elseif first and first[4] == 'o' then
    call('HDEL', SUBSCRIPTION, 'trying', 'attempts', 'due')
  end
  if first then call('HSET', SUBSCRIPTION, 'out', table.concat(words, ' '))
  else call('HDEL', SUBSCRIPTION, 'out') end
  if not is_out then
    call('HDEL', SUBSCRIPTION, 'token', 'holder', 'since', 'until')
    call('HSET', SUBSCRIPTION, 'settled', TOKEN)
  end
end

-- A definition, a reset or a change of dead letters that is sent again after a lost reply is answered as the first time,
-- and not done again.
local function earlier_answer()
  local token, answer = string.match(field('answered'), '^(%S+) (%d+)$')
  if token == TOKEN then return tonumber(answer) end
end

local function keep_answer(answer)
  if field('cursor') ~= '' then call('HSET', SUBSCRIPTION, 'answered', TOKEN .. ' ' .. answer) end
  return answer
end

local holder = field('token')
local left = (tonumber(field('until')) or 0) - now

if OPERATION == 'idle' then -- drops a subscription without a consumer for IDLE_MS
  local last = math.max(tonumber(field('seen')) or 0, tonumber(field('until')) or 0)
  if field('cursor') == '' or field('dropped') ~= '' then return {1, 0} end
  if last == 0 then call('HSET', SUBSCRIPTION, 'seen', int(now)) end
  if last == 0 or now - last <= IDLE_MS then return {1, 0} end
  call('HSET', SUBSCRIPTION, 'dropped', int(now))
  call('HDEL', SUBSCRIPTION, 'token', 'holder', 'since', 'until')
  return {1, 1, field('cursor')}
end

local BEGINS = {take = true, pull = true, declare = true, define = true}

if BEGINS[OPERATION] then -- starts a new or reset subscription; a pull uses the stored filters
  local is_definition = OPERATION == 'define' or OPERATION == 'declare'
  local earlier = is_definition and earlier_answer()
  if earlier then return {1, earlier} end
  local is_the_same = FILTERS == '' or field('filters') == FILTERS
  local secret = SECRET ~= '' and SECRET or field('secret') ~= '' and field('secret') or DEFAULT_SECRET
  if OPERATION == 'define' and URL ~= '' and secret == '' then return {-4} end
  local is_change = OPERATION ~= 'define' or RESET == 1 or not is_the_same
  if holder ~= '' and holder ~= TOKEN and left > 0 and is_change then
    return {is_the_same and 0 or -1, field('holder'), left, field('filters')}
  end
  if field('dropped') ~= '' and RESET ~= 1 then
    return {-3, tonumber(field('dropped')), field('cursor'), field('who')}
  end
  -- A consumer whose lease has ended, and that nobody replaced, must not continue after a reset or with old filters.
  if holder ~= TOKEN and (RESET == 1 or (OPERATION == 'define' and not is_the_same)) then
    call('HDEL', SUBSCRIPTION, 'token', 'holder', 'since', 'until')
  end
  local is_new = field('cursor') == ''
  if is_new then
    if START == '' then return {-2} end
    call('SADD', NAMES, NAME)
    call('HSET', SUBSCRIPTION, 'cursor', START, 'filters', FILTERS, 'seen', int(now), 'made', TOKEN)
  elseif RESET == 1 then
    call('HSET', SUBSCRIPTION, 'cursor', START, 'seen', int(now))
    call('HDEL', SUBSCRIPTION, 'events', 'origins', 'trying', 'attempts', 'due', 'dropped', 'out')
  end
  if OPERATION == 'declare' then
    if RESET == 1 then keep_answer(0) end
    return {1}
  end
  if OPERATION == 'define' then
    call('HSET', SUBSCRIPTION, 'filters', FILTERS, 'max_attempts', ATTEMPTS, 'retry_delay', WAIT_MS)
    if URL == '' then call('HDEL', SUBSCRIPTION, 'url', 'secret')
    else call('HSET', SUBSCRIPTION, 'url', URL, 'secret', secret) end
    return {1, keep_answer(is_new and 1 or 0)}
  end
  if OPERATION == 'take' then
    call('HSET', SUBSCRIPTION, 'filters', FILTERS)
    call('HDEL', SUBSCRIPTION, 'out')
  end
  local since = holder == TOKEN and field('since') or int(now)
  call('HSET', SUBSCRIPTION, 'token', TOKEN, 'holder', WHO, 'since', since,
    'until', int(now + LEASE_MS), 'seen', int(now), 'who', WHO)
  local is_takeover = holder ~= '' and holder ~= TOKEN
  local wait = math.max(0, (tonumber(field('due')) or 0) - now)
  return {
    1, field('cursor'), field('origins'), field('trying'), tonumber(field('attempts')) or 0, wait,
    is_takeover and 1 or 0, call('HLEN', AGAIN), field('events'), field('out'), field('filters'),
    field('max_attempts'), int(now),
  }
end

if OPERATION == 'remove' then -- unless it was removed, and maybe created again, since a client read who `made` it
  if field('made') ~= MADE then return {1} end
  if holder ~= '' and left > 0 then return {0, field('holder'), left} end
  call('SREM', NAMES, NAME)
  call('DEL', SUBSCRIPTION, DEAD, AGAIN)
  return {1}
end

if OPERATION == 'redeliver' or OPERATION == 'drop' then -- the dead letters at these positions
  local earlier, count = earlier_answer(), 0
  if earlier then return {earlier} end
  for i = FIRST, #ARGV do
    local dead_letter = call('HGET', DEAD, ARGV[i])
    if dead_letter then
      if OPERATION == 'redeliver' then call('HSET', AGAIN, ARGV[i], dead_letter) end
      call('HDEL', DEAD, ARGV[i])
      count = count + 1
    end
  end
  return {keep_answer(count)}
end

if OPERATION == 'settle' and TOKEN ~= '' and field('settled') == TOKEN then -- a repeated call: all is settled
  if STATE == 'a' then
    local states = {}
    for _, entry in ipairs(read_out()) do states[entry[1]] = entry[4] end
    for i = FIRST, #ARGV do
      local state = states[ARGV[i]]
      local is_taken_back = state == 'w' or state == 'o'
      if is_taken_back or not state and not is_passed(ARGV[i]) then return {-1, ARGV[i]} end
    end
  end
  return {1, 0}
end

if holder == '' or holder ~= TOKEN then return {0} end

if OPERATION == 'keep' then
  move_on()
  if LEASE_MS > 0 then call('HSET', SUBSCRIPTION, 'until', int(now + LEASE_MS)) end
  call('HSET', SUBSCRIPTION, 'origins', ORIGINS, 'seen', int(now))
  return {1, call('HLEN', AGAIN)}
elseif OPERATION == 'note' then
  call('HSET', SUBSCRIPTION, 'trying', POSITION, 'attempts', ATTEMPTS, 'due', int(now + WAIT_MS))
elseif OPERATION == 'done' then
  forget_failures(POSITION)
elseif OPERATION == 'set aside' then
  call('HSET', DEAD, POSITION, DEAD_LETTER)
  forget_failures(POSITION)
  move_on()
elseif OPERATION == 'hand out' then
  move_on()
  call('HSET', SUBSCRIPTION, 'out', OUT, 'until', int(now + LEASE_MS), 'origins', ORIGINS, 'seen', int(now))
  keep_out(read_out())
elseif OPERATION == 'settle' then -- acks or takes back events of a pulling client: all of these, or none
  local entries, by_position, count = read_out(), {}, 0
  for _, entry in ipairs(entries) do by_position[entry[1]] = entry end
  for i = FIRST, #ARGV do
    local entry = by_position[ARGV[i]]
    local is_settled = entry and entry[4] == STATE or STATE == 'a' and not entry and is_passed(ARGV[i])
    if not is_settled and not (entry and entry[4] == 'o') then return {-1, ARGV[i]} end
  end
  for i = FIRST, #ARGV do
    local entry = by_position[ARGV[i]]
    if entry and entry[4] == 'o' then
      entry[4], count = STATE, count + 1
      if STATE == 'w' then entry[5], entry[6] = entry[5] + ATTEMPTS, int(now + WAIT_MS) end
      if STATE == 'a' then forget_failures(entry[1]) end
      if DEAD_LETTER ~= '' then call('HSET', DEAD, entry[1], DEAD_LETTER) end
    end
  end
  while entries[1] and entries[1][4] == 'a' do
    local entry = table.remove(entries, 1)
    if entry[3] == '0' then pass(entry[1], entry[2]) end
  end
  call('HSET', SUBSCRIPTION, 'seen', int(now))
  keep_out(entries)
  return {1, count}
elseif OPERATION == 'leave' then
  call('HDEL', SUBSCRIPTION, 'token', 'holder', 'since', 'until')
  call('HSET', SUBSCRIPTION, 'seen', int(now))
end
return {1}
