-- Adds observations that nothing stands in the way of: all are new, the page has room for them, and nobody sends anything
-- again. These are by far the most frequent appends. What is written is what the append script would write; it has to do
-- all others. Numbers stay text where they can, since the engine takes its time to read and print them.
--
-- Reply: the stream id of the first event
--        {"other"}                               nothing was written; the append script has to do it
--        {"refused", 1, "blocked", stream id}    nothing was written; see append_lua/inputs.lua

local call, sub, byte = redis.call, string.sub, string.byte
local WIDTH = @ADDITION_WIDTH@
local count = (#ARGV - FIRST + 1) / WIDTH

local function is_greater(digits, others) return #digits > #others or (#digits == #others and digits > others) end

local function one_more(digits)
  local last = byte(digits, -1)
  if last < 57 then return sub(digits, 1, -2) .. string.char(last + 1) end
  return string.format('%d', tonumber(digits) + 1)
end

local tail = call('GET', TAIL)
if not tail or call('EXISTS', IDS .. 'retried') == 1 then return {'other'} end
if ROOM > 0 and call('ZCARD', OPEN) + count > ROOM then return {'other'} end

local subjects = {}
for k = 1, count do subjects[k] = ARGV[FIRST + (k - 1) * WIDTH + @ADDITION_SUBJECT@] end
for _, head in ipairs(call('HMGET', HEADS, unpack(subjects))) do
  if head then return {'other'} end
end

-- The engine's time in ms. The log's time never runs backwards, and its seq goes on from the last event's.

local time = call('TIME')
local NOW, ms, seq = time[1] .. sub('00000' .. time[2], -6, -4), string.match(tail, @STREAM_ID@)
local found = call('XREAD', 'COUNT', 1, 'STREAMS', LOG, ms .. '-' .. seq)
if found and #found > 0 then return {'refused', 1, 'blocked', found[1][2][1][1]} end
if is_greater(ms, NOW) then NOW = ms end

-- PAGES holds a moment before which nothing open on the page expires.

local stored, lasting, expires = call('HGET', PAGES, PAGE), nil, nil
local soonest = tonumber(stored or '') and stored or @FOREVER@ -- someone may have written there by hand

local rows, scores, number, k, of = {}, {}, tonumber(seq), '0', string.format('/%d', count)
local kind, prev, first, id, position = 'added', '', nil, nil, nil
for at = FIRST, #ARGV, WIDTH do
  local subject, type, span, start, life, tags, body
  @ADDITION@ = unpack(ARGV, at, at + WIDTH - 1)
  seq, number, k = one_more(seq), number + 1, one_more(k)
  position = NOW .. '-' .. seq
  local added, batch = seq, MODE == 'all' and k .. of or '1/1'
  local written = redis.pcall('XADD', LOG, position, @ENTRY@)
  if written ~= position then return {'other'} end -- the first: it says what is in the way
  first = first or position
  if life ~= lasting then
    lasting, expires = life, life
    if life == '' then
      expires = '0'
    elseif byte(life) == 43 then -- "+": from now on
      expires = string.format('%d', tonumber(NOW) + tonumber(sub(life, 2)))
    end
    if expires ~= '0' and is_greater(soonest, expires) then soonest = expires end
  end
  local row = #rows
  rows[row + 1] = subject
  rows[row + 2] = @ADDED_HEAD_TEXT@
  scores[row + 1] = tonumber(span) + number
  scores[row + 2] = subject
end
call('SET', TAIL, @LAST_TEXT(position, id)@)
for from = 1, #rows, 1000 do
  local to = math.min(from + 999, #rows)
  call('HSET', HEADS, unpack(rows, from, to))
  call('ZADD', OPEN, unpack(scores, from, to))
end
if soonest ~= stored then call('HSET', PAGES, PAGE, soonest) end
return first
