-- Reads a page atomically: the requested documents, and the events of the page that are not folded into them yet.
--
-- Reply: {now, tail, checkpoint, entries of these events, 1 if they follow the fold that the reader has cached, their
--         subjects, the documents of these, the requested documents, 1 if there are no more of them, and for a list the
--         seq below which it continues}
-- Instead of entries: -1 if there are too many, or some are missing; in a read that may be stale, the time (ms) of the
-- first event left out, 0 if there is none. A list ends early after 5,000 observations looked at.
-- The documents of "active" are nil if the reader has cached them. Two more items follow: for a reader that has cached
-- documents, or that reads in parts, the id and the document of each one that has changed since, which is nil if it is not
-- open any more or has events that are not folded; and the score below which the read continues. Instead of changes,
-- nil if they are not known: the documents that a reader in parts already has are then of no use.

local call = redis.call
local MAX_CHANGES = 20 -- to look at more takes as long as to return the documents of a page
local MAX_CHANGES_OF_PARTS = 2000 -- as long as to return one part

local function documents(ids)
  if #ids > 0 and #ids <= 1000 then return call('HMGET', DOCS, unpack(ids)) end
  local out = {}
  for from = 1, #ids, 1000 do
    for _, row in ipairs(call('HMGET', DOCS, unpack(ids, from, math.min(from + 999, #ids)))) do out[#out + 1] = row end
  end
  return out
end

local tail, checkpoint = call('GET', TAIL) or '', call('GET', CHECKPOINT) or ''
now = math.max(now, tonumber(string.match(tail, @MS@) or 0)) -- the log's time never runs backwards
local reached = FOLDED ~= '' and FOLDED or string.match(checkpoint, @CHECKPOINT(stream_id)@) or ''
local last = string.match(tail, @LAST(stream_id)@) -- entries behind it were added by hand
local is_behind = tail ~= '' and last ~= reached
local entries, touched, seen, extends_cached = {}, {}, {}, 0

-- Returns the events after an event, up to another one; nil if the log no longer has the first one, or if some are missing.
-- There is no first one if the tail was missing when the reader cached something.

local function events_between(id, event_id, last, limit)
  if not id then return end
  local some = call('XRANGE', LOG, id, last, 'COUNT', limit + 1)
  if not some[1] or some[1][1] ~= id or field_of(some[1], 'id') ~= event_id then return end
  table.remove(some, 1)
  return #some == seq_of(last) - seq_of(id) and some or nil
end

-- Returns the events after the fold that the reader has cached; nil if the log no longer has the last event of that fold.

local function since_cached()
  if CACHED_TAIL == tail then return {} end
  local id, event_id = string.match(CACHED_TAIL, @LAST(stream_id, event_id)@)
  return events_between(id, event_id, last, MAX_BEHIND)
end

-- Returns the subject of an entry if it is on the page.

local function subject_of(entry)
  local fields = entry[2]
  local is_usual = fields[3] == 'subject' and fields[5] == 'page' -- else it was written by hand
  if (is_usual and fields[6] or field_of(entry, 'page')) ~= PAGE then return end
  return is_usual and fields[4] or field_of(entry, 'subject') or ''
end

-- Returns the subjects of the page that have changed from an earlier checkpoint to this one; nil if that is not known, or
-- if the log no longer has the last event that the reader saw then.

local function changed_since(earlier, seen_until, limit)
  if earlier == '' then return end
  if seen_until ~= tail then
    local id, event_id = string.match(seen_until, @LAST(stream_id, event_id)@)
    if not events_between(id, event_id, id, 0) then return end
  end
  if earlier == checkpoint then return {} end
  local id, event_id, build, _, origin = string.match(earlier, @CHECKPOINT@)
  local now_id, _, now_build, _, now_origin = string.match(checkpoint, @CHECKPOINT@)
  if not now_id or build ~= now_build or origin ~= now_origin then return end
  local behind = seq_of(now_id) - seq_of(id)
  local events = behind >= 0 and behind <= limit and events_between(id, event_id, now_id, behind)
  if not events then return end
  local changed = {}
  for _, entry in ipairs(events) do
    local subject = subject_of(entry)
    if subject then changed[subject] = true end
  end
  return changed
end

if MAX_BEHIND >= 0 and is_behind then
  local behind = seq_of(tail) - seq_of(reached)
  local newer = CACHED_TAIL ~= '' and CACHED_CHECKPOINT == checkpoint and behind <= MAX_BEHIND and since_cached()
  if newer then
    extends_cached = 1
  else
    newer = behind > MAX_BEHIND and {} or call('XRANGE', LOG, reached == '' and '-' or '(' .. reached, last, 'COUNT', MAX_BEHIND)
    if #newer ~= behind then return {now, tail, checkpoint, -1} end -- some are missing, or the state is of another log
  end
  for _, entry in ipairs(newer) do
    local subject = subject_of(entry)
    if subject then
      entries[#entries + 1] = entry
      if not seen[subject] then
        seen[subject] = true
        touched[#touched + 1] = subject
      end
    end
  end
end
local since = 0 -- the time (ms) of the first event that a stale read leaves out
if MAX_BEHIND < 0 and is_behind then
  local first = call('XRANGE', LOG, reached == '' and '-' or '(' .. reached, last, 'COUNT', 1)[1]
  if first then since = tonumber(string.match(first[1], @MS@)) end
end
local touched_docs = documents(touched)

if OPERATION == 'get' then
  return {now, tail, checkpoint, MAX_BEHIND < 0 and since or entries, extends_cached, touched, touched_docs,
    documents({unpack(ARGV, FIRST)}), 1}
end

if OPERATION == 'active' then
  local limit, cached_at, cached_until, cached_all, below = tonumber(ARGV[FIRST]), unpack(ARGV, FIRST + 1)
  local is_same = cached_at == checkpoint and cached_until == tail
  local changed = (cached_all == '1' or is_same)
    and changed_since(cached_at, cached_until, below and MAX_CHANGES_OF_PARTS or MAX_CHANGES)
  local flat, ids, untouched = changed and {} or false, {}, {}
  for id in pairs(changed or {}) do
    flat[#flat + 1] = id
    flat[#flat + 1] = not seen[id] and call('ZSCORE', OPEN, id) and call('HGET', DOCS, id) or false
  end
  if not below and not changed then
    limit = limit + #touched
    ids = call('ZREVRANGE', OPEN, 0, limit - 1)
  elseif below and changed then
    ids = call('ZREVRANGEBYSCORE', OPEN, '(' .. below, '-inf', 'LIMIT', 0, limit)
  end
  for _, id in ipairs(#touched > 0 and ids or {}) do
    if not seen[id] then untouched[#untouched + 1] = id end
  end
  return {now, tail, checkpoint, MAX_BEHIND < 0 and since or entries, extends_cached, touched, touched_docs,
    (below or not changed) and documents(#touched > 0 and untouched or ids) or false, #ids < limit and 1 or 0, flat,
    #ids > 0 and #ids >= limit and call('ZSCORE', OPEN, ids[#ids]) or ''}
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
local per_set = math.min(step, math.max(10, math.ceil(4 * step / #walked))) -- rows read of a set at once

local function rows_of(set, from)
  return call('ZREVRANGEBYSCORE', set, from == '' and '+inf' or '(' .. from, '-inf', 'WITHSCORES', 'LIMIT', 0, per_set)
end

-- Several sets are merged by score, in a heap with the highest score first. Of each, `rows` are the last rows read
-- (members and scores alternate), and `at` is the index of the current one.

local function advance(walk)
  walk.at = walk.at + 2
  if walk.at > #walk.rows then
    walk.rows, walk.at = rows_of(walk.set, walk.below), 1
  end
  walk.below = walk.rows[walk.at + 1]
  walk.score = tonumber(walk.below or 0)
end

local walks, heap_size = {}, #walked > 1 and #walked or 0
for k = 1, heap_size do
  walks[k] = {set = walked[k], below = below, rows = {}, at = 0}
  advance(walks[k])
end

local function sift_down(at)
  local walk = walks[at]
  while 2 * at <= heap_size do
    local child = 2 * at
    if child < heap_size and walks[child + 1].score > walks[child].score then child = child + 1 end
    if walks[child].score <= walk.score then break end
    walks[at], at = walks[child], child
  end
  walks[at] = walk
end

for at = math.floor(heap_size / 2), 1, -1 do sift_down(at) end

local function next_merged()
  local rows = {}
  for r = 1, 2 * step, 2 do
    local first = walks[1]
    if not first.below then break end
    rows[r], rows[r + 1] = first.rows[first.at], first.below
    advance(first)
    sift_down(1)
  end
  return rows
end

local ids, docs, looked, is_end, rows = {}, {}, 0, 0, nil
while #ids < limit and looked < 5000 do
  rows = heap_size > 0 and next_merged() or walked[1] and rows_of(walked[1], below) or {}
  if #rows == 0 then
    is_end = 1
    break
  end
  local some = {}
  for r = 1, #rows, 2 do some[#some + 1] = rows[r] end
  looked = looked + #some
  below = rows[#rows]
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
      if not head then -- it was final, and was dropped below the floor; the document has the status
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
      end
    end
  end
end
if #ids >= limit then
  is_end = 0
  for r = 1, #rows, 2 do
    if rows[r] == ids[#ids] then below = rows[r + 1] end
  end
end
return {now, tail, checkpoint, MAX_BEHIND < 0 and since or entries, extends_cached, touched, touched_docs, docs, is_end,
  below}
