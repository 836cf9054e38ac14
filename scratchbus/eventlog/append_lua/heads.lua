-- Heads as this batch leaves them, read on first use (false: there is none). Values read as digits stay text until
-- they are compared: printing numbers is slow.

local heads, touched = {}, {}

local function new_head(status, status_class, type, priority, added) return @NEW_HEAD_TABLE@ end

local function load_head(subject)
  local head = heads[subject]
  if head == nil then
    local row = call('HGET', HEADS, subject)
    head = false
    if row then
      local @HEAD_VARIABLES@ = match(row, @HEAD@)
      head = version and @HEAD_TABLE@ -- else it was written by hand
    end
    heads[subject] = head
  end
  return head
end

local function head_text(head) return @HEAD_TEXT@ end

local function has_expired(head) return head.status_class == 'o' and head.expires ~= '0' and tonumber(head.expires) <= now end
local function is_held(head) return head.holder ~= '' and tonumber(head.till) > now end

-- A holder is a name and, after "#", the owner token of the connection. Old claims lack it: any connection passes.

local function name_of(holder) return match(holder, '^[^#]*') end
local function owner_of(holder) return match(holder, '#(.*)$') end
local function is_ours(head) return (owner_of(head.holder) or OWNER) == OWNER end
local function claimed(head, subject) return {'claimed', name_of(head.holder), tonumber(head.till), subject} end

-- A scheduled observation is due when it may first be picked.

local function is_scheduled(head) return head.not_before ~= '' and head.not_before == head.due_at end

-- After the last comma of its tags a head has the ids that block it; see `encode_tags` in codec.py.

local function blockers_of(head_tags) return sub(head_tags, -1) ~= ',' and match(head_tags, '[^,]*$') or '' end

-- Returns an open observation that blocks one with these tags, and when it expires ("0": never); nil if there is none.

local function blocker(head_tags)
  for id in gmatch(blockers_of(head_tags), '%w+') do
    local head = load_head(id)
    if head and head.status_class == 'o' and not has_expired(head) then return id, head.expires end
  end
end

-- The open set and the keys as this batch leaves them.

local size, entered, left, keys, rekeyed = nil, {}, {}, {}, {}

local function open_size()
  if size == nil then size = call('ZCARD', OPEN) end
  return size
end

local function key_of(argument)
  local length, rest = match(argument, '^(%d+):(.*)$')
  if length then return sub(rest, length + 1), sub(rest, 1, length) end
end

local function key_holder(key)
  local holder = keys[key]
  if holder == nil then
    holder = call('HGET', DEDUPE, key)
    if holder and not load_head(holder) then holder = false end -- the key was set, or the head deleted, by hand
    keys[key] = holder
  end
  return holder
end

local function write_entry(event, batch)
  local id, subject, kind, type, prev, body = event.id, event.subject, event.kind, event.type, event.prev, event.body
  return add_entry(event.position, @ENTRY@)
end

-- The plan: the events to write, in order. A batch refused half-way has changed only these tables.

local plan = {}

local function own_body(template) return (string.gsub(template, '#by#', BY, 1)) end

local function emit(subject, head, id, kind, body)
  local seq = last_seq + #plan + 1
  local position = NOW .. '-' .. int(seq)
  plan[#plan + 1] = {
    position = position, id = id, subject = subject, kind = kind, type = head.type, body = body, prev = head.position,
  }
  head.version = head.version + 1
  head.position = position
  touched[subject] = head
  return seq
end

local function leave_open(subject, head)
  open_size()
  size = size - 1
  entered[subject] = nil
  left[subject] = true
  if head.dedupe_key ~= '' then keys[head.dedupe_key], rekeyed[head.dedupe_key] = false, true end
  head.holder, head.till = '', '0'
end

local function enter_open(subject, head)
  open_size()
  size = size + 1
  left[subject] = nil
  entered[subject] = int(tonumber(head.priority) * @SPAN@ + tonumber(head.added))
  if head.dedupe_key ~= '' then keys[head.dedupe_key], rekeyed[head.dedupe_key] = subject, true end
end

local function retire(subject, id, body)
  local head = load_head(subject)
  leave_open(subject, head)
  head.status, head.status_class, head.due_at, head.tries, head.not_before = 'archived', 'f', '0', '', ''
  emit(subject, head, id, 'status_changed', body)
end
