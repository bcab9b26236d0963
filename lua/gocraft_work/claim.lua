-- Says which job types one resource manages, unless another cluster says so already.
--
-- KEYS: 1 claims, 2 fences
-- ARGV: 1 field, 2 uid, 3 generation, 4 field of the claim (cluster/namespace/name), 5 cluster, 6 the claim as JSON
--       without `concurrency`, `hosts`, `writtenAt` and its closing brace, 7 concurrency, 0 for what it was last, 8 number
--       of job types, then these, then host names
-- Return: {'fenced', reason}, {'taken', claims of other clusters, written within 5 minutes, that name one of the types},
--         or {'claimed', claims of this cluster that name one of the types}; claims are JSON
--
-- Safe to repeat: it sets a whole value; only its time moves on. Hosts are kept for a day after they were last named, by
-- Redis's clock. Claims of this cluster that nobody renewed for a day are dropped; others' are left alone.
local refused = fence(KEYS[2], ARGV[1], ARGV[2], ARGV[3])
if refused then return {'fenced', refused} end
local own_field, cluster, types = ARGV[4], ARGV[5], tonumber(ARGV[8])
local now = tonumber(redis.call('TIME')[1])
local ours = {}
local concurrency = tonumber(ARGV[7])
for i = 9, 8 + types do ours[ARGV[i]] = true end

local hosts, taken, same, stale = {}, {}, {}, {}
local claims = need('hash', 'HGETALL', KEYS[1])
for i = 1, #claims, 2 do
  local ok, claim = pcall(cjson.decode, claims[i + 1])
  if ok and type(claim) == 'table' then
    local age = now - (tonumber(claim.writtenAt) or 0)
    if claims[i] == own_field then
      if concurrency == 0 then concurrency = tonumber(claim.concurrency) or 0 end
      for host, seen in pairs(type(claim.hosts) == 'table' and claim.hosts or {}) do
        if type(seen) == 'number' and now - seen < 86400 then hosts[host] = seen end
      end
    else
      local names_one = false
      for _, name in ipairs(type(claim.jobTypes) == 'table' and claim.jobTypes or {}) do
        if ours[name] then names_one = true end
      end
      if claim.cluster == cluster and age >= 86400 then
        stale[#stale + 1] = claims[i]
      elseif names_one and claim.cluster == cluster then
        same[#same + 1] = claims[i + 1]
      elseif names_one and age < 300 then
        taken[#taken + 1] = claims[i + 1]
      end
    end
  end
end
if #taken > 0 then return {'taken', taken} end

for i = 9 + types, #ARGV do hosts[ARGV[i]] = now end
redis.call('HDEL', KEYS[1], '', unpack(stale))
local text = ARGV[6] .. string.format(',"concurrency":%d', concurrency) .. ',"hosts":' .. cjson.encode(hosts) .. ',"writtenAt":' .. string.format('%d', now) .. '}'
redis.call('HSET', KEYS[1], own_field, text)
return {'claimed', same}
