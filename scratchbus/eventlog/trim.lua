-- Removes archived entries from the log, under the archiver's lease.
--
-- Reply: {0, who} another is at work; {1, …} done, for "take" the time (ms); {-1, why} the log or the floor differs
--
-- The lease ends only when its holder releases it or another archiver takes it: so a late archiver finds out whether
-- another one was there meanwhile.

local call, match = redis.call, string.match

local holder, till, who = match(call('GET', ARCHIVER) or '', @HOLD@)
if holder ~= TOKEN and (OPERATION ~= 'take' or (holder and tonumber(till) > now)) then
  local latest = now + math.max(LEASE_MS, @LONGEST_LEASE@)
  if OPERATION == 'take' and tonumber(till) > latest then -- the clock was set back; a holder at work renews its lease
    till = int(latest)
    call('SET', ARCHIVER, @HOLD_TEXT(holder, till, who)@)
  end
  return {0, who or ''}
end
if OPERATION == 'leave' then
  call('DEL', ARCHIVER)
  return {1}
end
if OPERATION == 'take' then who = WHO end
till = int(now + LEASE_MS)
call('SET', ARCHIVER, @HOLD_TEXT(TOKEN, till, who)@)
if OPERATION == 'take' then return {1, now} end

if OPERATION == 'floor' then -- everything up to STREAM_ID and EVENT_ID is archived
  local at = seq_of(STREAM_ID)
  if call('GET', ORIGIN) ~= LOG_ORIGIN then return {-1, 'origin'} end
  if at <= seq_of(call('GET', FLOOR)) then return {1} end
  local entry = call('XRANGE', LOG, STREAM_ID, STREAM_ID)[1]
  local is_erased = not entry and call('ZSCORE', @PREFIX(LOG)@ .. @KEY(erased)@, int(at))
  if not is_erased and (not entry or field_of(entry, 'id') ~= EVENT_ID) then return {-1, 'event'} end
  if at > seq_of(call('GET', CHECKPOINT)) then return {-1, 'checkpoint'} end
  if at >= seq_of(call('GET', TAIL)) then return {-1, 'tail'} end
  call('SET', FLOOR, @LAST_TEXT(STREAM_ID, EVENT_ID)@)
elseif OPERATION == 'cut' then -- removes positions below the floor from the history indexes at these keys
  local floor = seq_of(call('GET', FLOOR))
  for k = FIRST, #ARGV do
    local low = first_behind(0, math.floor(call('STRLEN', ARGV[k]) / POSITION_WIDTH), function(at)
      local row = call('GETRANGE', ARGV[k], at * POSITION_WIDTH, (at + 1) * POSITION_WIDTH - 1)
      return number_at(row, 9) > floor
    end)
    local remaining = low > 0 and call('GETRANGE', ARGV[k], low * POSITION_WIDTH, -1)
    if remaining == '' then call('DEL', ARGV[k]) elseif remaining then call('SET', ARGV[k], remaining) end
  end
elseif OPERATION == 'heads' or OPERATION == 'over' then -- drops the heads of these subjects that are final, and below
  -- the floor; or, if a session is over, those below the event that ended it, which has the seq SESSION_END
  local floor, dropped = seq_of(call('GET', FLOOR)), {}
  if SESSION_END > floor then return {-1, 'floor'} end
  for i, head in ipairs(call('HMGET', HEADS, unpack(ARGV, FIRST))) do
    local class, at = match(head or '', @HEAD(status_class, position)@)
    local is_dropped = class == 'f' and seq_of(at) <= floor
    if OPERATION == 'over' then is_dropped = at and seq_of(at) < SESSION_END end
    if is_dropped then dropped[#dropped + 1] = ARGV[FIRST + i - 1] end
  end
  if #dropped > 0 then call('HDEL', HEADS, unpack(dropped)) end
elseif OPERATION == 'copy' then -- keeps an entry that is still needed
  local entry = call('XRANGE', LOG, STREAM_ID, STREAM_ID)[1]
  if entry and #call('XRANGE', KEPT, STREAM_ID, '+', 'COUNT', 1) == 0 then
    call('XADD', KEPT, STREAM_ID, unpack(entry[2]))
  end
elseif OPERATION == 'trim' then -- removes the entries up to STREAM_ID, which is not above the floor
  local ms, seq = match(STREAM_ID, @STREAM_ID@)
  if tonumber(seq) > seq_of(call('GET', FLOOR)) then return {-1, 'floor'} end
  return {1, call('XTRIM', LOG, 'MINID', ms .. '-' .. int(tonumber(seq) + 1))}
end
return {1}
