-- Holds caps and pauses: writes what differs, and nothing else. Runs on the watching connection.
--
-- KEYS: 1 fences, then for each job type: max_concurrency, paused
-- ARGV: 1 field, 2 uid, 3 generation, 4 '1' to observe only, then for each job type: the cap ('' leaves it alone, 0 is
--       written as 0), paused ('' leaves it alone, '1' and '0')
-- Return: {'fenced', reason, types} or {'held', false, types}, with types as they are now, for each:
--   {max_concurrency key, cap or false, paused 1 or 0, wrote cap 1 or 0, cap before or false, wrote pause 1 or 0},
--   or just the key where it has a wrong type
--
-- Safe to repeat: a second run finds nothing that differs. It ends by reading all that it watches, since a write of one's
-- own makes Redis forget the key untold (NOLOOP). A pause of ours has the value `poolkeeper`; any value pauses.
local refused = fence(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
local may_write = not refused and ARGV[4] ~= '1'
local types = {}

local function wrong_type(reply)
  if type(reply) ~= 'table' or not reply.err then return false end
  if string.find(reply.err, 'WRONGTYPE', 1, true) then return true end
  error(reply)
end

for i = 1, (#KEYS - 1) / 2 do
  local cap_key, pause_key = KEYS[i * 2], KEYS[i * 2 + 1]
  local want_cap, want_pause = ARGV[3 + i * 2], ARGV[4 + i * 2]
  local cap = redis.pcall('GET', cap_key)
  if wrong_type(cap) then
    types[i] = {cap_key}
  else
    local paused = redis.call('EXISTS', pause_key)
    local seen = {cap_key, cap, paused, 0, cap, 0}
    if may_write and want_cap ~= '' and cap ~= want_cap then
      -- DEL first: Redis lets the rest pass when it is out of memory.
      redis.call('DEL', cap_key)
      redis.call('SET', cap_key, want_cap)
      seen[4] = 1
    end
    if may_write and want_pause ~= '' and paused ~= tonumber(want_pause) then
      redis.call('DEL', pause_key)
      if want_pause == '1' then redis.call('SET', pause_key, 'poolkeeper') end
      seen[6] = 1
    end
    types[i] = seen
  end
end

redis.call('HGET', KEYS[1], ARGV[1])
for i = 1, (#KEYS - 1) / 2 do
  if #types[i] > 1 then
    types[i][2] = redis.call('GET', KEYS[i * 2])
    types[i][3] = redis.call('EXISTS', KEYS[i * 2 + 1])
  end
end
return {refused and 'fenced' or 'held', refused or false, types}
