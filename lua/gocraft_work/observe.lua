-- Reads what one pass needs, at one instant.
--
-- KEYS: whole pass: 1 bindings, 2 reaped, 3 claims, 4 totals, 5 worker_pools, 6 known_jobs,
--       7 scheduled, 8 retry; a further part: none of these
--       then the heartbeat hash of each pool
--       then for each job type: list, lock, lock_info, max_concurrency, paused
--       then in-progress lists
-- ARGV: 1 '1' for a whole pass, '0' for a further part, 2 number of pools, 3 number of job types,
--       4 '1' to look into scheduled and retry
-- Return: {frame or false, heartbeats, types, lengths}
--   frame: {Redis's clock in s, worker_pools, known_jobs, bindings, reaped with scores, claims, totals, entries or
--          false}; hashes are flat
--   entries: for scheduled and retry {how many are due, how many of those were looked at, types as in entries.lua}; a
--            spoiled one is its key
--   heartbeats: for each pool {heartbeat_at, started_at, job_names, concurrency, host, pid}, or the spoiled key
--   types: for each {list length, t of the job that runs next, lock, lock_info, max_concurrency, paused}; a spoiled one
--          is the key of a wrong type
--   lengths: of each in-progress list; a spoiled one is its key
--
-- Changes nothing. Its one write deletes a field that is never there: a replica refuses it, so that an old primary's
-- silence is not taken for its workers' silence.
local whole, pools, types = ARGV[1] == '1', tonumber(ARGV[2]), tonumber(ARGV[3])
local DUE_PAGE, UPCOMING_PAGE, DECODED_AT_MOST = 200, 50, 16384
local at = 0

local function wrong_type(reply)
  if type(reply) ~= 'table' or not reply.err then return false end
  if string.find(reply.err, 'WRONGTYPE', 1, true) then return true end
  error(reply)
end

-- The `t` of a job, without decoding it: Go writes it ahead of the args; elsewhere it must be the only one.
local function enqueued_at(job)
  if not job then return false end
  local t = string.match(job, '^{"name":"[^"\\]*","id":"[^"\\]*","t":(%d+)[,}]')
  if t then return t end
  local found = false
  for other in string.gmatch(job, '"t":(%d+)') do
    if found then return false end
    found = other
  end
  return found
end

-- The first due entries of a set, and the first that are not due yet.
local function first_entries(key, now)
  local due = redis.pcall('ZCOUNT', key, '-inf', now)
  if wrong_type(due) then return key end
  local found = {types = {}, by_name = {}}
  local looked = count_entries(key, 0, math.min(due, DUE_PAGE) - 1, due, found, DECODED_AT_MOST)
  count_entries(key, due, due + UPCOMING_PAGE - 1, due, found, DECODED_AT_MOST)
  return {due, looked, found.types}
end

local frame = false
if whole then
  need('hash', 'HDEL', KEYS[1], '')
  local now = redis.call('TIME')[1]
  frame = {
    now,
    need('set', 'SMEMBERS', KEYS[5]),
    need('set', 'SMEMBERS', KEYS[6]),
    need('hash', 'HGETALL', KEYS[1]),
    need('sorted set', 'ZRANGE', KEYS[2], 0, -1, 'WITHSCORES'),
    need('hash', 'HGETALL', KEYS[3]),
    need('hash', 'HGETALL', KEYS[4]),
    ARGV[4] == '1' and {first_entries(KEYS[7], now), first_entries(KEYS[8], now)},
  }
  at = 8
end

local heartbeats = {}
for i = 1, pools do
  local key = KEYS[at + i]
  local beat = redis.pcall('HMGET', key, 'heartbeat_at', 'started_at', 'job_names', 'concurrency', 'host', 'pid')
  heartbeats[i] = wrong_type(beat) and key or beat
end
at = at + pools

local seen = {}
for i = 1, types do
  local k = at + (i - 1) * 5
  local reads = {
    redis.pcall('LLEN', KEYS[k + 1]),
    false,
    redis.pcall('GET', KEYS[k + 2]),
    redis.pcall('HGETALL', KEYS[k + 3]),
    redis.pcall('GET', KEYS[k + 4]),
    redis.call('EXISTS', KEYS[k + 5]),
  }
  for part, key in pairs({k + 1, [3] = k + 2, [4] = k + 3, [5] = k + 4}) do
    if wrong_type(reads[part]) then seen[i] = KEYS[key] end
  end
  if not seen[i] then
    if reads[1] > 0 then reads[2] = enqueued_at(redis.call('LINDEX', KEYS[k + 1], -1)) end
    seen[i] = reads
  end
end
at = at + types * 5

local lengths = {}
for i = at + 1, #KEYS do
  local length = redis.pcall('LLEN', KEYS[i])
  lengths[i - at] = wrong_type(length) and KEYS[i] or length
end

return {frame, heartbeats, seen, lengths}
