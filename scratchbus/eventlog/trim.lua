-- Takes what is archived out of the log. Whoever is not the archiver changes nothing.
--
-- KEYS  1 archiver  2 log  3 floor  4 origin  5 tail  6 kept  7 checkpoint  (8: a key that never exists, see keys.py)
-- ARGV  1 operation  2 token of the archiver  3 ms that the lease goes on for  4 … what the operation needs
-- Reply: {0, who} another is at work; {1, …} done, of "take" the time (ms); {-1, why} not as it was thought to be
--
-- The hold is `<token>|<ms until>|<who>`. Nobody but the next one, or its holder, takes it away: whoever is late finds
-- out by it whether another was there meanwhile.

local call, match = redis.call, string.match
local ARCHIVER, LOG, FLOOR, ORIGIN, TAIL, KEPT, CHECKPOINT = unpack(KEYS)
local op, token, lease = ARGV[1], ARGV[2], ARGV[3]

local function int(n) return string.format('%.0f', n) end

local time = call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local holder, till, who = match(call('GET', ARCHIVER) or '', '^(%w+)|(%d+)|(.*)$')
if holder ~= token and (op ~= 'take' or (holder and tonumber(till) > now)) then return {0, who or ''} end
if op == 'leave' then
  call('DEL', ARCHIVER)
  return {1}
end
call('SET', ARCHIVER, token .. '|' .. int(now + tonumber(lease)) .. '|' .. (op == 'take' and ARGV[4] or who))
if op == 'take' or op == 'keep' then return {1, now} end -- 4 of "take": who it is, for people
local function seq_of(row) return tonumber(match(row or '', '^%d+%-(%d+)') or 0) end
local function field(entry, name)
  for f = 1, #entry[2], 2 do
    if entry[2][f] == name then return entry[2][f + 1] end
  end
  return ''
end

if op == 'floor' then -- 4 origin of the log  5 stream id and 6 event id up to which everything is archived
  local at = seq_of(ARGV[5])
  if call('GET', ORIGIN) ~= ARGV[4] then return {-1, 'origin'} end
  if at <= seq_of(call('GET', FLOOR)) then return {1} end
  local entry = call('XRANGE', LOG, ARGV[5], ARGV[5])[1]
  local is_erased = not entry and call('ZSCORE', string.gsub(LOG, 'log$', 'erased'), int(at))
  if not is_erased and (not entry or field(entry, 'id') ~= ARGV[6]) then return {-1, 'event'} end
  if at > seq_of(call('GET', CHECKPOINT)) then return {-1, 'checkpoint'} end
  if at >= seq_of(call('GET', TAIL)) then return {-1, 'tail'} end
  call('SET', FLOOR, ARGV[5] .. '|' .. ARGV[6])
elseif op == 'cut' then -- 4 … keys of the positions of pages: what is below the floor goes
  local floor, WIDTH = seq_of(call('GET', FLOOR)), 16
  for k = 4, #ARGV do
    local low, high = 0, math.floor(call('STRLEN', ARGV[k]) / WIDTH)
    while low < high do
      local middle, seq = math.floor((low + high) / 2), 0
      local row = call('GETRANGE', ARGV[k], middle * WIDTH + 8, middle * WIDTH + WIDTH - 1)
      for i = 1, 8 do seq = seq * 256 + string.byte(row, i) end
      if seq > floor then high = middle else low = middle + 1 end
    end
    local rest = low > 0 and call('GETRANGE', ARGV[k], low * WIDTH, -1)
    if rest == '' then call('DEL', ARGV[k]) elseif rest then call('SET', ARGV[k], rest) end
  end
elseif op == 'heads' then -- 4 key of the heads of a page  5 … subjects: those that are final, and below the floor, go
  local floor, gone = seq_of(call('GET', FLOOR)), {}
  for i, head in ipairs(call('HMGET', ARGV[4], unpack(ARGV, 5))) do
    local class, at = match(head or '', '^%d+|[^|]*|(%a)|[^|]*|%d+|%d+|%d+|%d+|%d+|[^|]*|%d+|([^|]*)|')
    if class == 'f' and seq_of(at) <= floor then gone[#gone + 1] = ARGV[4 + i] end
  end
  if #gone > 0 then call('HDEL', ARGV[4], unpack(gone)) end
elseif op == 'over' then -- 4 key of the heads of a page  5 seq of an event, below the floor, that ended its session
  -- 6 … subjects: what they remembered is archived, so those below that event go
  local over, gone = tonumber(ARGV[5]), {}
  if over > seq_of(call('GET', FLOOR)) then return {-1, 'floor'} end
  for i, head in ipairs(call('HMGET', ARGV[4], unpack(ARGV, 6))) do
    local at = match(head or '', '^%d+|[^|]*|%a|[^|]*|%d+|%d+|%d+|%d+|%d+|[^|]*|%d+|([^|]*)|')
    if at and seq_of(at) < over then gone[#gone + 1] = ARGV[5 + i] end
  end
  if #gone > 0 then call('HDEL', ARGV[4], unpack(gone)) end
elseif op == 'copy' then -- 4 stream id of an entry that everyone needs
  local entry = call('XRANGE', LOG, ARGV[4], ARGV[4])[1]
  if entry and #call('XRANGE', KEPT, ARGV[4], '+', 'COUNT', 1) == 0 then call('XADD', KEPT, ARGV[4], unpack(entry[2])) end
elseif op == 'trim' then -- 4 stream id up to which entries go, as far as the floor
  local ms, seq = match(ARGV[4], '^(%d+)%-(%d+)$')
  if tonumber(seq) > seq_of(call('GET', FLOOR)) then return {-1, 'floor'} end
  return {1, call('XTRIM', LOG, 'MINID', ms .. '-' .. string.format('%.0f', tonumber(seq) + 1))}
end
return {1}
