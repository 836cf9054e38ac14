-- Puts back the head of an observation that was dropped, as its document or, paged out, its events have it.
--
-- SOURCE is a hash, FIELD a field and VALUE its value as it was read: the document, or where the events are.
-- Reply: {1} the head is there; {0} it is not, since the source has changed

if redis.call('HEXISTS', HEADS, SUBJECT) == 0 then
  if redis.call('HGET', SOURCE, FIELD) ~= VALUE then return {0} end
  redis.call('HSET', HEADS, SUBJECT, HEAD)
end
return {1}
