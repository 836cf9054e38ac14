-- Restores the head of an observation that was dropped, from its document or, if it is paged out, its events.
--
-- SOURCE is a hash, FIELD a field and VALUE its value as read ('' for none): the document, or the word that is another
-- each time entries were paged in or left the engine.
-- Reply: {1} the head is there; {0} it is not: the source has changed

if redis.call('HEXISTS', HEADS, SUBJECT) == 0 then
  if (redis.call('HGET', SOURCE, FIELD) or '') ~= VALUE then return {0} end
  redis.call('HSET', HEADS, SUBJECT, HEAD)
end
return {1}
