-- Writes a field of a page's snapshots, unless events were erased since the snapshot was begun: it may contain them. An
-- erasure itself deletes all fields that were written before it.
--
-- Reply: {1} written; {0} events were erased

if redis.call('ZCARD', ERASED) ~= COUNT then return {0} end
redis.call('HSET', SNAPSHOTS, FIELD, VALUE)
return {1}
