-- Reading entries of the log, and stored texts that begin with a stream id.

local function field_of(entry, name)
  local fields = entry[2]
  for f = 1, #fields, 2 do
    if fields[f] == name then return fields[f + 1] end
  end
end

local function seq_of(text) return tonumber(string.match(text or '', @SEQ@) or 0) end
