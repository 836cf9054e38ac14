-- Writes the log of an export, with what follows from it, under names that nobody reads, and then gives it its own names:
-- all of it at once. Whoever lost the import to another one changes nothing.
--
-- KEYS  1 import  2 tail  3 origin  4 log  (5: a key that never exists, see keys.py)
-- ARGV  1 operation  2 token of the import  3 … what the operation needs
-- Reply: {1, …} done, now or before; {0} the log ends elsewhere; {-1} another import has begun
--
-- The import is a hash: its `token`, and the number of the last `part` that was written.

local call, match = redis.call, string.match
local IMPORT, TAIL, ORIGIN, LOG = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local op, token = ARGV[1], ARGV[2]
local PREFIX = string.sub(LOG, 1, -4)
local STAGED = PREFIX .. 'import:'

local holder = call('HGET', IMPORT, 'token')

if op == 'take' then -- reply: 1 if something of another import may be left
  if holder == token then return {1, 1} end
  call('HSET', IMPORT, 'token', token, 'part', '0')
  return {1, holder and 1 or 0}
end

if op == 'switch' and call('GET', TAIL) == ARGV[4] then -- 3 the tail as it was, "" of an empty log  4 the new one
  if holder == token then call('DEL', IMPORT) end
  return {1}
end

if holder ~= token then return {-1} end

if op == 'part' then -- 3 its number  4 … commands: number of arguments, then the arguments
  if tonumber(call('HGET', IMPORT, 'part')) >= tonumber(ARGV[3]) then return {1} end
  local at = 4
  while at <= #ARGV do
    local width = tonumber(ARGV[at])
    call(unpack(ARGV, at + 1, at + width))
    at = at + width + 1
  end
  call('HSET', IMPORT, 'part', ARGV[3])
elseif op == 'clear' then -- 3 … keys of what was written under other names
  call('DEL', unpack(ARGV, 3))
elseif op == 'leave' then
  call('DEL', IMPORT)
elseif op == 'switch' then -- 5 a random word for the origin of a new log
  local tail = call('GET', TAIL) or ''
  if tail ~= ARGV[3] then return {0} end
  local function rename(name)
    if call('EXISTS', STAGED .. name) == 1 then
      call('RENAME', STAGED .. name, PREFIX .. name)
    else
      call('DEL', PREFIX .. name)
    end
  end
  for _, page in ipairs(call('HKEYS', STAGED .. 'pages')) do
    rename('heads:' .. page)
    rename('open:' .. page)
    rename('keys:' .. page)
  end
  rename('pages')
  rename('erased')
  rename('log')
  if tail == '' then call('SET', ORIGIN, ARGV[5]) end
  call('SET', TAIL, ARGV[4])
  call('DEL', IMPORT)
end
return {1}
