# shellcheck shell=bash
# Looking into Redis, and being somebody who meddles: by redis-cli in the Redis pod, as the server is not reachable otherwise.

job_key() { echo "work:jobs:$1"; }

# redis COMMAND...: one command.
redis() { kube exec deployment/redis --container redis -- redis-cli "$@"; }

# A sample of one job type, at one instant: running, lock, cap, waiting, then (comma lists of hashes of the jobs' bytes, in list
# order, or -) the 8 jobs at the front of the queue and those of one in-progress list.
# KEYS: 1 list, 2 an in-progress list
SAMPLE_SCRIPT='
local function hashes(jobs)
  local list = {}
  for i, job in ipairs(jobs) do list[i] = string.sub(redis.sha1hex(job), 1, 12) end
  return #list > 0 and table.concat(list, ",") or "-"
end
local running = 0
for _, key in ipairs(redis.call("KEYS", KEYS[1] .. ":*:inprogress")) do running = running + redis.call("LLEN", key) end
local lock, cap = redis.call("GET", KEYS[1] .. ":lock"), redis.call("GET", KEYS[1] .. ":max_concurrency")
return table.concat({running, lock or 0, cap or 0, redis.call("LLEN", KEYS[1]),
  hashes(redis.call("LRANGE", KEYS[1], -8, -1)), hashes(redis.call("LRANGE", KEYS[2], 0, -1))}, " ")'

# Pools that run jobs of a type: pool, host and number of jobs of each, one a line.
# KEYS: 1 list
POOLS_SCRIPT='
local lines = {}
for _, key in ipairs(redis.call("KEYS", KEYS[1] .. ":*:inprogress")) do
  local pool = string.match(key, ":([^:]+):inprogress$")
  local host = redis.call("HGET", "work:worker_pools:" .. pool, "host")
  if host then lines[#lines + 1] = pool .. " " .. host .. " " .. redis.call("LLEN", key) end
end
return lines'

pools_of() { redis EVAL "$POOLS_SCRIPT" 1 "$(job_key "$1")"; }

# start_samples JOB_TYPE [POOL]: sample every few milliseconds until stop_samples.
# Fields of a line: 1 time, 2 running, 3 lock, 4 cap, 5 waiting, 6 front of the queue, 7 in progress in POOL.
start_samples() {
  local list
  list=$(job_key "$1")
  sample_with 0.002 "$SAMPLE_SCRIPT" "$list" "$list:${2:-none}:inprogress"
}

# sample_with PAUSE SCRIPT KEY...: into $SAMPLES, the time and the script's answer again and again; 3 minutes at most.
SAMPLES=$SCRATCH/samples
sample_with() {
  local pause=$1 hash
  hash=$(redis SCRIPT LOAD "$2")
  shift 2
  : >"$SAMPLES"
  background take_samples "$pause" "EVALSHA $hash $# $*"
  wait_until 20 "Redis gives no samples" test -s "$SAMPLES"
}

# take_samples PAUSE COMMAND. One redis-cli all the time: it reads commands from its input, and ends when that does.
take_samples() {
  local reply cli deadline=$((SECONDS + 180))
  coproc cli { kube exec --stdin deployment/redis --container redis -- redis-cli 2>/dev/null; }
  while [ "$SECONDS" -lt "$deadline" ]; do
    echo "$2" >&"${cli[1]}" || return
    IFS= read -r -t 10 -u "${cli[0]}" reply || return
    printf '%s %s\n' "${EPOCHREALTIME/./}" "$reply" >>"$SAMPLES"
    # Nothing comes unasked: this is a pause, without a process that sleeps.
    IFS= read -r -t "$1" -u "${cli[0]}" _ || true
  done
}

stop_samples() { stop_background; }

# sampled CONDITION: the first sample for which the awk condition holds; false when there is none. `t` is field 1.
sampled() { awk "{ t = \$1 } $1 { print; found = 1; exit } END { exit !found }" "$SAMPLES"; }

# wait_sample SECONDS SENTENCE CONDITION: until there is one.
wait_sample() { wait_until "$1" "$2" sampled "$3"; }

# idle_since TIME: an awk condition: nothing waits and nothing runs any more.
idle_since() { echo "t > $1 && \$2 == 0 && \$5 == 0"; }

# total NAME [NAMESPACE]: one of poolkeeper's own counters, of the workers' namespace work or another one.
total() {
  local value
  value=$(redis HGET "${2:-work}:poolkeeper:totals" "$1")
  echo "${value:-0}"
}
