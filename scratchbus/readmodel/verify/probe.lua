-- Runs several reads atomically; the reply also has the tail of the log and the checkpoint of the state.
--
-- Reply: {tail, checkpoint, a reply for each command}

local reply = {redis.call('GET', TAIL) or '', redis.call('GET', CHECKPOINT) or ''}
for _, each in ipairs(run_commands()) do reply[#reply + 1] = each end
return reply
