-- A retry is recognised before any guard is checked. An event id belongs to its writer: the same id from another
-- writer is another event. `who` is the writer, as JSON.

local function digest_of(at)
  if ARGV[at + @DIGEST@] ~= '' then return match(ARGV[at + @DIGEST@], '^(%w+) (.*)$') end
end

local function remember(bucket, at, position)
  local digest, who = digest_of(at)
  return call('HSET', bucket, ARGV[at] .. ' ' .. who, @KNOWN_ID_TEXT(digest, position)@)
end

local retried = IDS .. 'retried'
local is_retried = call('EXISTS', retried) == 1
local erased_ids = IDS .. 'erased'

-- The reply for events that are already in the log, or whose ids are refused; else nil.

local function recall_all()
  local function is_by(entry, who)
    local body = field_of(entry, 'event')
    if not body then return false end
    local is_json, event = pcall(cjson.decode, body)
    if not is_json then return find(body, '"by":' .. who, 1, true) ~= nil end -- nested too deep for cjson
    return event.by == cjson.decode('[' .. who .. ']')[1]
  end

  -- Older versions remembered ids without their writer; only the event names it.

  local function recall(day, id, who)
    local rows = call('HMGET', IDS .. int(day), id .. ' ' .. who, id)
    if rows[1] or not rows[2] then return rows[1] end
    local position = match(rows[2], @KNOWN_ID(stream_id)@)
    local entry = call('XRANGE', LOG, position, position)[1]
    return (not entry or is_by(entry, who)) and rows[2]
  end

  local function known_ids()
    local today, found, given = math.floor(now / @DAY@), {}, {}
    for k = 1, count do
      local at = start(k)
      local id = ARGV[at]
      local digest, who = digest_of(at)
      if given[id] then return nil, {'refused', k, 'id', id} end
      given[id] = true
      if digest then
        for day = today, today - DAYS, -1 do
          local row = recall(day, id, who)
          if row then
            local before, position = match(row, @KNOWN_ID@)
            if before ~= digest then return nil, {'refused', k, 'id', id} end
            found[k] = position
            break
          end
        end
      end
    end
    if next(found) then return found end
  end

  -- In a batch, some events may have remembered ids and others generated ones.

  local function scan_ids(found)
    local wanted, missing, from = {}, 0, SCAN
    for k = 1, count do
      if not found[k] then
        wanted[ARGV[start(k)]] = k
        missing = missing + 1
      end
    end
    while missing > 0 do
      local entries = call('XRANGE', LOG, '(' .. from, END, 'COUNT', 256)
      if #entries == 0 then break end
      for _, entry in ipairs(entries) do
        local k = wanted[field_of(entry, 'id')]
        if k and not found[k] then
          local _, who = digest_of(start(k))
          if not who or is_by(entry, who) then
            found[k] = entry[1]
            missing = missing - 1
          end
        end
        from = entry[1]
      end
    end
    if missing < count then return found end
  end

  -- The refusal of a batch of which some events are known, while others under a caller's id are new; nil if it is not.

  local function refuse_part(found)
    local known, new
    for k = count, 1, -1 do
      if found[k] then known = k elseif digest_of(start(k)) then new = k end
    end
    if known and new then return {'refused', known, 'part', ARGV[start(known)], ARGV[start(new)]} end
  end

  -- Remember the ids of retries for an hour, longer than a network delays a packet: if the first request, under a
  -- generated id, arrives after all, it changes nothing.

  local function is_late()
    if SCAN == '' and not is_retried then return false end
    for at = FIRST, #ARGV, WIDTH do
      if SCAN ~= '' then
        call('SADD', retried, ARGV[at])
        call('PEXPIRE', retried, 3600000)
      elseif ARGV[at + @DIGEST@] == '' and call('SISMEMBER', retried, ARGV[at]) == 1 then
        return true
      end
    end
    return false
  end

  if is_late() then return {'refused', 1, 'late'} end
  local found, reused = known_ids()
  if reused then return reused end
  if SCAN ~= '' then found = scan_ids(found or {}) end
  if SCAN ~= '' or ARGV[FIRST + @DIGEST@] ~= '' then
    for k = 1, count do
      if not (found and found[k]) and call('SISMEMBER', erased_ids, ARGV[start(k)]) == 1 then
        return {'refused', k, 'erased'}
      end
    end
  end
  if found then
    local part = refuse_part(found)
    if part then return part end
    call('SET', TAIL, tail) -- so that a WAIT after this reply covers these events
    local reply = {'known'}
    for k = 1, count do reply[k + 1] = found[k] or '' end
    return reply
  end
end

if SCAN ~= '' or is_retried or count > 1 or ARGV[FIRST + @DIGEST@] ~= '' then
  local reply = recall_all()
  if reply then return reply end
end
