-- Records that somebody had overwritten caps or pauses, and how many jobs ran above the cap meanwhile.
--
-- KEYS: 1 fences, 2 record, 3 totals, then for each: the job type's lock
-- ARGV: 1 field, 2 uid, 3 generation, then for each: cap | pause, job type, value that was there (may be ''; its
--       first 64 bytes are kept), cap that holds again ('' or 0: none)
-- Return: {'fenced', reason} or {'recorded', jobs above the cap of each}
--
-- Not to be repeated: one call for one put-back. Twice, it counts twice; nothing else comes of it.
local refused = fence(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
if refused then return {'fenced', refused} end
local above = {}
for i = 1, #KEYS - 3 do
  local lock = redis.pcall('GET', KEYS[3 + i])
  local cap = tonumber(ARGV[3 + i * 4]) or 0
  lock = type(lock) == 'string' and tonumber(lock) or 0
  -- Whatever stands there, infinity and what is no number at all: a whole number that HINCRBY and the record take.
  if not (lock > 0 and lock < 2^31) then lock = 0 end
  above[i] = cap > 0 and math.floor(math.max(0, lock - cap)) or 0
end
redis.call('HDEL', KEYS[3], '')
for i = 1, #KEYS - 3 do
  local kind, job_type, old, cap = ARGV[i * 4], ARGV[i * 4 + 1], string.sub(ARGV[i * 4 + 2], 1, 64), ARGV[i * 4 + 3]
  redis.call('XADD', KEYS[2], 'MAXLEN', '1000', '*', 'kind', kind .. '_overwritten', 'queue', ARGV[1],
    'job_type', job_type, 'old', old, 'new', cap, 'above', above[i])
  redis.call('HINCRBY', KEYS[3], kind .. 's_overwritten', 1)
  if above[i] > 0 then redis.call('HINCRBY', KEYS[3], 'ran_above_cap', above[i]) end
end
return {'recorded', above}
