-- Writes a field of a page's snapshots, unless events were erased since the snapshot was begun: it may contain them. An
-- erasure itself deletes all fields that were written before it. Nor is a snapshot written of an event that a failover
-- lost: once its position is trimmed, nobody could tell.
--
-- Reply: {1} written; {0} events were erased, or the log does not have the event at the snapshot's position

if redis.call('ZCARD', ERASED) ~= COUNT then return {0} end
local entry = redis.call('XRANGE', LOG, STREAM_ID, STREAM_ID)[1]
local seq = seq_of(STREAM_ID)
if entry then
  if (field_of(entry, 'id') or '') ~= EVENT_ID then return {0} end
elseif seq > seq_of(redis.call('GET', FLOOR)) and not redis.call('ZSCORE', ERASED, string.format('%d', seq)) then
  return {0}
end
redis.call('HSET', SNAPSHOTS, FIELD, VALUE)
return {1}
