-- Shared piece: who may write, by fence_entry.lua.
--
-- fence(key, field, uid, generation) -> nil when the speaker may write, or why not:
--   unfenced   no entry, or the uid or generation is newer than the entry: advance the fence, then try again
--   older      an older generation than the highest seen
--   retired    the uid was deleted or replaced
--   held       the resource is paused by its annotation
--   unreadable the entry is not ours to understand
local function fence(key, field, uid, generation)
  local entry = fence_entry(key, field)
  if not entry then return 'unreadable' end
  if entry.have ~= uid then
    if fence_is_retired(entry, uid) then return 'retired' end
    return 'unfenced'
  end
  if tonumber(generation) < tonumber(entry.highest) then return 'older' end
  if tonumber(generation) > tonumber(entry.highest) then return 'unfenced' end
  if entry.held == '1' then return 'held' end
  return nil
end

