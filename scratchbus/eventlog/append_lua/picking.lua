-- Picking: the subject to claim, or why there is none. Heads are read as text here: a page may have many.

local pick, hint -- the hint for the next pick with these types and tags

function pick(...) -- see `change` for why it is created on first use
  local MAX_EXAMINED = 5000 -- open observations examined, so that no other client waits long
  local STEP = 250 -- heads read at once
  local MAX_EVENTS, CHUNK = 50, 10 -- the most events that a hint may be old, and how many of them are read at once

  -- Whether this worker held it before a restart: the owner token is its own, and nothing has happened to it since.

  local function is_left(holder, last, own)
    if owner_of(holder) ~= OWNER then return false end
    local last_ms, last_seq = match(last, @STREAM_ID@)
    local ms, seq = match(own, @STREAM_ID@)
    return tonumber(last_ms) <= tonumber(ms) and tonumber(last_seq) <= tonumber(seq)
  end

  -- Returns the subjects of the page that have changed since an event; nil if that is long ago, or if the log does not
  -- have this event, or not all after it.

  local function changed_since(id, event_id)
    local missing, subjects = seq_of(END) - seq_of(id), {}
    if missing < 0 or missing > MAX_EVENTS then return end
    local first = call('XRANGE', LOG, id, id)[1]
    if not first or field_of(first, 'id') ~= event_id then return end
    while missing > 0 do
      local entries = call('XRANGE', LOG, '(' .. id, END, 'COUNT', CHUNK)
      if #entries == 0 then return end
      for _, entry in ipairs(entries) do
        if field_of(entry, 'page') == PAGE then subjects[field_of(entry, 'subject')] = true end
        id = entry[1]
      end
      missing = missing - #entries
    end
    return subjects
  end

  -- A hint says that at an event, and at a time, none of the wanted observations from a score upwards was free, and when
  -- the first of them may be. Only those that have changed since then are examined again. There is no hint if one of
  -- them was blocked, since an event of another one may free it. The event must be in the log, with all that the hint rests
  -- on before it: a failover may have lost a claim. So its id must be generated: a writer may send one of its own again.

  function pick(types, tags, min_priority, below, own, given)
    local since, seen_at, top, until_ms, event_id = match(given, '^([^:]+):(%d+):(%d+):(%d+):(.*)$')
    local wanted, soonest, examined, may_change = {}, tonumber(until_ms) or 0, 0, false
    hint = ''
    for tag in string.gmatch(tags, '[^,]+') do wanted[#wanted + 1] = ',' .. tag .. ',' end

    -- Returns whether an observation is free, its priority and its score, by its head.

    local function examine(id, row)
      local status, type, priority, added, expires, holder, till, last, not_before, marked =
        match(row or '', @HEAD(status, type, priority, added, expires, holder, until, position, not_before, tags)@)
      if not status then return false end
      local fits = status ~= 'pending_review' and (types == '' or find(types, ',' .. type .. ',', 1, true))
      for _, tag in ipairs(wanted) do fits = fits and find(marked, tag, 1, true) end
      priority = tonumber(priority)
      local score = priority * @SPAN@ + tonumber(added)
      if not fits then return false, priority, score end
      if expires ~= '0' and tonumber(expires) <= now then return false, priority, score end
      local blocking, free = blocker(marked)
      if blocking then
        may_change, free = may_change or blocking ~= id, tonumber(free)
      else
        free = math.max(holder ~= '' and not is_left(holder, last, own) and tonumber(till) or 0, tonumber(not_before) or 0)
        if free <= now then return true, priority, score end
      end
      if free ~= 0 and (soonest == 0 or free < soonest) then soonest = free end
      return false, priority, score
    end

    local function hint_from(score)
      if since and find(event_id, '~%x+%-%x+') and not may_change and (given ~= '' or examined > STEP) then
        hint = since .. ':' .. NOW .. ':' .. int(score) .. ':' .. int(soonest) .. ':' .. event_id
      end
      return hint
    end

    local end_id, end_event_id = match(tail or '', @LAST(stream_id, event_id)@)
    if below == '' then
      local is_timely = since and now >= tonumber(seen_at) and (soonest == 0 or soonest > now)
      local changed = is_timely and changed_since(since, event_id)
      if changed then
        local best, best_priority, highest, lowest = nil, nil, -1, tonumber(top)
        for subject in pairs(changed) do
          local score = tonumber(call('ZSCORE', OPEN, subject) or -1)
          if score >= lowest then
            local is_free, priority = examine(subject, call('HGET', HEADS, subject))
            if is_free and score > highest then best, best_priority, highest = subject, priority, score end
          end
        end
        if best then
          hint = given -- others of them may be free too
          if best_priority < min_priority then return nil, {'idle', now, soonest, '', best_priority, hint} end
          return best
        end
        below = top
      else
        soonest, given = 0, ''
      end
      since, event_id = end_id, end_event_id
    elseif since ~= end_id or event_id ~= end_event_id or now < tonumber(seen_at) then
      since, soonest, given = nil, 0, '' -- the first part of this walk saw another state
    end
    while examined < MAX_EXAMINED do
      local ids = call('ZREVRANGEBYSCORE', OPEN, below == '' and '+inf' or '(' .. below, '-inf', 'LIMIT', 0,
        examined == 0 and 10 or STEP)
      if #ids == 0 then return nil, {'idle', now, soonest, '', -1, hint_from(0)} end
      local last_score
      for i, row in ipairs(call('HMGET', HEADS, unpack(ids))) do
        examined = examined + 1
        local is_free, priority, score = examine(ids[i], row)
        last_score = score
        if is_free then
          if priority < min_priority then return nil, {'idle', now, soonest, '', priority, hint_from(score + 1)} end
          hint_from(score + 1) -- the log may lose this claim
          return ids[i]
        end
      end
      below = last_score and int(last_score) or call('ZSCORE', OPEN, ids[#ids])
    end
    return nil, {'idle', now, soonest, below, -1, hint_from(below)}
  end

  return pick(...)
end
