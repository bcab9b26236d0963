-- Shared piece: the job types of entries of `scheduled` or `retry`, by rank, in bounded work.
--
-- count_entries(key, from, to, due, found, decoded_at_most) -> how many it looked at, fewer than asked for where they are
-- large; score of the last of them
--   from, to: ranks; due: how many of the set are due, which are those that rank first; decoded_at_most: bytes
--   found: {types = {}, by_name = {}}; to `types` it adds, once for each job type:
--     {name, how many are due, least finite score of those or false, least finite score of the others or false}
--
-- A job type is told by the name within the job. An entry without one, or that is no JSON, is looked at and counts for
-- no type. Go writes the name first; the rest is decoded, where that is quick.
local READ_AT_MOST, DECODABLE = 262144, 16384

local function count_entry(found, name, score, is_due)
  local seen = found.by_name[name]
  if not seen then
    seen = {name, 0, false, false}
    found.by_name[name] = seen
    table.insert(found.types, seen)
  end
  local at = is_due and 3 or 4
  if is_due then seen[2] = seen[2] + 1 end
  if not seen[at] and score ~= '-inf' and score ~= 'inf' then seen[at] = score end
end

local function count_entries(key, from, to, due, found, decoded_at_most)
  local rank, step, read, decoded, score = from, 1, 0, 0, false
  while rank <= to and read < READ_AT_MOST do
    local entries = redis.call('ZRANGE', key, rank, math.min(to, rank + step - 1), 'WITHSCORES')
    if #entries == 0 then break end
    for i = 1, #entries, 2 do
      local entry = entries[i]
      local name = string.sub(entry, -1) == '}' and string.match(entry, '^{"name":"([^"\\]*)"[,}]')
      if not name and #entry <= DECODABLE then
        decoded = decoded + #entry
        if decoded > decoded_at_most then return rank - from, score end
        local is_json, job = pcall(cjson.decode, entry)
        name = is_json and type(job) == 'table' and type(job.name) == 'string' and job.name
      end
      score = entries[i + 1]
      if name then count_entry(found, name, score, rank < due) end
      read = read + #entry
      rank = rank + 1
    end
    -- Their size is known only once they are read: begin with one.
    step = math.min(step * 2, 64)
  end
  return rank - from, score
end

