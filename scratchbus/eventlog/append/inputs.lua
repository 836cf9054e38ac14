-- The only writer of the log: checks a whole batch first, then writes all of it.
--
-- KEYS  1 log  2 tail  3 origin  4 pages  5 heads  6 open  7 dedupe keys  8 prefix of the id hashes
-- ARGV  1 mode: "all" (all or nothing) or "each" (skip what is refused)      2 page
--       3 room (0: no limit)    4 what to do when full: "displace" or "refuse"
--       5 days that callers' event ids are remembered    6 scan the log after this id for a lost reply ("" not)
--       7 a random word for the origin of a new log      8 who asks: the `by` of what the script has to add itself
--       9 the owner token of the connection that asks
--      10 … events, each of 17 fields; @NAME@ is the number of one, counted from 0 (`FIELDS` in writes.py):
--         id, digest ("<digest> <who wrote it, as JSON>", "" when the id is not the caller's), subject, kind,
--         type ("" as it is), body,
--         op, version ("new", "" any, or a number), allowed statuses (",a,b," or "" any),
--         status and class (o, c, f; both "" as they are), priority (of what is added),
--         expires, wake ("" as they are, "0" never, "+ms" from now, or ms), argument, fence,
--         tags (",a,b,", "," for none, or "" as they are)
--
-- op says how the event is guarded; `argument` belongs to it:
--   a  add: takes room and, when `argument` is not "", that dedupe key: "<length of the body of repeated>:<body><key>"
--   u  change: not when final, nor while someone else than `argument` holds a live claim
--   s  change of status, guarded like u
--   x  change of status by time or refutation: no claim stops it, and a passed expiry neither; with `argument`
--      "<stream id>:<ids>" not when something on the page was said since then to rest on one of these
--   n  a note on it: no guard but existence      d  off the page: like n, and it leaves for good
--   c  claim: `argument` is "<ttl ms>:<holder>", where the holder is a name or "<name>#<owner token>"
--   l  lapse of `fence`
--   p  pick and claim, alone in its batch: the first that is free, in the order of the open set, of the types in
--      `allowed` and with all `tags`; `argument` is
--      "<least priority>:<score to look below, or "">:<stream id>:<ttl ms>:<holder>". What is held by
--      the owner token of this connection is picked too, and its claim lapses, if nothing happened to it after that
--   e  end a claim: `argument` is "<ms in which it is not to be picked>:<1 if this was no attempt, else 0>:<name>"
--   g  a versioned subject without lifecycle; not when the subject `argument` of the page is final. One that ends in
--      "_" gets the time (ms) behind it, or the next that is free
--
-- A fence counts only from the connection that holds the claim: one with the same owner token.
--
-- Reply: {"written", ms, then per event: seq, version, kind, subject, fence}     seq 0: skipped, kind says why
--        {"added", ms, first seq}                                               written, as they came: all of them new
--        {"known", stream id, …}                                                all events were here before
--        {"refused", index, reason, …}                                          nothing was written; nobody waits for
--                                                                               the answer when the reason is "late"
-- Nothing to pick is the reason "idle", with: ms, when something may be free (ms, 0 never), below which score to look
-- on ("" at the end), and the priority of what is free but has less than the least (-1: nothing)

local LOG, TAIL, ORIGIN, PAGES, HEADS, OPEN, DEDUPE, IDS =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local MODE, PAGE, ROOM, FULL, DAYS, SCAN = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5]), ARGV[6]
local BY, OWNER, FIRST, WIDTH = ARGV[8], ARGV[9], 10, 17
local DAY = 86400000
local FOREVER = '9007199254740991' -- no moment (ms) is later: 2^53 - 1
local SPAN = 70368744177664 -- 2^46: an open score is priority * SPAN + seq of the event that added it
local call, format, match, gmatch, find, sub =
  redis.call, string.format, string.match, string.gmatch, string.find, string.sub
local count = (#ARGV - FIRST + 1) / WIDTH

-- The time is the engine's, and never before the last event's; seq goes on from that event's.

local time = call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local last_seq = 0
local tail = call('GET', TAIL)
if tail then
  local last_ms, seq = match(tail, '^(%d+)-(%d+)')
  last_seq = tonumber(seq)
  if tonumber(last_ms) > now then now = tonumber(last_ms) end
end

local function int(n) return format('%.0f', n) end -- as itself, numbers print in 14 digits

local MS = int(now)

local function start(k) return FIRST + (k - 1) * WIDTH end

local function later(text, current)
  if text == '' then return current end
  if sub(text, 1, 1) == '+' then return int(now + tonumber(sub(text, 2))) end
  return text
end
