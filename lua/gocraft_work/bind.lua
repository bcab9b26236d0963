-- Keeps bindings: which container runs a pool.
--
-- KEYS: 1 bindings, 2 fences
-- ARGV: 1 field, 2 uid, 3 generation, 4 number of bindings to set, then pool and binding (JSON) of each, then the pools
--       whose binding is to go
-- Return: {'fenced', reason} or {'done'}
--
-- Safe to repeat: it sets and deletes whole values.
local refused = fence(KEYS[2], ARGV[1], ARGV[2], ARGV[3])
if refused then return {'fenced', refused} end
local first_drop = 5 + tonumber(ARGV[4]) * 2
redis.call('HDEL', KEYS[1], '')
for i = first_drop, #ARGV do redis.call('HDEL', KEYS[1], ARGV[i]) end
for i = 5, first_drop - 1, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
return {'done'}
