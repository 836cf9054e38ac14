-- Commits what a projector folded: state and checkpoint move together, or not at all.
--
-- Reply: {1} committed; {0} another projector was faster, or the rebuild has lost its lease; {-1} this is not the log
--        that was folded

if (redis.call('GET', CHECKPOINT) or '') ~= WAS then return {0} end
if BUILDER ~= '' and redis.call('HGET', REBUILDING, 'token') ~= BUILDER then return {0} end
if redis.call('GET', ORIGIN) ~= FOLDED_ORIGIN then return {-1} end
local entry = redis.call('XRANGE', LOG, STREAM_ID, STREAM_ID)[1]
if entry then
  if (field_of(entry, 'id') or '') ~= EVENT_ID then return {-1} end
elseif seq_of(STREAM_ID) > seq_of(redis.call('GET', FLOOR)) then -- events below the floor came from the archive
  return {-1}
end

run_commands()
redis.call('SET', CHECKPOINT, NEW)
return {1}
