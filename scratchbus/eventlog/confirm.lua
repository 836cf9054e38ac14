-- Writes the end of the log again, so that a WAIT after this covers everything written before.
--
-- Reply: {1}

local tail = redis.call('GET', TAIL)
if tail then redis.call('SET', TAIL, tail) end
return {1}
