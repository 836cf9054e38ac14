-- Puts back the head of an observation that was dropped below the floor, as its document has it.
--
-- KEYS  1 heads  (2: a key that never exists, see keys.py)
-- ARGV  1 subject  2 head  3 key of the documents  4 document as it was read
-- Reply: {1} the head is there; {0} it is not, since the document is another by now

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  if redis.call('HGET', ARGV[3], ARGV[1]) ~= ARGV[4] then return {0} end
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
return {1}
