-- Reads one page of the due entries of `scheduled` or `retry`, and says where the next begins.
--
-- KEYS: 1 scheduled or retry
-- ARGV: 1 entries to look at, 2 '' to begin, or the score of the last entry that was looked at, 3 how many with that score
--       were looked at, 4 how many there were
-- Return: {'more' or 'end', types, score, looked at, there}: types as in entries.lua, the others as in ARGV 2 to 4;
--         or {'spoiled'} for a key of a wrong type
--
-- Changes nothing. Entries with a lower score may come and go between two pages: the rank is found anew. Where some with
-- the same score went, as many are looked at again: an entry may be counted twice, but none that stays is passed over.
local key, page, score, looked, there = KEYS[1], tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local due = redis.pcall('ZCOUNT', key, '-inf', redis.call('TIME')[1])
if type(due) == 'table' then
  if string.find(due.err, 'WRONGTYPE', 1, true) then return {'spoiled'} end
  error(due)
end

local function below(other)
  return redis.call('ZCOUNT', key, '-inf', '(' .. other)
end

local function at(other)
  return redis.call('ZCOUNT', key, other, other)
end

local from = 0
if score ~= '' then
  local gone = math.max(0, there - at(score))
  from = below(score) + math.max(0, looked - gone)
end
if from >= due then return {'end', {}, '', 0, 0} end

local found = {types = {}, by_name = {}}
local count, last = count_entries(key, from, math.min(from + page, due) - 1, due, found, 65536)
if from + count >= due then return {'end', found.types, '', 0, 0} end
return {'more', found.types, last, from + count - below(last), at(last)}
