-- Lets go of a deleted resource: drops its claim, takes back what was pushed where that is wanted, retires its uid.
--
-- KEYS: 1 fences, 2 claims, then for each job type: max_concurrency, paused
-- ARGV: 1 field, 2 uid, 3 generation, 4 field of the claim, then for each job type: the cap that was pushed ('' none)
--       Without job types nothing is taken back (policy Retain).
-- Return: {'released', caps taken back, pauses taken back}, or {'spoiled', key}
--
-- Safe to repeat, and for a uid that is retired already: then the resource's successor owns claim and caps, and nothing
-- but the retiring is done. A cap that is not ours any more stays; a pause is ours if its value says so.
local field, uid = ARGV[1], ARGV[2]
local entry = fence_entry(KEYS[1], field)
if not entry then return {'spoiled', KEYS[1]} end
local was_retired = fence_is_retired(entry, uid)
local ours = not was_retired and (entry.have == uid or entry.have == '-')

local caps, pauses = 0, 0
redis.call('HDEL', KEYS[1], '')
if ours then
  redis.call('HDEL', KEYS[2], ARGV[4])
  for i = 1, (#KEYS - 2) / 2 do
    local cap_key, pause_key = KEYS[1 + i * 2], KEYS[2 + i * 2]
    if ARGV[4 + i] ~= '' and redis.pcall('GET', cap_key) == ARGV[4 + i] then
      caps = caps + redis.call('DEL', cap_key)
    end
    if redis.pcall('GET', pause_key) == 'poolkeeper' then pauses = pauses + redis.call('DEL', pause_key) end
  end
end
if not was_retired then
  fence_retire(entry, uid)
  redis.call('HSET', KEYS[1], field, fence_text(entry))
end
return {'released', caps, pauses}
