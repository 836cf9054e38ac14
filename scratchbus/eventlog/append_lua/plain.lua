-- New observations with nothing in their way are by far the most frequent append. They are written at once, without
-- what the rest of this script sets up; what is written is the same.

local function are_plain()
  local seen, size = {}, call('ZCARD', OPEN)
  if SCAN ~= '' or call('EXISTS', IDS .. 'retried') == 1 or (ROOM > 0 and size + count > ROOM) then return false end
  local subjects = {}
  for k = 1, count do
    local at = start(k)
    local id, subject = ARGV[at], ARGV[at + @SUBJECT@]
    if ARGV[at + @OP@] ~= @ADD@ or ARGV[at + @DIGEST@] ~= '' or ARGV[at + @ARGUMENT@] ~= '' or ARGV[at + @FENCE@] ~= ''
      or seen[subject] or seen[id] then
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

if are_plain() then
  local rows, scores, prev, id, position = {}, {}, '', nil, nil
  local why = blocked()
  if why then return why end
  for k = 1, count do
    local at, seq = start(k), last_seq + k
    local subject, kind, type, body = ARGV[at + @SUBJECT@], ARGV[at + @KIND@], ARGV[at + @TYPE@], ARGV[at + @BODY@]
    local added, batch = int(seq), k .. '/' .. count
    id, position = ARGV[at], NOW .. '-' .. added
    local failed = add_entry(position, @ENTRY@)
    if failed then return blocked_by_id() or failed end
    local row, status, status_class, tags = #rows, ARGV[at + @STATUS@], ARGV[at + @STATUS_CLASS@], ARGV[at + @TAGS@]
    local priority = ARGV[at + @PRIORITY@]
    local expires, wake = later(ARGV[at + @EXPIRES@], '0'), later(ARGV[at + @WAKE@], '0')
    note_expiry(expires)
    rows[row + 1] = subject
    rows[row + 2] = @NEW_HEAD_TEXT@
    scores[row + 1] = int(tonumber(priority) * @SPAN@ + seq)
    scores[row + 2] = subject
  end
  if not tail then call('SET', ORIGIN, NEW_ORIGIN .. '.' .. time[1] .. '.' .. time[2]) end
  call('SET', TAIL, @LAST_TEXT(position, id)@)
  for from = 1, #rows, 1000 do
    local to = math.min(from + 999, #rows)
    call('HSET', HEADS, unpack(rows, from, to))
    call('ZADD', OPEN, unpack(scores, from, to))
  end
  if soonest ~= stored then call('HSET', PAGES, PAGE, soonest) end
  return {'added', now, last_seq + 1}
end
