-- Runs the commands in the arguments from FIRST on (see `packed` in engine/scripts.py), and returns their replies.
-- Two commands are not the engine's, and have no reply:
--   UNLIST hash field key: deletes the field unless the key exists.
--   ADDITIONS: stores additions to a page, and adds them to indexes. Its arguments:
--     the key of the documents; the key of the due set ('' if none is ever due); the text after an id in its members;
--     the number of additions; the seq of the first ('' if their seqs have gaps); the id and the document of each;
--     if there is a due set, when each is due ('' for never); if there are gaps, the seq of each;
--     then the key of each index, with the numbers, from 0, of the additions in it, two bytes each.

local MAX_ARGUMENTS = 2000 -- arguments of one command; unpack fails near 8,000

local function call_with(verb, key, arguments, from, to)
  for at = from, to, MAX_ARGUMENTS do
    redis.call(verb, key, unpack(arguments, at, math.min(at + MAX_ARGUMENTS - 1, to)))
  end
end

local function add(at, last)
  local docs, due, behind, count, first = unpack(ARGV, at, at + 4)
  count, first, at = tonumber(count), tonumber(first), at + 5
  call_with('HSET', docs, ARGV, at, at + 2 * count - 1)
  local ids, seqs, moments, k = {}, {}, {}, 0
  for n = 1, count do
    ids[n] = ARGV[at + 2 * n - 2]
  end
  at = at + 2 * count
  if due ~= '' then
    for n = 1, count do
      local moment = ARGV[at + n - 1]
      if moment ~= '' then
        moments[k + 1], moments[k + 2], k = moment, ids[n] .. behind, k + 2
      end
    end
    call_with('ZADD', due, moments, 1, k)
    at = at + count
  end
  for n = 1, count do
    seqs[n] = first and first + n - 1 or ARGV[at + n - 1]
  end
  for each = first and at or at + count, last, 2 do
    local key, numbers, members, size = ARGV[each], ARGV[each + 1], {}, 0
    for from = 1, #numbers, MAX_ARGUMENTS do
      local bytes = {string.byte(numbers, from, from + MAX_ARGUMENTS - 1)}
      for b = 1, #bytes, 2 do
        local n = bytes[b] * 256 + bytes[b + 1] + 1
        members[size + 1], members[size + 2], size = seqs[n], ids[n], size + 2
      end
    end
    call_with('ZADD', key, members, 1, size)
  end
end

local function run_commands()
  local replies, at = {}, FIRST
  while at <= #ARGV do
    local width = tonumber(ARGV[at])
    local verb = ARGV[at + 1]
    if verb == 'UNLIST' then
      if redis.call('EXISTS', ARGV[at + 4]) == 0 then redis.call('HDEL', ARGV[at + 2], ARGV[at + 3]) end
    elseif verb == 'ADDITIONS' then
      add(at + 2, at + width)
    else
      replies[#replies + 1] = redis.call(unpack(ARGV, at + 1, at + width))
    end
    at = at + width + 1
  end
  return replies
end
