-- Settles one job type: gives back what dead pools held, and sets the counts to what runs. Reaping and auditing alike.
--
-- KEYS: 1 list, 2 lock, 3 lock_info, 4 worker_pools, 5 fences, 6 record, 7 totals
--       then the in-progress list of each dead pool, then of each covered pool
--       then the heartbeat hash of each dead pool that has an expectation
-- ARGV: 1 field, 2 uid, 3 generation, 4 most entries to move, 5 job type, 6 number of dead, 7 number of covered
--       then for each dead pool: id, expectation ('' none, '-' no heartbeat and not listed, '+' no
--       heartbeat but listed, else its heartbeat_at), detail
--       then the id of each covered pool
--       then for each of these with stranded entries in its list (they count as not running): its number, how many
-- Return, the first being one of:
--   {'fenced', reason}        refused by the fence
--   {'spoiled', key}          a key has a wrong type
--   {'moved', ids}            the heartbeats of these dead pools are not what was judged
--   {'look', ids}             these pools are known here and were neither named dead nor covered
--   {'settled', moved, left, lock before or false, lock after or false, counts repaired, jobs by dead, locks by dead}
-- All but the last have written nothing. The record keeps the details of the last 8 pools that gave something back.
--
-- Safe to repeat: counts are set to what the lists hold, never added to or subtracted from, and entries move from lists
-- that the next run finds empty. Between portions the field of a dead pool is what is left in its list, so a crash there
-- leaves true counts. Entries move byte for byte, the oldest taken to the end that runs next. The first write deletes,
-- which Redis allows when it is out of memory, and the rest with it.
local LIST, LOCK, INFO, POOLS, RECORD, TOTALS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[6], KEYS[7]
local refused = fence(KEYS[5], ARGV[1], ARGV[2], ARGV[3])
if refused then return {'fenced', refused} end

local limit, job_type = tonumber(ARGV[4]), ARGV[5]
local dead_count, covered_count = tonumber(ARGV[6]), tonumber(ARGV[7])
local spoiled = nil
local function read(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) == 'table' and reply.err then
    if not string.find(reply.err, 'WRONGTYPE', 1, true) then error(reply) end
    spoiled = spoiled or key
    return nil
  end
  return reply
end

-- A count as Redis could add to it; nil for any other text, for infinity, and for what a double cannot hold. Most counts
-- are one of a few, so each text and each number is looked into once.
local numbers, texts = {}, {}
local function whole(text)
  local number = numbers[text]
  if number == nil then
    number = tonumber(text)
    number = number and number == math.floor(number) and math.abs(number) < 2^53 and number or false
    numbers[text] = number
  end
  return number or nil
end
local function text_of(count)
  local text = texts[count] or tostring(count)
  texts[count] = text
  return text
end

-- Read, and find wrong types by it, before the first write.
read('LLEN', LIST)
read('XLEN', RECORD)
read('HLEN', TOTALS)
local lock = read('GET', LOCK)
local flat_info = read('HGETALL', INFO)
local listed_ids = read('SMEMBERS', POOLS)
-- Lengths of lists next to each other in KEYS; most are empty, and a hundred of these are told by one command.
local function lengths(first, count)
  local held = {}
  for from = first, first + count - 1, 100 do
    local to = math.min(from + 99, first + count - 1)
    local any = redis.call('EXISTS', unpack(KEYS, from, to)) > 0
    for k = from, to do held[k - first + 1] = any and read('LLEN', KEYS[k]) or 0 end
  end
  return held
end
local dead, covered, named = {}, {}, {}
local held_by_dead, held_by_covered = lengths(8, dead_count), lengths(8 + dead_count, covered_count)
local arg, beat_key = 7, 7 + dead_count + covered_count
for i = 1, dead_count do
  local pool = {id = ARGV[arg + 1], expected = ARGV[arg + 2], detail = ARGV[arg + 3]}
  pool.list = KEYS[7 + i]
  pool.held = held_by_dead[i]
  if pool.expected ~= '' then
    beat_key = beat_key + 1
    pool.beat = read('HGET', KEYS[beat_key], 'heartbeat_at')
  end
  dead[i], named[pool.id] = pool, true
  arg = arg + 3
end
local runs_of_covered = held_by_covered
for i = 1, covered_count do
  local id = ARGV[arg + i]
  covered[i], named[id] = id, true
end
for i = arg + covered_count + 1, #ARGV, 2 do
  local number = tonumber(ARGV[i])
  runs_of_covered[number] = math.max(0, held_by_covered[number] - tonumber(ARGV[i + 1]))
end
if spoiled then return {'spoiled', spoiled} end

local info, listed = {}, {}
for _, id in ipairs(listed_ids) do listed[id] = true end
for i = 1, #flat_info, 2 do info[flat_info[i]] = flat_info[i + 1] end

local changed_their_mind = {}
for _, pool in ipairs(dead) do
  local differs = pool.expected ~= '' and pool.beat ~= pool.expected
  if pool.expected == '-' or pool.expected == '+' then
    differs = pool.beat or (listed[pool.id] or false) ~= (pool.expected == '+')
  end
  if differs then changed_their_mind[#changed_their_mind + 1] = pool.id end
end
if #changed_their_mind > 0 then return {'moved', changed_their_mind} end

-- Fields at 0 of pools that no set names are what every clean stop leaves.
local unknown, leftovers, info_sum = {}, {}, 0
for id, count in pairs(info) do
  info_sum = info_sum + (whole(count) or 0)
  if not named[id] and not listed[id] then
    if tonumber(count) == 0 then leftovers[#leftovers + 1] = id else unknown[#unknown + 1] = id end
  end
end
for _, id in ipairs(listed_ids) do
  if not named[id] then unknown[#unknown + 1] = id end
end
if #unknown > 0 then return {'look', unknown} end

-- Decide.
local budget, moved, left, running, repaired = limit, 0, 0, 0, 0
local set, drop, jobs_by, locks_by, reaped = {}, leftovers, {}, {}, {}
local function field(id, count, keep_zero)
  local old = info[id]
  if count > 0 or (keep_zero and old) then
    if old ~= text_of(count) then set[#set + 1] = {id, count} return true end
  elseif old then
    drop[#drop + 1] = id
    return tonumber(old) ~= 0
  end
  return false
end
for i, pool in ipairs(dead) do
  pool.move = math.min(budget, pool.held)
  budget = budget - pool.move
  local remains = pool.held - pool.move
  moved, left, running = moved + pool.move, left + remains, running + remains
  local old = whole(info[pool.id] or 0) or 0
  field(pool.id, remains, false)
  jobs_by[i], locks_by[i] = pool.move, math.max(0, old - remains)
  if pool.move > 0 or locks_by[i] > 0 then reaped[#reaped + 1] = i end
end
for i = 1, covered_count do
  local id, runs = covered[i], runs_of_covered[i]
  running = running + runs
  if (runs > 0 or info[id]) and field(id, runs, listed[id]) then repaired = repaired + 1 end
end
local had = whole(lock or 0)
if had ~= info_sum then repaired = repaired + 1 end
local lock_after = lock
if lock ~= text_of(running) and not (not lock and running == 0) then lock_after = text_of(running) end
local set_lock = lock_after ~= lock
if moved == 0 and #set == 0 and #drop == 0 and not set_lock then
  return {'settled', 0, left, lock, lock, 0, jobs_by, locks_by}
end

-- Write.
redis.call('HDEL', INFO, '', unpack(drop, 1, math.min(#drop, 1000)))
for i = 1001, #drop, 1000 do redis.call('HDEL', INFO, unpack(drop, i, math.min(#drop, i + 999))) end
for _, pool in ipairs(dead) do
  for _ = 1, pool.move do redis.call('LMOVE', pool.list, LIST, 'LEFT', 'RIGHT') end
end
for _, pair in ipairs(set) do redis.call('HSET', INFO, pair[1], pair[2]) end
if set_lock then redis.call('SET', LOCK, lock_after) end

local freed = 0
for _, locks in ipairs(locks_by) do freed = freed + locks end
if #reaped > 0 or repaired > 0 then
  local entry = {'kind', #reaped > 0 and 'reap' or 'repair', 'queue', ARGV[1], 'job_type', job_type,
    'lock_before', lock or '', 'lock_after', lock_after or '', 'repaired', repaired}
  for n, i in ipairs(reaped) do
    local detail = n > #reaped - 8 and dead[i].detail or 'null'
    entry[#entry + 1] = 'pool'
    entry[#entry + 1] = dead[i].id .. ' ' .. jobs_by[i] .. ' ' .. locks_by[i] .. ' ' .. detail
  end
  redis.call('XADD', RECORD, 'MAXLEN', '1000', '*', unpack(entry))
  if moved > 0 then redis.call('HINCRBY', TOTALS, 'jobs_requeued', moved) end
  if freed > 0 then redis.call('HINCRBY', TOTALS, 'locks_freed', freed) end
  if repaired > 0 then redis.call('HINCRBY', TOTALS, 'counts_repaired', repaired) end
end
return {'settled', moved, left, lock, lock_after, repaired, jobs_by, locks_by}
