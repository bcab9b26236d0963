-- Shared piece: who may write.
--
-- The hash of fences has one field for each resource, `cluster/kind/namespace/name`, with four words:
-- uid, highest generation seen, 1 while held or 0, and the retired uids with commas between (may be empty).
-- A retired resource without a successor has `-` for its uid.
--
-- fence(key, field, uid, generation) -> nil when the speaker may write, or why not:
--   unfenced   no entry, or the uid or generation is newer than the entry: advance the fence, then try again
--   older      an older generation than the highest seen
--   retired    the uid was deleted or replaced
--   held       the resource is paused by its annotation
--   unreadable the entry is not ours to understand
local function fence(key, field, uid, generation)
  local entry = redis.call('HGET', key, field)
  if not entry then return 'unfenced' end
  local have, highest, held, retired = string.match(entry, '^(%S+) (%d+) ([01]) ?(%S*)$')
  if not have then return 'unreadable' end
  if have ~= uid then
    if string.find(',' .. retired .. ',', ',' .. uid .. ',', 1, true) then return 'retired' end
    return 'unfenced'
  end
  if tonumber(generation) < tonumber(highest) then return 'older' end
  if tonumber(generation) > tonumber(highest) then return 'unfenced' end
  if held == '1' then return 'held' end
  return nil
end

