-- Shared piece: a read or write without which the script is of no use. Where its key has a wrong type, the error names the
-- key and the type that it should have.
--
-- need(should_be, command, key, ...) -> what redis.call(command, key, ...) does
local function need(should_be, command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  -- It has done nothing; raised by the call itself it reads alike in all versions: before 7, Redis can't raise a table.
  if not string.find(reply.err, 'WRONGTYPE', 1, true) then return redis.call(command, key, ...) end
  error('WRONGTYPE key "' .. key .. '" in Redis should be a ' .. should_be)
end

