-- Adding: returns nil if the event may be added (it is then in the plan), or the reason for the refusal.

local results = {} -- per event: seq, version, kind, subject, fence

-- An open observation has the key: count one more occurrence.

local function repeat_it(k, at, holder, held, body)
  local fence = ARGV[at + @FENCE@]
  if fence ~= '' and not (is_held(held) and held.fence == fence) then
    return {'fence', tonumber(held.fence), holder}
  end
  if fence ~= '' and not is_ours(held) then return claimed(held, holder) end
  held.expires = later(ARGV[at + @EXPIRES@], held.expires)
  local seq = emit(holder, held, ARGV[at], 'repeated', body)
  results[k] = {seq, held.version, 'repeated', holder, tonumber(held.fence)}
end

local function add(k, at)
  local id, subject, kind, argument = ARGV[at], ARGV[at + @SUBJECT@], ARGV[at + @KIND@], ARGV[at + @ARGUMENT@]
  local priority, head, key = ARGV[at + @PRIORITY@], load_head(subject), ''
  if argument ~= '' then
    local repeated
    key, repeated = key_of(argument)
    local holder = key_holder(key)
    if holder then
      local held = load_head(holder)
      if not has_expired(held) then return repeat_it(k, at, holder, held, repeated) end
      retire(holder, id .. '.k', own_body('@EXPIRED@'))
    end
  end
  if head then return {'version', 0, head.version} end
  if ARGV[at + @FENCE@] ~= '' then return {'fence', 0, subject} end
  if not make_room(tonumber(priority), id, subject) then return {'full'} end
  head = new_head(ARGV[at + @STATUS@], ARGV[at + @STATUS_CLASS@], ARGV[at + @TYPE@], priority, int(last_seq + #plan + 1))
  head.expires, head.due_at = later(ARGV[at + @EXPIRES@], '0'), later(ARGV[at + @DUE_AT@], '0')
  head.tags, head.dedupe_key, head.not_before = ARGV[at + @TAGS@], key, ARGV[at + @NOT_BEFORE@]
  heads[subject] = head
  enter_open(subject, head)
  local seq = emit(subject, head, id, kind, ARGV[at + @BODY@])
  results[k] = {seq, 1, kind, subject, 0}
end

local put

function put(...) -- created on first use
  -- The id is a prefix followed by the time (ms), or by the next free number: all later ones are free up to a limit.

  local function next_free(prefix)
    local taken, step = now, 1
    if not load_head(prefix .. NOW) then return prefix .. NOW end
    while load_head(prefix .. int(taken + step)) do
      taken, step = taken + step, step * 2
    end
    local free = taken + step
    while free - taken > 1 do
      local middle = math.floor((taken + free) / 2)
      if load_head(prefix .. int(middle)) then taken = middle else free = middle end
    end
    return prefix .. int(free)
  end

  local function path_in(body) return match(body, '"path":"(.-[^\\])"') end -- a path has no backslash: it is an escape

  -- Whether a text has been written after this id whose path is above or below that of a body.

  local function is_path_taken(since, body)
    local own = path_in(body)
    for _ = 1, 20 do
      local entries = call('XRANGE', LOG, '(' .. since, END, 'COUNT', 256)
      for _, entry in ipairs(entries) do
        if field_of(entry, 'kind') == 'text_written' and field_of(entry, 'page') == PAGE then
          local other = path_in(field_of(entry, 'event') or '') or ''
          if sub(other, 1, #own + 1) == own .. '/' or sub(own, 1, #other + 1) == other .. '/' then return true end
        end
        since = entry[1]
      end
      if #entries < 256 then return false end
    end
    return true -- too long ago to tell
  end

  -- A versioned subject: it takes no room, and has a status only if the op gives one.

  function put(k, at)
    local subject, kind, version = ARGV[at + @SUBJECT@], ARGV[at + @KIND@], ARGV[at + @VERSION@]
    local scope, since = match(ARGV[at + @ARGUMENT@], '^(%l*):?(.*)$')
    local status = ARGV[at + @STATUS@]
    local over = scope ~= '' and load_head(scope)
    if over and over.status_class == 'f' then return {'over'} end
    if match(subject, '^%l+_$') then subject = next_free(subject) end
    local head = load_head(subject)
    if version == 'new' then
      if head then return {'version', 0, head.version} end
    elseif version ~= '' and tonumber(version) ~= (head and head.version or 0) then
      return {'version', tonumber(version), head and head.version or 0}
    end
    if since ~= '' and is_path_taken(since, ARGV[at + @BODY@]) then
      return {'version', head and head.version or 0, head and head.version or 0}
    end
    if not head then
      head = new_head('active', 'c', ARGV[at + @TYPE@], '0', int(last_seq + #plan + 1))
      heads[subject] = head
    end
    if status ~= '' then
      head.status, head.status_class = status, ARGV[at + @STATUS_CLASS@]
    elseif head.status == 'erased' then
      head.status, head.status_class = 'active', 'c'
    end
    local seq = emit(subject, head, ARGV[at], kind, ARGV[at + @BODY@])
    results[k] = {seq, head.version, kind, subject, 0}
  end

  return put(...)
end
