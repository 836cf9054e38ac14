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
  if sub(text, 1, 1) == '+' then return int(now + tonumber(sub(text, 2))) end
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
    local subject, kind, type, priority, added = ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 11], int(seq)
    pos = MS .. '-' .. added
    call('XADD', LOG, pos, 'id', ARGV[at], 'subject', subject, 'page', PAGE, 'kind', kind, 'type', type,
      'batch', k .. '/' .. count, 'prev', '', 'event', ARGV[at + 5])
    local row, expires = #rows, moment(ARGV[at + 12])
    note_expiry(expires)
    rows[row + 1] = subject
    rows[row + 2] = '1|' .. ARGV[at + 9] .. '|' .. ARGV[at + 10] .. '|' .. type .. '|' .. priority .. '|' .. added .. '|'
      .. expires .. '|' .. moment(ARGV[at + 13]) .. '|0||0|' .. pos .. '|||' .. ARGV[at + 16] .. '|'
    scores[row + 1] = int(tonumber(priority) * SPAN + seq)
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
