-- Tells whether there is anything to do, or when there will be. Runs on the watching connection.
--
-- KEYS: list of each job type, then scheduled, retry
-- Return: {for each list 1 where jobs wait and 0 where none do, least score of scheduled and of retry or false}; a key of
--   a wrong type counts as empty
--
-- Changes nothing. It reads every key, whatever it has found by then: Redis tells only of those that were read.
local lists, scores = {}, {}

local function wrong_type(reply)
  if type(reply) ~= 'table' or not reply.err then return false end
  if not string.find(reply.err, 'WRONGTYPE', 1, true) then error(reply) end
  return true
end

for i = 1, #KEYS - 2 do
  local length = redis.pcall('LLEN', KEYS[i])
  lists[i] = not wrong_type(length) and length > 0 and 1 or 0
end
for i = #KEYS - 1, #KEYS do
  local first = redis.pcall('ZRANGE', KEYS[i], 0, 0, 'WITHSCORES')
  table.insert(scores, not wrong_type(first) and first[2] or false)
end
return {lists, scores}
