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

local schema = redis.call('GET', KEYS[2])
if schema and schema ~= '1' then return {'fenced', 'schema'} end

local have, highest, held, retired = '-', '0', '0', ''
local entry = redis.call('HGET', KEYS[1], field)
if entry then
  have, highest, held, retired = string.match(entry, '^(%S+) (%d+) ([01]) ?(%S*)$')
  if not have then return {'fenced', 'unreadable'} end
end

local function is_retired(id)
  return string.find(',' .. retired .. ',', ',' .. id .. ',', 1, true) ~= nil
end

-- Keeps the last 16: older ones belong to replicas that were cut off for as many re-creations.
local function retire(id)
  if id == '-' or is_retired(id) then return end
  local ids = {}
  for each in string.gmatch(retired, '[^,]+') do ids[#ids + 1] = each end
  ids[#ids + 1] = id
  while #ids > 16 do table.remove(ids, 1) end
  retired = table.concat(ids, ',')
end

if op == 'retire' then
  retire(uid)
  if have == uid then have, highest, held = '-', '0', '0' end
else
  if is_retired(uid) then return {'fenced', 'retired'} end
  if have ~= uid then
    retire(have)
    have, highest, held = uid, generation, '0'
  end
  if tonumber(generation) < tonumber(highest) then return {'fenced', 'older'} end
  highest = generation
  if op == 'hold' then held = '1' elseif op == 'resume' then held = '0' end
end

local new = have .. ' ' .. highest .. ' ' .. held .. ' ' .. retired
if new ~= entry then
  -- A first write that cannot grow memory lets the rest pass when Redis is out of it.
  redis.call('HDEL', KEYS[1], '')
  redis.call('HSET', KEYS[1], field, new)
end
if not schema then redis.call('SET', KEYS[2], '1') end
return {'ok'}
