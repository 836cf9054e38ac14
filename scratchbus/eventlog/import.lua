-- Imports a log: writes it, and the keys that derive from it, under staged names that nobody reads, then renames all of
-- them at once. An import that another one has replaced changes nothing.
--
-- Reply: {1, …} done, now or before; {0} the log has another tail than expected; {-1} another import has begun
--
-- IMPORTING is a hash: the `token` of the import, and the number of the last `part` that was written.

local call = redis.call
local PREFIX = @PREFIX(LOG)@
local STAGED = PREFIX .. @STAGED@

local holder = call('HGET', IMPORTING, 'token')

if OPERATION == 'take' then -- reply: {1, 1} if staged keys of an earlier import may be left
  if holder == TOKEN then return {1, 1} end
  call('HSET', IMPORTING, 'token', TOKEN, 'part', '0')
  return {1, holder and 1 or 0}
end

if OPERATION == 'switch' and call('GET', TAIL) == NEW_TAIL then
  if holder == TOKEN then call('DEL', IMPORTING) end
  return {1}
end

if holder ~= TOKEN then return {-1} end

if OPERATION == 'part' then
  if tonumber(call('HGET', IMPORTING, 'part')) >= PART then return {1} end
  run_commands()
  call('HSET', IMPORTING, 'part', PART)
elseif OPERATION == 'clear' then -- delete these staged keys
  call('DEL', unpack(ARGV, FIRST))
elseif OPERATION == 'leave' then
  call('DEL', IMPORTING)
elseif OPERATION == 'switch' then
  local tail = call('GET', TAIL) or ''
  if tail ~= OLD_TAIL then return {0} end
  local function rename(name)
    if call('EXISTS', STAGED .. name) == 1 then
      call('RENAME', STAGED .. name, PREFIX .. name)
    else
      call('DEL', PREFIX .. name)
    end
  end
  for _, page in ipairs(call('HKEYS', STAGED .. @KEY(pages)@)) do
    rename(@KEY(heads)@ .. page)
    rename(@KEY(open)@ .. page)
    rename(@KEY(dedupe)@ .. page)
  end
  rename(@KEY(pages)@)
  rename(@KEY(erased)@)
  rename(@KEY(log)@)
  if tail == '' then call('SET', ORIGIN, NEW_ORIGIN) end
  call('SET', TAIL, NEW_TAIL)
  call('DEL', IMPORTING)
end
return {1}
