-- One consistent look at a page: what was asked for, and the events that are not folded into it yet.
--
-- Reply: {now, tail, checkpoint, entries or -1 when there are too many or some are missing, touched ids, touched docs,
--         ids, docs, 1 when there are no more, and where a list goes on}
-- A list may answer with fewer than asked for, after 5,000 that it looked at; it says below which seq to go on.

local call = redis.call

local function documents(ids)
  if #ids > 0 and #ids <= 1000 then return call('HMGET', DOCS, unpack(ids)) end
  local out = {}
  for from = 1, #ids, 1000 do
    for _, row in ipairs(call('HMGET', DOCS, unpack(ids, from, math.min(from + 999, #ids)))) do out[#out + 1] = row end
  end
  return out
end

local tail, checkpoint = call('GET', TAIL) or '', call('GET', CHECKPOINT) or ''
now = math.max(now, tonumber(string.match(tail, @MS@) or 0)) -- a clock that was set back: the log's time stands still
local reached = FOLDED ~= '' and FOLDED or string.match(checkpoint, @CHECKPOINT(stream_id)@) or ''
local last = string.match(tail, @LAST(stream_id)@) -- what is behind it, someone added by hand
local is_behind = tail ~= '' and last ~= reached
local entries, touched, seen = {}, {}, {}
if MOST >= 0 and is_behind then
  local behind = seq_of(tail) - seq_of(reached)
  local rest = behind > MOST and {} or call('XRANGE', LOG, reached == '' and '-' or '(' .. reached, last, 'COUNT', MOST)
  if #rest ~= behind then return {now, tail, checkpoint, -1} end -- some are missing, or the state is of another log
  for _, entry in ipairs(rest) do
    local fields = entry[2]
    local is_ours = fields[3] == 'subject' and fields[5] == 'page' -- else somebody wrote it by hand
    if (is_ours and fields[6] or field_of(entry, 'page')) == PAGE then
      local subject = is_ours and fields[4] or field_of(entry, 'subject') or ''
      entries[#entries + 1] = entry
      if not seen[subject] then
        seen[subject] = true
        touched[#touched + 1] = subject
      end
    end
  end
end
local since = 0 -- when the first event came that a stale read leaves out
if MOST < 0 and is_behind then
  local first = call('XRANGE', LOG, reached == '' and '-' or '(' .. reached, last, 'COUNT', 1)[1]
  if first then since = tonumber(string.match(first[1], @MS@)) end
end
local touched_docs = documents(touched)

if OPERATION == 'get' then
  local ids = {unpack(ARGV, FIRST)}
  return {now, tail, checkpoint, MOST < 0 and since or entries, touched, touched_docs, ids, documents(ids), 1}
end

if OPERATION == 'active' then
  local limit = tonumber(ARGV[FIRST])
  local ids = call('ZREVRANGE', OPEN, 0, limit < 0 and -1 or limit + #touched - 1)
  local untouched = #touched > 0 and {} or ids
  for _, id in ipairs(#touched > 0 and ids or {}) do
    if not seen[id] then untouched[#untouched + 1] = id end
  end
  return {now, tail, checkpoint, MOST < 0 and since or entries, touched, touched_docs, untouched, documents(untouched),
    (limit < 0 or #ids < limit + #touched) and 1 or 0}
end

local limit, below, statuses, text = unpack(ARGV, FIRST)
limit = tonumber(limit) + #touched
local walked, others, smallest = {}, {}, nil -- the smallest set, or those of all types
for k = SETS, #KEYS do
  local size = call('ZCARD', KEYS[k])
  if not smallest or size < smallest then walked[1], smallest = KEYS[k], size end
end
for k = SETS, #KEYS do
  if KEYS[k] ~= walked[1] then others[#others + 1] = KEYS[k] end
end
if not smallest then
  for k, type in ipairs(call('HKEYS', TYPES)) do walked[k] = OF_TYPE .. type end
end
local step = #walked == 1 and 100 or math.min(100, limit)

-- The members of these sets that come next, newest first, and the score of each.

local function next_of(below)
  local rows, some, scores = {}, {}, {}
  for _, set in ipairs(walked) do
    local flat =
      call('ZREVRANGEBYSCORE', set, below == '' and '+inf' or '(' .. below, '-inf', 'WITHSCORES', 'LIMIT', 0, step)
    for f = 1, #flat, 2 do rows[#rows + 1] = {flat[f], flat[f + 1]} end
  end
  if #walked > 1 then table.sort(rows, function(a, b) return tonumber(a[2]) > tonumber(b[2]) end) end
  for k = 1, math.min(step, #rows) do
    some[k] = rows[k][1]
    scores[some[k]] = rows[k][2]
  end
  return some, scores
end

local ids, docs, looked, is_end, last = {}, {}, 0, 0, nil
while #ids < limit and looked < 5000 do
  local some, scores = next_of(below)
  if #some == 0 then
    is_end = 1
    break
  end
  looked = looked + #some
  below = scores[some[#some]]
  for _, other in ipairs(others) do
    if #some == 0 then break end
    local kept = {}
    for i, score in ipairs(call('ZMSCORE', other, unpack(some))) do
      if score then kept[#kept + 1] = some[i] end
    end
    some = kept
  end
  if statuses ~= '' and #some > 0 then
    local kept = {}
    for i, head in ipairs(call('HMGET', HEADS, unpack(some))) do
      if not head then -- dropped below the floor, when it was final; its document says how
        local doc = call('HGET', DOCS, some[i])
        for status in string.gmatch(doc or '', '"status":"([^"]*)"') do
          if string.find(statuses, ',' .. status .. ',', 1, true) then
            kept[#kept + 1] = some[i]
            break
          end
        end
      else
        local status, class, expires = string.match(head, @HEAD(status, status_class, expires)@)
        if class == 'o' and expires ~= '0' and tonumber(expires) <= now then status = 'archived' end
        if string.find(statuses, ',' .. status .. ',', 1, true) then kept[#kept + 1] = some[i] end
      end
    end
    some = kept
  end
  if #some > 0 then
    for i, doc in ipairs(call('HMGET', DOCS, unpack(some))) do
      if doc and (text == '' or string.find(doc, text, 1, true)) then
        ids[#ids + 1] = some[i]
        docs[#docs + 1] = doc
        last = scores[some[i]]
      end
    end
  end
end
if #ids >= limit then below, is_end = last, 0 end
return {now, tail, checkpoint, MOST < 0 and since or entries, touched, touched_docs, ids, docs, is_end, below}
