-- Takes pools that beat again out of the reaped ones: living workers were taken for dead.
--
-- KEYS: 1 reaped, 2 fences, 3 record, 4 totals, then the heartbeat hash of each pool
-- ARGV: 1 field, 2 uid, 3 generation, then for each pool: id, detail
-- Return: {'fenced', reason} or {'done', 1 or 0 for each pool: whether it was taken out}
--
-- Safe to repeat: the second run finds it among the reaped no more.
local refused = fence(KEYS[2], ARGV[1], ARGV[2], ARGV[3])
if refused then return {'fenced', refused} end
local taken = {}
for i = 1, #KEYS - 4 do
  local id = ARGV[2 + i * 2]
  taken[i] = 0
  if redis.call('EXISTS', KEYS[4 + i]) == 1 and redis.call('ZSCORE', KEYS[1], id) then
    redis.call('ZREM', KEYS[1], id)
    redis.call('XADD', KEYS[3], 'MAXLEN', '1000', '*', 'kind', 'resurrected', 'queue', ARGV[1], 'pool', id, 'detail', ARGV[3 + i * 2])
    redis.call('HINCRBY', KEYS[4], 'pools_resurrected', 1)
    taken[i] = 1
  end
end
return {'done', taken}
