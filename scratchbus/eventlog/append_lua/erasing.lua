-- Erasing: removes a subject's events from the log, and all that derives from them except its document, which is
-- removed when the tombstone is folded. Alone in its batch. `argument` holds, each as "<length>:<text>": the tokens of
-- the rebuild and archive leases to hold, the number of entries, their stream ids, the number of their event ids that
-- retries may name for ever, these ids, and relations with their members. `version` is "new" for a subject whose head
-- was dropped.

local at = FIRST
local id, subject, kind = ARGV[at], ARGV[at + @SUBJECT@], ARGV[at + @KIND@]
local PREFIX = @PREFIX(TAIL)@

local function parts(text)
  local out, from = {}, 1
  while from <= #text do
    local _, colon, length = find(text, '^(%d+):', from)
    out[#out + 1] = sub(text, colon + 1, colon + tonumber(length))
    from = colon + tonumber(length) + 1
  end
  return out
end

local head, given = load_head(subject), parts(ARGV[at + @ARGUMENT@])
local version = tonumber(ARGV[at + @VERSION@]) or 0
if version ~= (head and head.version or 0) then return {'refused', 1, 'version', version, head and head.version or 0} end
if not head then
  head = new_head('cleared', 'f', ARGV[at + @TYPE@], '0', int(last_seq + 1))
  head.version, head.position = tonumber(given[3]), given[3 + tonumber(given[3])]
end
if call('HGET', PREFIX .. @KEY(rebuilding)@, 'token') ~= given[1] then return {'refused', 1, 'rebuilt'} end
if match(call('GET', PREFIX .. @KEY(archiver)@) or '', '^%w*') ~= given[2] then return {'refused', 1, 'archived'} end
local checkpoint = call('GET', PREFIX .. @CHECKPOINT_KEY@) or ''
if seq_of(checkpoint) < seq_of(head.position) then return {'refused', 1, 'behind'} end -- a projector may be folding it
local why = blocked() or blocked_by_id()
if why then return why end
local build = match(checkpoint, @CHECKPOINT(build)@) or '1'
local STATE = PREFIX .. @BUILD_KEY(build)@

local gone, scores = {}, {}
for k = 4, 3 + tonumber(given[3]) do
  gone[#gone + 1] = given[k]
  scores[#scores + 1] = int(seq_of(given[k]))
  scores[#scores + 1] = int(seq_of(given[k]))
end
for from = 1, #gone, 1000 do
  local to = math.min(from + 999, #gone)
  call('XDEL', LOG, unpack(gone, from, to)) -- first: a role without XDEL is refused before anything is written
  call('XDEL', PREFIX .. @BUILD_KEY(build, rejected)@, unpack(gone, from, to))
  call('ZADD', PREFIX .. @KEY(erased)@, unpack(scores, 2 * from - 1, 2 * to))
end
local relations = 5 + #gone + tonumber(given[4 + #gone])
for k = 5 + #gone, relations - 1 do call('SADD', erased_ids, given[k]) end
for k = relations, #given, 2 do call('ZREM', STATE .. given[k], given[k + 1]) end
call('DEL', PREFIX .. @BUILD_KEY(build, snapshots)@ .. PAGE)

-- The page's positions, in order. Erased ones are found from the one before, in steps that double and then by binary
-- search: those of a subject are often close together. The ones between them are kept.

local POSITIONS = PREFIX .. @BUILD_KEY(build, positions)@ .. PAGE
local kept, from = {}, 0
local rows = call('GET', POSITIONS) or ''

local function seq_at(index) return number_at(rows, index * POSITION_WIDTH + 9) end

local count = math.floor(#rows / POSITION_WIDTH)
for k = 1, 2 * #gone, 2 do
  local wanted, low, high, step = tonumber(scores[k]), from, from, 1
  while high < count and seq_at(high) < wanted do
    low, high, step = high + 1, high + step, step * 2
  end
  low = first_behind(low, math.min(high, count), function(index) return seq_at(index) >= wanted end)
  if low < count and seq_at(low) == wanted then
    kept[#kept + 1] = sub(rows, from * POSITION_WIDTH + 1, low * POSITION_WIDTH)
    from = low + 1
  end
end
kept[#kept + 1] = sub(rows, from * POSITION_WIDTH + 1)
kept = table.concat(kept)
if kept == '' then call('DEL', POSITIONS) else call('SET', POSITIONS, kept) end

if head.status_class == 'o' then
  call('ZREM', OPEN, subject)
  if head.dedupe_key ~= '' then call('HDEL', DEDUPE, head.dedupe_key) end
end
local erased = new_head('erased', 'f', head.type, head.priority, head.added)
erased.version, erased.fence = head.version, head.fence
emit(subject, erased, id, kind, ARGV[at + @BODY@])
local failed = write_entry(plan[1], '1/1')
if failed then return failed end
call('SET', TAIL, @LAST_TEXT(erased.position, id)@)
call('HSET', HEADS, subject, head_text(erased))
if ARGV[at + @DIGEST@] ~= '' then
  remember(IDS .. int(math.floor(now / @DAY@)), at, erased.position)
end
return {'written', now, 1, last_seq + 1, erased.version, kind, subject, tonumber(head.fence)}
