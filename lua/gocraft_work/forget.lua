-- Forgets dead pools whose job types are all settled, and remembers for a day that they were reaped.
--
-- KEYS: 1 worker_pools, 2 bindings, 3 reaped, 4 fences, 5 record, 6 totals
--       then the heartbeat hash of each pool, then the lock_info of each job type
--       then for each pool its in-progress list of each job type
-- ARGV: 1 field, 2 uid, 3 generation, 4 number of pools, 5 number of job types
--       then for each pool: id, expectation ('' none, '-' no heartbeat and not listed, '+' no
--       heartbeat but listed, else its heartbeat_at), detail
-- Return: {'fenced', reason}, {'spoiled', key}, or {'done', states}, for each pool one of
--   forgotten  nothing of it is left
--   gone       it had signed off by itself, or was forgotten before: its binding and counts at 0 went, untold
--   remains    it still has an in-progress list or a lock count: settle first; nothing was changed for it
--   moved      its heartbeat is not what was judged; nothing was changed for it
--
-- All that one run forgets is one entry of the record, with the detail of the last one.
-- Safe to repeat: the second run finds it gone. The first write deletes, which Redis allows when it is out of memory.
local refused = fence(KEYS[4], ARGV[1], ARGV[2], ARGV[3])
if refused then return {'fenced', refused} end
local pools, types = tonumber(ARGV[4]), tonumber(ARGV[5])
local function is_wrong(reply)
  if type(reply) ~= 'table' or not reply.err then return false end
  if string.find(reply.err, 'WRONGTYPE', 1, true) then return true end
  error(reply)
end
local checks = {{'SCARD', 1}, {'HLEN', 2}, {'ZCARD', 3}, {'XLEN', 5}, {'HLEN', 6}}
for _, check in ipairs(checks) do
  if is_wrong(redis.pcall(check[1], KEYS[check[2]])) then return {'spoiled', KEYS[check[2]]} end
end

local ids, states = {}, {}
for i = 1, pools do ids[i] = ARGV[3 + i * 3] end
-- A lock_info of a wrong type holds no count of anybody.
local counts = {}
for t = 1, types do
  local reply = redis.pcall('HMGET', KEYS[6 + pools + t], unpack(ids))
  counts[t] = is_wrong(reply) and {} or reply
end

local now, forgotten, detail = redis.call('TIME')[1], {}, ''
for i = 1, pools do
  local expected, beat_key, state = ARGV[4 + i * 3], KEYS[6 + i], nil
  local beat = redis.pcall('HGET', beat_key, 'heartbeat_at')
  if is_wrong(beat) then beat = false end
  local listed = redis.call('SISMEMBER', KEYS[1], ids[i]) == 1
  local absent = expected == '-' or expected == '+'
  if absent and (beat or listed ~= (expected == '+')) then state = 'moved' end
  if not absent and expected ~= '' and beat ~= expected then state = 'moved' end
  local zero = {}
  for t = 1, types do
    local count = counts[t][i]
    if count and tonumber(count) == 0 then zero[#zero + 1] = KEYS[6 + pools + t] elseif count then state = state or 'remains' end
  end
  local first = 7 + pools + types + (i - 1) * types
  if not state and types > 0 and redis.call('EXISTS', unpack(KEYS, first, first + types - 1)) > 0 then state = 'remains' end
  if not state then
    state = 'forgotten'
    if expected ~= '-' and not listed and redis.call('EXISTS', beat_key) == 0 then
      -- As a clean stop leaves it, or the library's own reaper.
      state = 'gone'
      redis.call('HDEL', KEYS[2], ids[i])
      for _, key in ipairs(zero) do redis.call('HDEL', key, ids[i]) end
      redis.call('ZADD', KEYS[3], now, ids[i])
    elseif redis.call('ZSCORE', KEYS[3], ids[i]) and not listed and redis.call('EXISTS', beat_key) == 0 and redis.call('HEXISTS', KEYS[2], ids[i]) == 0 and #zero == 0 then
      state = 'gone'
    else
      redis.call('DEL', beat_key)
      redis.call('SREM', KEYS[1], ids[i])
      redis.call('HDEL', KEYS[2], ids[i])
      for _, key in ipairs(zero) do redis.call('HDEL', key, ids[i]) end
      redis.call('ZADD', KEYS[3], now, ids[i])
      forgotten[#forgotten + 1] = 'pool'
      forgotten[#forgotten + 1] = ids[i]
      detail = ARGV[5 + i * 3]
    end
  end
  states[i] = state
end
if #forgotten > 0 then
  redis.call('XADD', KEYS[5], 'MAXLEN', '1000', '*', 'kind', 'forget', 'queue', ARGV[1], 'detail', detail, unpack(forgotten))
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now - 86400)
  redis.call('HINCRBY', KEYS[6], 'pools_reaped', #forgotten / 2)
end
return {'done', states}
