-- Removes the entries behind the tail of the log, which were added by hand; called until nothing is left to do.
--
-- No engine lowers the last id of a stream below an entry that it had. While that id is ahead of the time, no event can
-- be appended; then the events are copied to a stream without such an id, some with each call, and it becomes the log.
-- Meanwhile the archiver may trim the log, and events are appended if the time catches up: the copy continues, or
-- begins again if it does not have the same number of events as the log.
--
-- Reply: {"removed", entry, …} call again; {"copied", events so far} call again; {"replaced"} and {"sound"} it is done;
--        {"refused"} the tail is lost or damaged, and the entries behind it may be events

local call, match = redis.call, string.match
local AT_ONCE = 500

local tail, last = call('GET', TAIL), '0-0'
if tail then
  local event_id
  last, event_id = match(tail, @LAST@)
  local found = last and match(last, @STREAM_ID@) and call('XRANGE', LOG, last, last)[1]
  if not found or (field_of(found, 'id') or '') ~= event_id then return {'refused'} end
elseif call('EXISTS', PAGES) == 1 then -- there were events
  return {'refused'}
end

local entries = call('XRANGE', LOG, '(' .. last, '+', 'COUNT', AT_ONCE)
if #entries > 0 then
  local ids, reply = {}, {'removed'}
  for i, entry in ipairs(entries) do
    ids[i] = entry[1]
    reply[i + 1] = entry
  end
  call('XDEL', LOG, unpack(ids))
  return reply
end

local last_stream_id = last_id()
if not is_above(last_stream_id, last) or not is_above(last_stream_id, int(now) .. '-0') then -- the next event is above it
  call('DEL', REPAIRED)
  return {'sound'}
end
if not tail then
  call('DEL', LOG, REPAIRED)
  return {'replaced'}
end

local copied = call('XREVRANGE', REPAIRED, '+', '-', 'COUNT', 1)[1]
if copied then -- a repair that was killed may have left a copy of a log that was replaced since
  local same = call('XRANGE', LOG, copied[1], copied[1])[1]
  if not same or field_of(same, 'id') ~= field_of(copied, 'id') then
    call('DEL', REPAIRED)
    return {'copied', 0}
  end
end
local batch = call('XRANGE', LOG, copied and '(' .. copied[1] or '-', last, 'COUNT', AT_ONCE)
for _, entry in ipairs(batch) do call('XADD', REPAIRED, entry[1], unpack(entry[2])) end
if #batch == AT_ONCE then return {'copied', call('XLEN', REPAIRED)} end
if call('XLEN', REPAIRED) ~= call('XLEN', LOG) then
  call('DEL', REPAIRED)
  return {'copied', 0}
end
call('RENAME', REPAIRED, LOG)
return {'replaced'}
