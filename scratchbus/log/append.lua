-- The only writer of the log: checks a whole batch first, then writes all of it.
--
-- KEYS  1 log  2 tail  3 origin  4 pages  5 due (read only)  6 heads  7 open  8 dedupe keys  (9: prefix of the id hashes)
-- ARGV  1 mode: "all" (all or nothing) or "each" (skip what is refused)      2 page
--       3 room (0: no limit)    4 what to do when full: "displace" or "refuse"
--       5 days that callers' event ids are remembered    6 scan the log after this id for a lost reply ("" not)
--       7 a random word for the origin of a new log      8 who asks: the `by` of what the script has to add itself
--       9 … events, each of 16 fields:
--         id, digest ("" when the id is not the caller's), subject, kind, type ("" as it is), body,
--         op, version ("new", "" any, or a number), allowed statuses (",a,b," or "" any),
--         status and class (o, c, f; both "" as they are), priority (of what is added),
--         expires, wake ("" as they are, "0" never, "+ms" from now, or ms), argument, fence
--
-- op says how the event is guarded; `argument` belongs to it:
--   a  add: takes room and, when `argument` is not "", that dedupe key: "<length of the body of repeated>:<body><key>"
--   u  change: not when final, nor while someone else than `argument` holds a live claim
--   s  change of status, guarded like u
--   x  change of status by time or refutation: no claim stops it, and a passed expiry neither
--   n  a note on it: no guard but existence      d  off the page: like n, and it leaves for good
--   c  claim: `argument` is "<ttl ms>:<holder>"      e  end a claim: held by `argument`      l  lapse of `fence`
--   g  a versioned subject without lifecycle
--
-- Reply: {1, ms, then per event: seq, version, kind, subject, fence}      written; seq 0: skipped, kind says why
--        {3, ms, first seq}                                              written, as they came: all of them new
--        {2, stream id, …}                                               all events were here before
--        {0, index, reason, …}                                           refused, nothing was written; nobody waits for
--                                                                        the answer when the reason is "late"

local LOG, TAIL, ORIGIN, PAGES, DUE, HEADS, OPEN, DEDUPE, IDS =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local MODE, PAGE, ROOM, FULL, DAYS, SCAN = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5]), ARGV[6]
local FIRST, WIDTH, DAY = 9, 16, 86400000
local SPAN = 70368744177664 -- 2^46: an open score is priority * SPAN + seq of the event that added it
local call, format, match, find, sub = redis.call, string.format, string.match, string.find, string.sub
local count = (#ARGV - FIRST + 1) / WIDTH

local time = call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local last_seq = 0
local tail = call('GET', TAIL)
if tail then
  local last_ms, seq = match(tail, '^(%d+)-(%d+)')
  last_seq = tonumber(seq)
  if tonumber(last_ms) > now then now = tonumber(last_ms) end
end
local MS = format('%.0f', now)

-- New observations with nothing in their way are by far the most frequent append. They are written at once, without
-- what the rest of this script sets up; what is written is the same.

local function are_plain()
  local seen, size = {}, call('ZCARD', OPEN)
  if SCAN ~= '' or (ROOM > 0 and size + count > ROOM) then return false end
  local subjects = {}
  for k = 1, count do
    local at = FIRST + (k - 1) * WIDTH
    local id, subject = ARGV[at], ARGV[at + 2]
    if ARGV[at + 6] ~= 'a' or ARGV[at + 1] ~= '' or ARGV[at + 14] ~= '' or ARGV[at + 15] ~= '' or seen[subject]
      or seen[id] then
      return false
    end
    seen[subject], seen[id] = true, true
    subjects[k] = subject
  end
  for _, head in ipairs(call('HMGET', HEADS, unpack(subjects))) do
    if head then return false end
  end
  return true
end

local function moment(text)
  if text == '' then return '0' end
  if sub(text, 1, 1) == '+' then return format('%.0f', now + tonumber(sub(text, 2))) end
  return text
end

-- PAGES holds, for each page, a moment before which nothing open on it expires; so a full page is seldom searched.

local stored = call('HGET', PAGES, PAGE)
local soonest = stored

local function note_expiry(ms)
  if not soonest then soonest = '9007199254740991' end
  if ms ~= '0' and tonumber(ms) < tonumber(soonest) then soonest = ms end
end

if are_plain() then
  local rows, scores, pos = {}, {}, nil
  if not tail then call('SET', ORIGIN, ARGV[7] .. '.' .. time[1] .. '.' .. time[2]) end
  for k = 1, count do
    local at, seq = FIRST + (k - 1) * WIDTH, last_seq + k
    local subject, kind, type, priority, added = ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 11], format('%.0f', seq)
    pos = MS .. '-' .. added
    call('XADD', LOG, pos, 'id', ARGV[at], 'subject', subject, 'page', PAGE, 'kind', kind, 'type', type,
      'batch', k .. '/' .. count, 'prev', '', 'event', ARGV[at + 5])
    local row, expires = #rows, moment(ARGV[at + 12])
    note_expiry(expires)
    rows[row + 1] = subject
    rows[row + 2] = '1|' .. ARGV[at + 9] .. '|' .. ARGV[at + 10] .. '|' .. type .. '|' .. priority .. '|' .. added .. '|'
      .. expires .. '|' .. moment(ARGV[at + 13]) .. '|0||0|' .. pos .. '|'
    scores[row + 1] = format('%.0f', tonumber(priority) * SPAN + seq)
    scores[row + 2] = subject
  end
  call('SET', TAIL, pos .. '|' .. ARGV[FIRST + (count - 1) * WIDTH])
  for from = 1, #rows, 1000 do
    local to = math.min(from + 999, #rows)
    call('HSET', HEADS, unpack(rows, from, to))
    call('ZADD', OPEN, unpack(scores, from, to))
  end
  if soonest ~= stored then call('HSET', PAGES, PAGE, soonest) end
  return {3, now, last_seq + 1}
end

local function int(n) return format('%.0f', n) end

local function own_body(template) return (string.gsub(template, '#by#', ARGV[8], 1)) end

-- A retry is recognised before anything is judged.

local function known_ids()
  local today, found, seen, own, given = math.floor(now / DAY), {}, 0, 0, {}
  for k = 1, count do
    local at = FIRST + (k - 1) * WIDTH
    local id, digest = ARGV[at], ARGV[at + 1]
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
      if found[k] then return nil, {0, k, 'id', ARGV[FIRST + (k - 1) * WIDTH]} end
    end
  end
  return found
end

local function scan_ids()
  local wanted, found, missing, from = {}, {}, count, SCAN
  for k = 1, count do wanted[ARGV[FIRST + (k - 1) * WIDTH]] = k end
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
    if ARGV[at + 1] == '' then
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

-- Heads, as this batch leaves them. What was read as digits stays text until it is compared: printing numbers is slow.

local heads, touched = {}, {}

local function load_head(subject)
  local head = heads[subject]
  if head == nil then
    local row = call('HGET', HEADS, subject)
    head = false
    if row then
      local version, status, class, type, priority, added, expires, wake, fence, holder, till, pos, key =
        match(row, '^(%d+)|([^|]*)|(%a)|([^|]*)|(%d+)|(%d+)|(%d+)|(%d+)|(%d+)|([^|]*)|(%d+)|([^|]*)|(.*)$')
      head = {
        version = tonumber(version), status = status, class = class, type = type, priority = priority, added = added,
        expires = expires, wake = wake, fence = fence, holder = holder, till = till, pos = pos, key = key,
      }
    end
    heads[subject] = head
  end
  return head
end

local function has_expired(head) return head.class == 'o' and head.expires ~= '0' and tonumber(head.expires) <= now end
local function is_held(head) return head.holder ~= '' and tonumber(head.till) > now end

local function later(text, current)
  if text == '' then return current end
  if sub(text, 1, 1) == '+' then return int(now + tonumber(sub(text, 2))) end
  return text
end

-- The open set and the keys, as this batch leaves them.

local size, entered, left, keys, rekeyed, mine = nil, {}, {}, {}, {}, nil

local function open_size()
  if size == nil then size = call('ZCARD', OPEN) end
  return size
end

local function key_of(argument)
  local length, rest = match(argument, '^(%d+):(.*)$')
  if length then return sub(rest, length + 1), sub(rest, 1, length) end
end

local function key_holder(key)
  local holder = keys[key]
  if holder == nil then
    holder = call('HGET', DEDUPE, key)
    keys[key] = holder
  end
  return holder
end

local plan = {}

local function emit(subject, head, id, kind, body)
  local seq = last_seq + #plan + 1
  local pos = MS .. '-' .. int(seq)
  plan[#plan + 1] = {pos, id, subject, kind, head.type, body, head.pos}
  head.version = head.version + 1
  head.pos = pos
  touched[subject] = head
  return seq
end

local function leave_open(subject, head)
  open_size()
  size = size - 1
  entered[subject] = nil
  left[subject] = true
  if head.key ~= '' then keys[head.key], rekeyed[head.key] = false, true end
  head.holder, head.till = '', '0'
end

local function enter_open(subject, head)
  open_size()
  size = size + 1
  left[subject] = nil
  entered[subject] = int(tonumber(head.priority) * SPAN + tonumber(head.added))
  if head.key ~= '' then keys[head.key], rekeyed[head.key] = subject, true end
end

local function retire(subject, id, body)
  local head = load_head(subject)
  leave_open(subject, head)
  head.status, head.class, head.wake = 'archived', 'f', '0'
  emit(subject, head, id, 'status_changed', body)
end

-- Room: first what has expired gives way, then the lowest and oldest that is not claimed and not of this batch.

-- Of a page with more than 1,000 open ones, those are found that the projection has marked as due.

local function expired_here()
  local out, candidates = {}, {}
  if soonest and tonumber(soonest) > now then return out end
  if size <= 1000 then
    candidates = call('ZRANGE', OPEN, 0, -1)
    soonest = '9007199254740991'
  else
    for _, member in ipairs(call('ZRANGEBYSCORE', DUE, '-inf', MS, 'LIMIT', 0, 1000)) do
      local subject, page = match(member, '^([^@]+)@(.*)$')
      if page == PAGE then candidates[#candidates + 1] = subject end
    end
  end
  for _, subject in ipairs(candidates) do
    local head = load_head(subject)
    if head and not left[subject] then
      if has_expired(head) then
        out[#out + 1] = subject
      elseif size <= 1000 and head.expires ~= '0' and tonumber(head.expires) < tonumber(soonest) then
        soonest = head.expires
      end
    end
  end
  return out
end

local function members()
  local out = {}
  for k = 1, count do
    local at = FIRST + (k - 1) * WIDTH
    out[ARGV[at + 2]] = true
    local key = ARGV[at + 6] == 'a' and key_of(ARGV[at + 14])
    local holder = key and key_holder(key)
    if holder then out[holder] = true end
  end
  return out
end

local function victim(priority)
  local from = 0
  mine = mine or members()
  while true do
    local rows = call('ZRANGE', OPEN, from, from + 63)
    if #rows == 0 then return nil end
    for _, subject in ipairs(rows) do
      if not left[subject] and not mine[subject] then
        local head = load_head(subject)
        if tonumber(head.priority) > priority then return nil end
        if not is_held(head) then return subject end
      end
    end
    from = from + 64
  end
end

local function make_room(priority, id, subject)
  if ROOM == 0 or open_size() < ROOM then return true end
  local n = 0
  for _, old in ipairs(expired_here()) do
    n = n + 1
    retire(old, id .. '.x' .. n, own_body('@EXPIRED@'))
  end
  while size >= ROOM do
    local old = FULL == 'displace' and victim(priority)
    if not old then return false end
    n = n + 1
    retire(old, id .. '.d' .. n, (string.gsub(own_body('@DISPLACED@'), '#new#', subject, 1)))
  end
  return true
end

-- One event: nil when it may happen (and then it has, in the overlay), or why not.

local results = {}

local function judge(k)
  local at = FIRST + (k - 1) * WIDTH
  local id, subject, kind, type, body, op = ARGV[at], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5], ARGV[at + 6]
  local version, allowed, to, class = ARGV[at + 7], ARGV[at + 8], ARGV[at + 9], ARGV[at + 10]
  local priority, expires, wake, argument, fence =
    ARGV[at + 11], ARGV[at + 12], ARGV[at + 13], ARGV[at + 14], ARGV[at + 15]
  local head = load_head(subject)

  if op == 'a' then
    local key = ''
    if argument ~= '' then
      local repeated
      key, repeated = key_of(argument)
      local holder = key_holder(key)
      if holder then
        local held = load_head(holder)
        if has_expired(held) then
          retire(holder, id .. '.k', own_body('@EXPIRED@'))
        else
          if fence ~= '' and not (is_held(held) and held.fence == fence) then
            return {'fence', tonumber(held.fence), holder}
          end
          held.expires = later(expires, held.expires)
          local seq = emit(holder, held, id, 'repeated', repeated)
          results[k] = {seq, held.version, 'repeated', holder, tonumber(held.fence)}
          return nil
        end
      end
    end
    if head then return {'version', 0, head.version} end
    if fence ~= '' then return {'fence', 0, subject} end
    if not make_room(tonumber(priority), id, subject) then return {'full'} end
    head = {
      version = 0, status = to, class = class, type = type, priority = priority, added = int(last_seq + #plan + 1),
      expires = later(expires, '0'), wake = later(wake, '0'), fence = '0', holder = '', till = '0', pos = '', key = key,
    }
    heads[subject] = head
    enter_open(subject, head)
    local seq = emit(subject, head, id, kind, body)
    results[k] = {seq, 1, kind, subject, 0}
    return nil
  end

  if op == 'g' then
    if version == 'new' then
      if head then return {'version', 0, head.version} end
    elseif version ~= '' and tonumber(version) ~= (head and head.version or 0) then
      return {'version', tonumber(version), head and head.version or 0}
    end
    if not head then
      head = {
        version = 0, status = 'active', class = 'c', type = type, priority = '0', added = int(last_seq + #plan + 1),
        expires = '0', wake = '0', fence = '0', holder = '', till = '0', pos = '', key = '',
      }
      heads[subject] = head
    end
    local seq = emit(subject, head, id, kind, body)
    results[k] = {seq, head.version, kind, subject, 0}
    return nil
  end

  if not head or head.status == 'cleared' then return {'missing'} end
  if version ~= '' and tonumber(version) ~= head.version then return {'version', tonumber(version), head.version} end
  local status, expired, held = head.status, has_expired(head), is_held(head)
  if expired and op ~= 'x' and op ~= 'n' then status = 'archived' end
  local final = status == 'archived'
  if fence ~= '' and op ~= 'l' and not (held and head.fence == fence) then
    return {'fence', tonumber(head.fence), subject}
  end
  if allowed ~= '' and not find(allowed, ',' .. status .. ',', 1, true) then return {'status', status, head.type} end

  if op == 'u' or op == 's' then
    if final or head.class == 'f' then return {'status', status, head.type} end
    if held and fence == '' and head.holder ~= argument then return {'claimed', head.holder, tonumber(head.till)} end
  elseif op == 'c' then
    if head.class ~= 'o' or expired then return {'status', status, head.type} end
    local ttl, holder = match(argument, '^(%d+):(.*)$')
    if held then
      if fence == '' or head.holder ~= holder then return {'claimed', head.holder, tonumber(head.till)} end
    else
      if head.holder ~= '' then emit(subject, head, id .. '.l', 'lapsed', own_body('@LAPSED@')) end
      head.fence = int(tonumber(head.fence) + 1)
    end
    head.holder, head.till = holder, int(now + tonumber(ttl))
  elseif op == 'e' then
    if not held then return {'unheld'} end
    if fence == '' and head.holder ~= argument then return {'claimed', head.holder, tonumber(head.till)} end
    head.holder, head.till = '', '0'
  elseif op == 'l' then
    if head.holder == '' or held or head.fence ~= fence then return {'fence', tonumber(head.fence), subject} end
    head.holder, head.till = '', '0'
  end

  if to ~= '' then
    if head.class ~= 'o' and class == 'o' then
      if head.key ~= '' and key_holder(head.key) then
        local holder = key_holder(head.key)
        if not has_expired(load_head(holder)) then return {'key', head.key, holder} end
        retire(holder, id .. '.k', own_body('@EXPIRED@'))
      end
      if not make_room(tonumber(head.priority), id, subject) then return {'full'} end
      enter_open(subject, head)
    elseif head.class == 'o' and class ~= 'o' then
      leave_open(subject, head)
    end
    if head.class ~= class or class ~= 'o' then head.wake = '0' end
    head.status, head.class = to, class
  end
  if op == 'd' then
    if head.class == 'o' then leave_open(subject, head) end
    head.status, head.class, head.wake = 'cleared', 'f', '0'
  end
  head.expires, head.wake = later(expires, head.expires), later(wake, head.wake)
  local seq = emit(subject, head, id, kind, body)
  results[k] = {seq, head.version, kind, subject, tonumber(head.fence)}
  return nil
end

local skipped = 0
for k = 1, count do
  local why = judge(k)
  if why then
    if MODE == 'all' then
      local reply = {0, k, unpack(why)}
      return reply
    end
    results[k] = {0, 0, why[1], ARGV[FIRST + (k - 1) * WIDTH + 2], 0}
  end
end

-- Everything is checked: write.

local total = #plan
if total > 0 then
  if not tail then call('SET', ORIGIN, ARGV[7] .. '.' .. time[1] .. '.' .. time[2]) end
  local batches = MODE == 'all'
  for i, e in ipairs(plan) do
    call('XADD', LOG, e[1], 'id', e[2], 'subject', e[3], 'page', PAGE, 'kind', e[4], 'type', e[5],
      'batch', batches and i .. '/' .. total or '1/1', 'prev', e[7], 'event', e[6])
  end
  call('SET', TAIL, plan[total][1] .. '|' .. plan[total][2])

  local rows = {}
  local function flush(command, key, list, least)
    if #list >= least then
      if #list > 0 then call(command, key, unpack(list)) end
      return {}
    end
    return list
  end
  for subject, h in pairs(touched) do
    rows[#rows + 1] = subject
    rows[#rows + 1] = h.version .. '|' .. h.status .. '|' .. h.class .. '|' .. h.type .. '|' .. h.priority .. '|'
      .. h.added .. '|' .. h.expires .. '|' .. h.wake .. '|' .. h.fence .. '|' .. h.holder .. '|' .. h.till .. '|'
      .. h.pos .. '|' .. h.key
    if h.class == 'o' then note_expiry(h.expires) end
    rows = flush('HSET', HEADS, rows, 1000)
  end
  if not stored or soonest ~= stored then call('HSET', PAGES, PAGE, soonest or '9007199254740991') end
  flush('HSET', HEADS, rows, 0)

  local scores, gone = {}, {}
  for subject, score in pairs(entered) do
    scores[#scores + 1] = score
    scores[#scores + 1] = subject
    scores = flush('ZADD', OPEN, scores, 1000)
  end
  flush('ZADD', OPEN, scores, 0)
  for subject in pairs(left) do
    gone[#gone + 1] = subject
    gone = flush('ZREM', OPEN, gone, 1000)
  end
  flush('ZREM', OPEN, gone, 0)
  for key in pairs(rekeyed) do
    local holder = keys[key]
    if holder then call('HSET', DEDUPE, key, holder) else call('HDEL', DEDUPE, key) end
  end

  local bucket = IDS .. int(math.floor(now / DAY))
  for k = 1, count do
    local at = FIRST + (k - 1) * WIDTH
    if ARGV[at + 1] ~= '' and results[k][1] > 0 then
      if call('HSET', bucket, ARGV[at], ARGV[at + 1] .. '|' .. MS .. '-' .. int(results[k][1])) == 1
        and call('HLEN', bucket) == 1 then
        for day = DAYS + 1, DAYS + 60 do call('DEL', IDS .. int(math.floor(now / DAY) - day)) end
      end
    end
  end
end

local reply = {1, now}
for k = 1, count do
  local r = results[k]
  for f = 1, 5 do reply[#reply + 1] = r[f] end
end
return reply
