-- A retry is recognised before anything is judged.

local function known_ids()
  local today, found, seen, own, given = math.floor(now / DAY), {}, 0, 0, {}
  for k = 1, count do
    local at = start(k)
    local id, digest = ARGV[at], ARGV[at + @DIGEST@]
    if given[id] then return nil, {0, k, 'id', id} end
    given[id] = true
    if digest ~= '' then
      own = own + 1
      for day = today, today - DAYS, -1 do
        local row = call('HGET', IDS .. int(day), id)
        if row then
          local before, position = match(row, '^(%w+)|(.*)$')
          if before ~= digest then return nil, {0, k, 'id', id} end
          seen = seen + 1
          found[k] = position
          break
        end
      end
    end
  end
  if seen == 0 then return nil end
  if seen < own then
    for k = 1, count do
      if found[k] then return nil, {0, k, 'id', ARGV[start(k)]} end
    end
  end
  return found
end

local function scan_ids()
  local wanted, found, missing, from = {}, {}, count, SCAN
  for k = 1, count do wanted[ARGV[start(k)]] = k end
  while missing > 0 do
    local entries = call('XRANGE', LOG, '(' .. from, '+', 'COUNT', 256)
    if #entries == 0 then break end
    for _, entry in ipairs(entries) do
      local fields = entry[2]
      for f = 1, #fields, 2 do
        local k = fields[f] == 'id' and wanted[fields[f + 1]]
        if k and not found[k] then
          found[k] = entry[1]
          missing = missing - 1
        end
      end
      from = entry[1]
    end
  end
  if missing < count then return found end
end

-- What is sent again under an id of our own making is remembered for an hour, longer than a network holds on to what it
-- delays: should the request before it arrive after all, it changes nothing.

local function is_late()
  local retried = IDS .. 'retried'
  if SCAN == '' and call('EXISTS', retried) == 0 then return false end
  for at = FIRST, #ARGV, WIDTH do
    if ARGV[at + @DIGEST@] == '' then
      if SCAN == '' then
        if call('SISMEMBER', retried, ARGV[at]) == 1 then return true end
      else
        call('SADD', retried, ARGV[at])
        call('PEXPIRE', retried, 3600000)
      end
    end
  end
  return false
end

if is_late() then return {0, 1, 'late'} end
local found, reused = known_ids()
if reused then return reused end
if not found and SCAN ~= '' then found = scan_ids() end
if found then
  call('SET', TAIL, tail) -- so that a WAIT after this reply vouches for what is here
  local reply = {2}
  for k = 1, count do reply[k + 1] = found[k] or '' end
  return reply
end
