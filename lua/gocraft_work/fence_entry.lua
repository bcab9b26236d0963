-- Shared piece: an entry of the hash of fences.
--
-- The hash has one field for each resource, `cluster/kind/namespace/name`, with four words: uid, highest generation seen,
-- 1 while held or 0, and the retired uids with commas between (may be empty). A retired resource without a successor has
-- `-` for its uid.
--
-- fence_entry(key, field) -> {have, highest, held, retired}; that of no entry where there is none; nil where it is not ours
-- to understand. The second value is the text that is there, or false. Uses need.lua.
local function fence_entry(key, field)
  local text = need('hash', 'HGET', key, field)
  if not text then return {have = '-', highest = '0', held = '0', retired = ''}, false end
  local have, highest, held, retired = string.match(text, '^(%S+) (%d+) ([01]) ?(%S*)$')
  if not have then return nil, text end
  return {have = have, highest = highest, held = held, retired = retired}, text
end

local function fence_is_retired(entry, uid)
  return string.find(',' .. entry.retired .. ',', ',' .. uid .. ',', 1, true) ~= nil
end

-- Keeps the last 16: older ones belong to replicas that were cut off for as many re-creations.
local function fence_retire(entry, uid)
  if uid ~= '-' and not fence_is_retired(entry, uid) then
    local ids = {}
    for each in string.gmatch(entry.retired, '[^,]+') do ids[#ids + 1] = each end
    ids[#ids + 1] = uid
    while #ids > 16 do table.remove(ids, 1) end
    entry.retired = table.concat(ids, ',')
  end
  if entry.have == uid then entry.have, entry.highest, entry.held = '-', '0', '0' end
end

local function fence_text(entry)
  return entry.have .. ' ' .. entry.highest .. ' ' .. entry.held .. ' ' .. entry.retired
end

