-- Several reads in one consistent look, with where the log ends and how far the state is folded.
--
-- Reply: {tail, checkpoint, a reply for each command}

local reply = {redis.call('GET', TAIL) or '', redis.call('GET', CHECKPOINT) or ''}
for _, each in ipairs(run_commands()) do reply[#reply + 1] = each end
return reply
