-- Room: expired observations give way first, then the lowest and oldest one that is neither claimed, nor scheduled, nor
-- part of this batch.

-- PAGES holds, for each page, a time before which no open observation expires, so a full page is seldom searched.

local stored = call('HGET', PAGES, PAGE)
local soonest = tonumber(stored or '') and stored -- else it was set by hand: write it again

local function note_expiry(ms)
  if not soonest then soonest = @FOREVER@ end
  if ms ~= '0' and tonumber(ms) < tonumber(soonest) then soonest = ms end
end

local clear_room
local displaced = {}

function clear_room(...) -- created on first use
  -- On a page with more than 1,000 open observations, only those that the projection has marked as due are found.

  local function expired_here()
    local out, candidates = {}, {}
    if soonest and tonumber(soonest) > now then return out end
    if size <= 1000 then
      candidates = call('ZRANGE', OPEN, 0, -1)
      soonest = @FOREVER@
    else
      local prefix = @PREFIX(TAIL)@
      local checkpoint = prefix .. @CHECKPOINT_KEY@
      local build = match(call('GET', checkpoint) or '', @CHECKPOINT(build)@) or '1'
      local due = prefix .. @BUILD_KEY(build, due)@
      for _, member in ipairs(call('ZRANGEBYSCORE', due, '-inf', NOW, 'LIMIT', 0, 1000)) do
        local subject, page = match(member, '^([^@]+)@(.*)$')
        if page == PAGE then candidates[#candidates + 1] = subject end
      end
    end
    for _, subject in ipairs(candidates) do
      local head = load_head(subject)
      if head and not left[subject] then
        if has_expired(head) then
          out[#out + 1] = subject
        elseif size <= 1000 and head.expires ~= '0' and tonumber(head.expires) < tonumber(soonest) then
          soonest = head.expires
        end
      end
    end
    return out
  end

  local mine -- the subjects of this batch, which are never displaced by it

  local function members()
    local out = {}
    for k = 1, count do
      local at = start(k)
      out[ARGV[at + @SUBJECT@]] = true
      local key = ARGV[at + @OP@] == @ADD@ and key_of(ARGV[at + @ARGUMENT@])
      local holder = key and key_holder(key)
      if holder then out[holder] = true end
    end
    return out
  end

  -- Returns true if there is room once members added to the open set by hand are left out.

  local function victim(priority)
    local from = 0
    mine = mine or members()
    while true do
      local rows = call('ZRANGE', OPEN, from, from + (from == 0 and 3 or 63))
      if #rows == 0 then return nil end
      for _, subject in ipairs(rows) do
        if not left[subject] and not mine[subject] then
          local head = load_head(subject)
          if not head then -- added by hand
            left[subject] = true
            size = size - 1
            if size < ROOM then return true end
          elseif tonumber(head.priority) > priority then
            return nil
          elseif not is_held(head) and not is_scheduled(head) then
            return subject
          end
        end
      end
      from = from + #rows
    end
  end

  function clear_room(priority, id, subject)
    local n = 0
    for _, old in ipairs(expired_here()) do
      n = n + 1
      retire(old, id .. '.x' .. n, own_body('@EXPIRED@'))
    end
    while size >= ROOM do
      local old = ON_FULL == 'displace' and victim(priority)
      if not old then return false end
      if old ~= true then
        n = n + 1
        displaced[#displaced + 1], displaced[#displaced + 2] = old, subject
        retire(old, id .. '.d' .. n, (string.gsub(own_body('@DISPLACED@'), '#new#', subject, 1)))
      end
    end
    return true
  end

  return clear_room(...)
end

local function make_room(priority, id, subject)
  return ROOM == 0 or open_size() < ROOM or clear_room(priority, id, subject)
end
