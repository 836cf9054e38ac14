-- Adding: nil when it may happen (and then it has, in the overlay), or why not.

local results = {}

local function repeat_it(k, at, holder, held, body)
  local fence = ARGV[at + 15]
  if fence ~= '' and not (is_held(held) and held.fence == fence) then
    return {'fence', tonumber(held.fence), holder}
  end
  held.expires = later(ARGV[at + 12], held.expires)
  local seq = emit(holder, held, ARGV[at], 'repeated', body)
  results[k] = {seq, held.version, 'repeated', holder, tonumber(held.fence)}
end

local function add(k, at)
  local id, subject, kind, argument = ARGV[at], ARGV[at + 2], ARGV[at + 3], ARGV[at + 14]
  local priority, head, key = ARGV[at + 11], load_head(subject), ''
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
  if ARGV[at + 15] ~= '' then return {'fence', 0, subject} end
  if not make_room(tonumber(priority), id, subject) then return {'full'} end
  head = {
    version = 0, status = ARGV[at + 9], class = ARGV[at + 10], type = ARGV[at + 4], priority = priority,
    added = int(last_seq + #plan + 1), expires = later(ARGV[at + 12], '0'), wake = later(ARGV[at + 13], '0'),
    fence = '0', holder = '', till = '0', pos = '', tries = '', rest = '', tags = ARGV[at + 16], key = key,
  }
  heads[subject] = head
  enter_open(subject, head)
  local seq = emit(subject, head, id, kind, ARGV[at + 5])
  results[k] = {seq, 1, kind, subject, 0}
end

local function put(k, at)
  local subject, kind, version = ARGV[at + 2], ARGV[at + 3], ARGV[at + 7]
  local head = load_head(subject)
  if version == 'new' then
    if head then return {'version', 0, head.version} end
  elseif version ~= '' and tonumber(version) ~= (head and head.version or 0) then
    return {'version', tonumber(version), head and head.version or 0}
  end
  if not head then
    head = {
      version = 0, status = 'active', class = 'c', type = ARGV[at + 4], priority = '0',
      added = int(last_seq + #plan + 1), expires = '0', wake = '0', fence = '0', holder = '', till = '0', pos = '',
      tries = '', rest = '', tags = '', key = '',
    }
    heads[subject] = head
  end
  local seq = emit(subject, head, ARGV[at], kind, ARGV[at + 5])
  results[k] = {seq, head.version, kind, subject, 0}
end
