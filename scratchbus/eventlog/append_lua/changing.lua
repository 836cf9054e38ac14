-- Changing a subject: the guard of each op, the transition from one status to another, and the change itself.

local change

-- Created on first use, like everything that only some appends need: creating a function costs Lua as much as a
-- command costs the engine.

function change(...)
  -- Whether an event of the page after this id rests on one of these observations.

  local function has_more_to_rest(since, ids)
    local wanted = {}
    for id in gmatch(ids, '%w+') do wanted[id] = true end
    while true do
      local entries = call('XRANGE', LOG, '(' .. since, END, 'COUNT', 256)
      for _, entry in ipairs(entries) do
        if field_of(entry, 'page') == PAGE then
          for list in gmatch(field_of(entry, 'event') or '', '"evidence":%[(.-)%]') do
            for id in gmatch(list, '%w+') do
              if wanted[id] then return true end
            end
          end
        end
        since = entry[1]
      end
      if #entries < 256 then return false end
    end
  end

  -- Whether an observation would block itself, directly or through others, if these ids blocked it.

  local function is_circular(subject, blockers, seen)
    for id in gmatch(blockers, '%w+') do
      if id == subject then return true end
      local head = not seen[id] and load_head(id)
      seen[id] = true
      if head and is_circular(subject, blockers_of(head.tags), seen) then return true end
    end
  end

  -- By op: nil if the guard passes, with claim and attempts set to their new values; else the reason. `held` says
  -- whether there is a live claim, `status` is the current status.

  local guards = {}

  local function is_ours_as(name, head) return is_ours(head) and name_of(head.holder) == name end

  guards[@UPDATE@] = function(head, held, status, fence, argument, subject)
    if status == 'archived' or head.status_class == 'f' then return {'status', status, head.type} end
    if held and fence == '' and not is_ours_as(argument, head) then return claimed(head, subject) end
  end

  guards[@CHANGE_STATUS@] = guards[@UPDATE@]

  guards[@CLAIM@] = function(head, held, status, fence, argument, subject, id)
    if head.status_class == 'c' then return {'closed', status} end
    if head.status_class ~= 'o' or has_expired(head) then return {'status', status, head.type} end
    local ttl, holder = match(argument, '^(%d+):(.*)$')
    if held then
      if fence == '' or not is_ours_as(name_of(holder), head) then return claimed(head, subject) end
    else
      local blocking = blocker(head.tags)
      if blocking then return {'unready', blocking} end
      if is_scheduled(head) and tonumber(head.not_before) > now then return {'scheduled', tonumber(head.not_before)} end
      if head.holder ~= '' then emit(subject, head, id .. '.l', 'lapsed', own_body('@LAPSED@')) end
      head.fence = int(tonumber(head.fence) + 1)
    end
    head.holder, head.till = holder, int(now + tonumber(ttl))
  end

  -- If the picked observation is claimed, this worker claimed it before a restart, and that claim lapses.
  guards[@PICK@] = function(head, held, status, fence, argument, subject, id)
    head.tries = int((tonumber(head.tries) or 0) + 1)
    return guards[@CLAIM@](head, false, status, fence, argument, subject, id)
  end

  guards[@END_CLAIM@] = function(head, held, status, fence, argument, subject)
    if not held then return {'unheld'} end
    local delay, untried, name = match(argument, '^(%d+):([01]):(.*)$')
    if fence == '' and not is_ours_as(name, head) then return claimed(head, subject) end
    local tries = (tonumber(head.tries) or 0) - tonumber(untried)
    head.holder, head.till = '', '0'
    head.tries = tries > 0 and int(tries) or ''
    if not (is_scheduled(head) and tonumber(head.not_before) > now) then -- a schedule outlives the claim
      head.not_before = delay ~= '0' and int(now + tonumber(delay)) or ''
    end
  end

  guards[@LAPSE@] = function(head, held, status, fence, argument, subject)
    if head.holder == '' or held or head.fence ~= fence then return {'fence', tonumber(head.fence), subject} end
    head.holder, head.till = '', '0'
  end

  guards[@SETTLE@] = function(head, held, status, fence, argument)
    local since, ids = match(argument, '^([^:]+):(.*)$')
    if since and has_more_to_rest(since, ids) then return {'rested'} end
  end

  -- Changes the status; a subject that becomes open takes its key and room again. Returns nil, or the reason.

  local function move(subject, head, id, to, class)
    if head.status_class ~= 'o' and class == 'o' then
      local holder = head.dedupe_key ~= '' and key_holder(head.dedupe_key)
      if holder then
        if not has_expired(load_head(holder)) then return {'key', head.dedupe_key, holder} end
        retire(holder, id .. '.k', own_body('@EXPIRED@'))
      end
      if not make_room(tonumber(head.priority), id, subject) then return {'full'} end
      enter_open(subject, head)
    elseif head.status_class == 'o' and class ~= 'o' then
      leave_open(subject, head)
    end
    if head.status_class ~= class or class ~= 'o' then head.due_at = '0' end
    head.status, head.status_class, head.tries, head.not_before = to, class, '', ''
  end

  function change(k, at)
    local id, subject, kind, op = ARGV[at], ARGV[at + @SUBJECT@], ARGV[at + @KIND@], ARGV[at + @OP@]
    local version, allowed, to = ARGV[at + @VERSION@], ARGV[at + @ALLOWED@], ARGV[at + @STATUS@]
    local argument, fence, tags = ARGV[at + @ARGUMENT@], ARGV[at + @FENCE@], ARGV[at + @TAGS@]
    if op == @PICK@ then
      local min_priority, below, own, length, rest = match(argument, '^(%d+):(%d*):([%d-]+):(%d+):(.*)$')
      local idle
      argument = sub(rest, length + 1)
      subject, idle = pick(allowed, tags, tonumber(min_priority), below, own, sub(rest, 1, length))
      if not subject then return idle end
      allowed, tags = '', ''
    end
    local head = load_head(subject)
    if not head or head.status == 'cleared' or head.status == 'erased' then return {'missing'} end
    if version ~= '' and tonumber(version) ~= head.version then return {'version', tonumber(version), head.version} end
    local status, held = head.status, is_held(head)
    if has_expired(head) and op ~= @SETTLE@ and op ~= @NOTE@ then status = 'archived' end
    if fence ~= '' and op ~= @LAPSE@ and not (held and head.fence == fence) then
      return {'fence', tonumber(head.fence), subject}
    end
    if fence ~= '' and op ~= @LAPSE@ and not is_ours(head) then return claimed(head, subject) end
    if allowed ~= '' and not find(allowed, ',' .. status .. ',', 1, true) then return {'status', status, head.type} end
    local why = guards[op] and guards[op](head, held, status, fence, argument, subject, id)
    if not why and to ~= '' then why = move(subject, head, id, to, ARGV[at + @STATUS_CLASS@]) end
    if why then return why end
    if op == @CLEAR@ then
      if head.status_class == 'o' then leave_open(subject, head) end
      head.status, head.status_class, head.due_at = 'cleared', 'f', '0'
    end
    head.expires, head.due_at = later(ARGV[at + @EXPIRES@], head.expires), later(ARGV[at + @DUE_AT@], head.due_at)
    head.not_before = later(ARGV[at + @NOT_BEFORE@], head.not_before)
    if head.not_before == '0' then head.not_before = '' end
    if tags ~= '' then
      local blockers = match(tags, '[^,]*$')
      tags = sub(tags, 1, #tags - #blockers)
      if is_circular(subject, blockers, {}) then return {'circular'} end
      if tags == '' then tags = sub(head.tags, 1, #head.tags - #blockers_of(head.tags)) end
      if blockers == '' then blockers = blockers_of(head.tags) end
      head.tags = tags .. (blockers == '%' and '' or blockers)
    end
    local seq = emit(subject, head, id, kind, ARGV[at + @BODY@])
    results[k] = {seq, head.version, kind, subject, tonumber(head.fence)}
  end

  return change(...)
end
