-- Picking: the subject to claim, or why there is none. Heads are read as text here: a page may have many.

local pick

function pick(...) -- see `change` for why it is created on first use
  local MAX_EXAMINED = 5000 -- open observations examined, so that no other client waits long

  -- Whether this worker held it before a restart: the owner token is its own, and nothing has happened to it since.

  local function is_left(holder, last, own)
    if owner_of(holder) ~= OWNER then return false end
    local last_ms, last_seq = match(last, @STREAM_ID@)
    local ms, seq = match(own, @STREAM_ID@)
    return tonumber(last_ms) <= tonumber(ms) and tonumber(last_seq) <= tonumber(seq)
  end

  function pick(types, tags, min_priority, below, own)
    local wanted, soonest, examined = {}, 0, 0
    for tag in string.gmatch(tags, '[^,]+') do wanted[#wanted + 1] = ',' .. tag .. ',' end
    while examined < MAX_EXAMINED do
      local ids = call('ZREVRANGEBYSCORE', OPEN, below == '' and '+inf' or '(' .. below, '-inf', 'LIMIT', 0,
        examined == 0 and 10 or 250)
      if #ids == 0 then return nil, {'idle', now, soonest, '', -1} end
      examined = examined + #ids
      local priority, added
      for i, row in ipairs(call('HMGET', HEADS, unpack(ids))) do
        local status, type, expires, holder, till, last, not_before, marked
        status, type, priority, added, expires, holder, till, last, not_before, marked =
          match(row or '', @HEAD(status, type, priority, added, expires, holder, until, position, not_before, tags)@)
        local fits = status and status ~= 'pending_review' and (types == '' or find(types, ',' .. type .. ',', 1, true))
          and (expires == '0' or tonumber(expires) > now)
        for _, tag in ipairs(wanted) do fits = fits and find(marked, tag, 1, true) end
        local blocking, ends
        if fits then blocking, ends = blocker(marked) end
        if blocking and ends ~= '0' and (soonest == 0 or tonumber(ends) < soonest) then soonest = tonumber(ends) end
        if fits and not blocking then
          local free = math.max(holder ~= '' and not is_left(holder, last, own) and tonumber(till) or 0, tonumber(not_before) or 0)
          if free <= now then
            if tonumber(priority) < min_priority then return nil, {'idle', now, soonest, '', tonumber(priority)} end
            return ids[i]
          end
          if soonest == 0 or free < soonest then soonest = free end
        end
      end
      below = priority and int(tonumber(priority) * @SPAN@ + tonumber(added)) or call('ZSCORE', OPEN, ids[#ids])
    end
    return nil, {'idle', now, soonest, below, -1}
  end

  return pick(...)
end
