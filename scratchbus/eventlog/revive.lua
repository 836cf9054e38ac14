-- Puts back the head of an observation that was dropped, as its document or, paged out, its events have it.
--
-- KEYS  1 heads  (2: a key that never exists, see keys.py)
-- ARGV  1 subject  2 head  3 a hash, 4 a field and 5 its value as it was read: the document, or where the
--       events are
-- Reply: {1} the head is there; {0} it is not, since that is another by now

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  if redis.call('HGET', ARGV[3], ARGV[4]) ~= ARGV[5] then return {0} end
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
return {1}
