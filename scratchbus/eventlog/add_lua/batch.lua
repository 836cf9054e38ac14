-- Adds several observations in the plain case: all are new, and the page has room for them. Writes what the append
-- script would write; in every other case the append script does the work.
--
-- Reply: the stream id of the first event
--        {"full"}                                nothing was written; the page has no room for all of them
--        {"other"}                               nothing was written; the append script has to do it
--        {"refused", 1, "blocked", stream id}    nothing was written; see append_lua/inputs.lua

local WIDTH = @ADDITION_WIDTH@
local count = (#ARGV - FIRST + 1) / WIDTH

local subjects = {}
for k = 1, count do subjects[k] = ARGV[FIRST + (k - 1) * WIDTH + @ADDITION_SUBJECT@] end
for _, head in ipairs(call('HMGET', HEADS, unpack(subjects))) do
  if head then return {'other'} end
end
if ROOM > 0 and call('ZCARD', OPEN) + count > ROOM then return {'full'} end

-- PAGES holds a time before which no open observation of the page expires.

local stored = call('HGET', PAGES, PAGE)
local soonest = tonumber(stored or '') and stored or @FOREVER@ -- the value may have been set by hand

local shapes = {} -- each with: type, start, when it expires, tags, lowest score of its priority in the open set
local rows, scores, filled, number, k = {}, {}, 0, tonumber(seq), 0
local kind, prev, batch, of, first, id, position = 'added', '', '1/1', format('/%d', count), nil, nil, nil
for at = FIRST, #ARGV, WIDTH do
  local subject, shape, body
  @ADDITION@ = unpack(ARGV, at, at + WIDTH - 1)
  if not shapes[shape] then
    local life, tags, start, type, priority = string.match(shape, @SHAPE@)
    local expires = life
    if life == '' then
      expires = '0'
    elseif byte(life) == 43 then -- "+": relative to now
      expires = format('%d', NOW + sub(life, 2))
    end
    if expires ~= '0' and tonumber(expires) < tonumber(soonest) then soonest = expires end
    shapes[shape] = {type, start, expires, tags, priority * @SPAN@}
  end
  local type, start, expires, tags, span = unpack(shapes[shape])
  number, k = number + 1, k + 1
  local added = format('%d', number)
  position = NOW .. '-' .. added
  if MODE == 'all' then batch = k .. of end
  local written = redis.pcall('XADD', LOG, position, @ENTRY@)
  if written ~= position then return {'other'} end -- the append script reports the obstacle
  first = first or position
  rows[filled + 1], rows[filled + 2] = subject, @ADDED_HEAD_TEXT@
  scores[filled + 1], scores[filled + 2] = span + number, subject
  filled = filled + 2
end
call('SET', TAIL, @LAST_TEXT(position, id)@)
for from = 1, filled, 1000 do
  local to = math.min(from + 999, filled)
  call('HSET', HEADS, unpack(rows, from, to))
  call('ZADD', OPEN, unpack(scores, from, to))
end
if soonest ~= stored then call('HSET', PAGES, PAGE, soonest) end
return first
