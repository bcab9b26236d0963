-- Moves the fence of one resource, so that replicas which were cut off cannot enforce an old spec.
--
-- KEYS: 1 fences, 2 schema
-- ARGV: 1 advance | hold | resume | retire, 2 field, 3 uid, 4 generation
--   advance  the spec of this generation is enforced from now on; a new uid retires the recorded one
--   hold     the resource is paused: nobody may write for it
--   resume   it is no longer paused
--   retire   it was deleted
-- Return: {'ok'}, or {'fenced', reason} with a reason of fence_check.lua or `schema` (a newer poolkeeper was here).
--
-- Safe to repeat: each is a state to be in, not a step.
local op, field, uid, generation = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local schema = need('string', 'GET', KEYS[2])
if schema and schema ~= '1' then return {'fenced', 'schema'} end

local entry, before = fence_entry(KEYS[1], field)
if not entry then return {'fenced', 'unreadable'} end
if op == 'retire' then
  fence_retire(entry, uid)
else
  if fence_is_retired(entry, uid) then return {'fenced', 'retired'} end
  if entry.have ~= uid then
    fence_retire(entry, entry.have)
    entry.have, entry.highest, entry.held = uid, generation, '0'
  end
  if tonumber(generation) < tonumber(entry.highest) then return {'fenced', 'older'} end
  entry.highest = generation
  if op == 'hold' then entry.held = '1' elseif op == 'resume' then entry.held = '0' end
end

local after = fence_text(entry)
if after ~= before then
  -- A first write that cannot grow memory lets the rest pass when Redis is out of it.
  redis.call('HDEL', KEYS[1], '')
  redis.call('HSET', KEYS[1], field, after)
end
if not schema then redis.call('SET', KEYS[2], '1') end
return {'ok'}
