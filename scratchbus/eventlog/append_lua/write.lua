-- Check one event after the other, against the heads as the events before it leave them.

for k = 1, count do
  local at = start(k)
  local op = ARGV[at + @OP@]
  local why = (op == @ADD@ and add or op == @PUT@ and put or change)(k, at)
  if why then
    if MODE == 'all' then
      local reply = {'refused', k, unpack(why)}
      return reply
    end
    results[k] = {0, 0, why[1], ARGV[at + @SUBJECT@], 0}
  end
end

-- All checks passed: write.

local total = #plan
if total > 0 then
  local why = blocked()
  if why then return why end
  local batches = MODE == 'all'
  for i, event in ipairs(plan) do
    local failed = write_entry(event, batches and i .. '/' .. total or '1/1')
    if failed then return blocked_by_id() or failed end
  end
  if not tail then call('SET', ORIGIN, NEW_ORIGIN .. '.' .. time[1] .. '.' .. time[2]) end
  call('SET', TAIL, @LAST_TEXT(plan[total].position, plan[total].id)@)

  local function write_all(command, key, list)
    for from = 1, #list, 1000 do call(command, key, unpack(list, from, math.min(from + 999, #list))) end
  end
  local rows, scores, gone = {}, {}, {}
  for subject, head in pairs(touched) do
    rows[#rows + 1] = subject
    rows[#rows + 1] = head_text(head)
    if head.status_class == 'o' then note_expiry(head.expires) end
  end
  write_all('HSET', HEADS, rows)
  if not stored or soonest ~= stored then call('HSET', PAGES, PAGE, soonest or @FOREVER@) end
  for subject, score in pairs(entered) do
    scores[#scores + 1] = score
    scores[#scores + 1] = subject
  end
  write_all('ZADD', OPEN, scores)
  for subject in pairs(left) do gone[#gone + 1] = subject end
  write_all('ZREM', OPEN, gone)
  for key in pairs(rekeyed) do
    local holder = keys[key]
    if holder then call('HSET', DEDUPE, key, holder) else call('HDEL', DEDUPE, key) end
  end

  local bucket = IDS .. int(math.floor(now / @DAY@))
  for k = 1, count do
    local at = start(k)
    if ARGV[at + @DIGEST@] ~= '' and results[k][1] > 0 then
      if remember(bucket, at, NOW .. '-' .. int(results[k][1])) == 1
        and call('HLEN', bucket) == 1 then
        for day = DAYS + 1, DAYS + 60 do call('DEL', IDS .. int(math.floor(now / @DAY@) - day)) end
      end
    end
  end
end

local reply = {'written', now, total}
for k = 1, count do
  local r = results[k]
  for f = 1, 5 do reply[#reply + 1] = r[f] end
end
for _, id in ipairs(displaced) do reply[#reply + 1] = id end
if hint then reply[#reply + 1] = hint end
return reply
