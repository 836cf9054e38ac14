-- Writes to the state if what the writes were made from is still as it was read, however far projectors have come.
--
-- The arguments from FIRST on are CHECKS times a hash, a field and its value as read ('' for none), then commands.
-- Reply: {1} written; {0} something has changed

local id, event, build, form, origin = string.match(redis.call('GET', CHECKPOINT) or '', @CHECKPOINT@)
if build ~= BUILD or origin ~= FOLDED_ORIGIN then return {0} end
for at = FIRST, FIRST + 3 * CHECKS - 1, 3 do
  if (redis.call('HGET', ARGV[at], ARGV[at + 1]) or '') ~= ARGV[at + 2] then return {0} end
end

FIRST = FIRST + 3 * CHECKS
run_commands()
if tonumber(form) < FORM then form = FORM end
redis.call('SET', CHECKPOINT, @CHECKPOINT_TEXT(id, event, build, form, origin, TOKEN)@)
return {1}
