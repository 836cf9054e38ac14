-- Picking: the subject to claim, or why there is none. Heads are read as text here: a page may have many.

local pick, hint -- the hint for the next pick with these types and tags

function pick(...) -- see `change` for why it is created on first use
  local MAX_EXAMINED = 5000 -- open observations examined, so that no other client waits long
  local STEP = 250 -- heads read at once, and the most events that a hint may be old

  -- Whether this worker held it before a restart: the owner token is its own, and nothing has happened to it since.

  local function is_left(holder, last, own)
    if owner_of(holder) ~= OWNER then return false end
    local last_ms, last_seq = match(last, @STREAM_ID@)
    local ms, seq = match(own, @STREAM_ID@)
    return tonumber(last_ms) <= tonumber(ms) and tonumber(last_seq) <= tonumber(seq)
  end

  -- Returns the subjects of the page that have changed since an event; nil if that is not known, or long ago.

  local function changed_since(id, event_id)
    local entries = call('XRANGE', LOG, id, END, 'COUNT', STEP + 1)
    if not entries[1] or entries[1][1] ~= id or field_of(entries[1], 'id') ~= event_id then return end
    if #entries - 1 ~= seq_of(END) - seq_of(id) then return end
    local subjects = {}
    for i = 2, #entries do
      if field_of(entries[i], 'page') == PAGE then subjects[field_of(entries[i], 'subject')] = true end
    end
    return subjects
  end

  -- A hint says that at an event none of the wanted observations from a score upwards was free, nor blocked, and when
  -- the first of them may be. Only those that have changed since then are examined again.

  function pick(types, tags, min_priority, below, own, given)
    local since, top, until_ms, event_id = match(given, '^([^:]+):(%d+):(%d+):(.*)$')
    local wanted, soonest, examined, has_blocked = {}, tonumber(until_ms) or 0, 0, false
    hint = ''
    for tag in string.gmatch(tags, '[^,]+') do wanted[#wanted + 1] = ',' .. tag .. ',' end

    -- Returns whether an observation is free, its priority and its score, by its head.

    local function examine(id, row)
      local status, type, priority, added, expires, holder, till, last, not_before, marked =
        match(row or '', @HEAD(status, type, priority, added, expires, holder, until, position, not_before, tags)@)
      if not status then return false end
      local fits = status ~= 'pending_review' and (types == '' or find(types, ',' .. type .. ',', 1, true))
        and (expires == '0' or tonumber(expires) > now)
      for _, tag in ipairs(wanted) do fits = fits and find(marked, tag, 1, true) end
      priority = tonumber(priority)
      local score = priority * @SPAN@ + tonumber(added)
      if not fits then return false, priority, score end
      local blocking, free = blocker(marked)
      if blocking then
        has_blocked, free = has_blocked or blocking ~= id, tonumber(free)
      else
        free = math.max(holder ~= '' and not is_left(holder, last, own) and tonumber(till) or 0, tonumber(not_before) or 0)
        if free <= now then return true, priority, score end
      end
      if free ~= 0 and (soonest == 0 or free < soonest) then soonest = free end
      return false, priority, score
    end

    local function hint_from(score)
      if since and not has_blocked and (given ~= '' or examined > STEP) then
        hint = since .. ':' .. int(score) .. ':' .. int(soonest) .. ':' .. event_id
      end
      return hint
    end

    if below == '' then
      local changed = since and (soonest == 0 or soonest > now) and changed_since(since, event_id)
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
        soonest, has_blocked, given = 0, false, ''
      end
      since, event_id = match(tail or '', @LAST(stream_id, event_id)@)
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
          hint_from(score)
          return ids[i]
        end
      end
      below = last_score and int(last_score) or call('ZSCORE', OPEN, ids[#ids])
    end
    return nil, {'idle', now, soonest, below, -1, hint_from(below)}
  end

  return pick(...)
end
