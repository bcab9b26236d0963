# shellcheck shell=bash
# shellcheck disable=SC2034 # variables in capitals are shared with the other files
# A burst of jobs for which there are no workers yet: 0 -> N -> 0, as a chart, as figures, and as a picture.

THUMBNAILS=thumbnails:jobs:thumbnail
REPLICAS=$SCRATCH/replicas
LOGS=$SCRATCH/logs.d
FOLDER=${CARGO_TARGET_DIR:-$ROOT/target}/demo
PICTURE=$FOLDER/scaling.svg

# The time by Redis' clock in microseconds, jobs that wait, jobs that run, at one instant.
# KEYS: 1 list
BURST_SCRIPT='
local running = 0
for _, key in ipairs(redis.call("KEYS", KEYS[1] .. ":*:inprogress")) do running = running + redis.call("LLEN", key) end
local time = redis.call("TIME")
return table.concat({time[1] .. string.format("%06d", time[2]), redis.call("LLEN", KEYS[1]), running}, " ")'

act_scaling() {
  local pushed gone ids
  read -r AT_MOST STAYS < <(kube get jobqueue thumbnails -o 'jsonpath={.spec.scaling.maxReplicas} {.spec.scaling.scaleDownStabilizationSeconds}{"\n"}')
  step "6. A burst of jobs, and no worker: 0 -> $AT_MOST -> 0"
  wait_until 60 "the JobQueue thumbnails has workers though it has no jobs; look at: kubectl --namespace $NAMESPACE describe jobqueue thumbnails" no_workers
  mkdir -p "$LOGS" "$FOLDER"
  background watch_replicas
  background follow_workers
  sample_with 0.03 "$BURST_SCRIPT" "$THUMBNAILS"
  wait_until 20 "the watch over the Deployment thumbnails says nothing" test -s "$REPLICAS"
  background monitor
  wait_until 20 "Redis does not take MONITOR" grep -q '^OK' "$SCRATCH/monitor"
  sed "s|localhost/gocraft-worker:dev|$WORKER_IMAGE|" "$ROOT/hack/demo/lib/burst.yaml" | kube apply -f - >/dev/null
  wait_until 90 "the pod burst enqueued no job; look at: kubectl --namespace $NAMESPACE describe pod burst" pushed_first
  pushed=$(pushed_first)
  end_monitor
  chart "$pushed"
  say_why "$pushed"
  wait_until 90 "the last worker's pod does not go; look at: kubectl --namespace $NAMESPACE describe pods" no_pods
  gone=$(now)
  mapfile -t ids < <(kube logs burst --container short && kube logs burst --container long)
  wait_until 20 "the workers' logs do not tell of the end of all ${#ids[@]} jobs" all_ended "${#ids[@]}"
  stop_samples
  write_table "$pushed" >"$FOLDER/scaling.csv"
  "$ROOT/hack/demo/draw" "$FOLDER/scaling.csv" "${#ids[@]} jobs come at once, and there are no workers: 0 → $AT_MOST → 0" \
    "60 jobs of 2 s, then 3 of 15 s; a worker runs 2 at once. minReplicas 0, maxReplicas $AT_MOST, scaleDownStabilizationSeconds $STAYS." >"$PICTURE"
  report_scaling "$pushed" "$gone" "${#ids[@]}"
  check_each_once "${ids[@]}"
}

no_workers() { [ "$(kube get deployment thumbnails -o 'jsonpath={.spec.replicas} {.status.replicas}')" = "0 " ]; }

no_pods() {
  local pods
  pods=$(kube get pods --selector app.kubernetes.io/name=thumbnail-worker -o name) && [ -z "$pods" ]
}

# watch_replicas: time, then what is asked for, there and Ready, of the Deployment.
watch_replicas() {
  kube get deployment thumbnails --watch \
    -o 'jsonpath={.spec.replicas}:{.status.replicas}:{.status.readyReplicas}{"\n"}' |
    while IFS=: read -r asked there ready; do
      printf '%s %d %d %d\n' "${EPOCHREALTIME/./}" "$asked" "$there" "$ready"
    done >"$REPLICAS"
}

# follow_workers: the log of each worker, from its first line to its last, as it is gone with the pod.
follow_workers() {
  local name ready
  kube get pods --selector app.kubernetes.io/name=thumbnail-worker --watch \
    -o 'jsonpath={.metadata.name} {.status.containerStatuses[?(@.name=="worker")].ready}{"\n"}' |
    while read -r name ready; do
      if [ "$ready" != true ] || [ -e "$LOGS/$name" ]; then continue; fi
      kube logs "$name" --container worker --follow >"$LOGS/$name" 2>/dev/null &
    done
}

# pushed_first: when the first job was pushed, by this machine's clock. MONITOR has Redis' clock; the samples have both,
# and how far they are apart is the least that a sample took from one to the other.
pushed_first() {
  local at
  at=$(awk -v key="\"$THUMBNAILS\"" 'toupper($4) == "\"LPUSH\"" && $5 == key { sub(/\./, "", $1); print $1; exit }' "$SCRATCH/monitor")
  [ -n "$at" ] || return
  awk -v at="$at" '{ apart = $1 - $2; if (NR == 1 || apart < least) least = apart } END { printf "%.0f\n", at + least }' "$SAMPLES"
}

# chart PUSHED: a line each second, until all is done and the replicas are 0 again.
chart() {
  local pushed=$1 deadline=$((SECONDS + 150)) second=0 before=0 left waiting running asked there ready
  say "#: jobs that wait, two each   =: jobs that run   @: replicas that are Ready   .: replicas that are asked for"
  printf '\n%9s  %-37s%-16s%s\n' second backlog running replicas
  while :; do
    read -r _ _ waiting running < <(tail -n 1 "$SAMPLES")
    read -r _ asked there ready < <(tail -n 1 "$REPLICAS")
    printf '%9d  %2d %-34s%2d %-13s%d %s\n' "$second" "$waiting" "$(bar '#' $(((waiting + 1) / 2)))" \
      "$running" "$(bar '=' "$running")" "$asked" "$(bar @ "$ready")$(bar . $((asked - ready)))"
    [ "$waiting $running $asked $there $before" != "0 0 0 0 $AT_MOST" ] || break
    [ "$asked" -le "$before" ] || before=$asked
    [ "$SECONDS" -lt "$deadline" ] ||
      die "150 s after the first job it was not 0 -> $AT_MOST -> 0 yet; poolkeeper says: $(kube get jobqueue thumbnails -o 'jsonpath={.status.scaling.reason}')"
    second=$((second + 1))
    left=$((pushed + second * 1000000 - $(now)))
    [ "$left" -le 0 ] || sleep "$(printf '%d.%06d' $((left / 1000000)) $((left % 1000000)))"
  done
  echo
}

# bar CHARACTER COUNT: so many of it, or nothing.
bar() {
  local line=''
  [ "$2" -le 0 ] || printf -v line '%*s' "$2" ''
  echo "${line// /$1}"
}

# say_why PUSHED: each change of the replicas since then in poolkeeper's own words, from its log.
say_why() {
  local since
  TZ=UTC printf -v since '%(%Y-%m-%dT%H:%M:%SZ)T' $(($1 / 1000000 - 2))
  say "The log of poolkeeper says why:"
  "$KUBECTL" --namespace "$OPERATOR_NAMESPACE" logs --selector "app.kubernetes.io/instance=$RELEASE" --since-time "$since" --tail=-1 |
    sed -nE 's/.*"timestamp":"[^"]*T([0-9:]*\.[0-9]).*"message":"scaled: ([^"]*)","from":([0-9]+),"to":([0-9]+).*/   \1  \3 -> \4  \2/p' | sort
  echo
}

all_ended() { [ "$(cat "$LOGS"/* | grep -c '^{"event":"end"')" -ge "$1" ]; }

# write_table PUSHED: the samples and the replicas as CSV, from 2 s before; a line where something changes.
write_table() {
  awk -v pushed="$1" '
    BEGIN { print "seconds,backlog,running,replicas,ready" }
    FNR == NR { at[++n] = $1; asked[n] = $2; ready[n] = $4; next }
    $1 < pushed - 2000000 { next }
    {
      while (next_one < n && at[next_one + 1] <= $1) next_one++
      now = $3 "," $4 "," asked[next_one] + 0 "," ready[next_one] + 0
      line = sprintf("%.3f,%s", ($1 - pushed) / 1000000, now)
      if (now != before) print line
      before = now
    }
    END { if (line) print line }' "$REPLICAS" "$SAMPLES"
}

# replicas_when CONDITION: when the watch first said so after the push; fields are 1 time, 2 asked for, 3 there, 4 Ready.
replicas_when() { awk -v pushed="$PUSHED" "\$1 < pushed { next } { if (\$2 > most) most = \$2 } $1 { print \$1; exit }" "$REPLICAS"; }

# after FROM TO [seconds]: the time between both; "never" where TO is empty.
after() {
  if [ -z "$2" ]; then echo never; else "${3:-ms}" "$1" "$2"; fi
}

# report_scaling PUSHED GONE JOBS
report_scaling() {
  local PUSHED=$1 gone=$2 first most ready all started drained down steps
  first=$(replicas_when "\$2 > 0")
  most=$(replicas_when "\$2 == $AT_MOST")
  ready=$(replicas_when "\$4 > 0")
  all=$(replicas_when "\$4 == $AT_MOST")
  down=$(replicas_when "most > 0 && \$2 == 0")
  started=$(sampled "t > $PUSHED && \$4 > 0" | cut -d ' ' -f 1)
  drained=$(awk -v from="$started" '$1 > from && $3 + $4 > 0 { last = NR } { at[NR] = $1 } END { print at[last + 1] }' "$SAMPLES")
  steps=$(awk 'NR == 1 || $2 != before { printf "%s%s", (NR == 1 ? "" : " -> "), $2 } { before = $2 }' "$REPLICAS")
  note "$3 jobs pushed, and no worker" "replicas: $steps"
  note "  the first replica asked for" "$(after "$PUSHED" "$first") after the first push (Redis' clock, and a watch of the Deployment)"
  note "  $AT_MOST asked for; one Ready; $AT_MOST Ready" "$(after "$PUSHED" "$most"); $(after "$PUSHED" "$ready" seconds); $(after "$PUSHED" "$all" seconds)"
  note "  the first job started; all had ended" "$(after "$PUSHED" "$started" seconds); $(after "$PUSHED" "$drained" seconds)"
  note "  0 asked for again; no pod left" "$(after "$drained" "$down" seconds) after the last job (scaleDownStabilizationSeconds: $STAYS); $(after "$down" "$gone" seconds) later"
}

# check_each_once JOB_ID...: each was started once and ended once, and poolkeeper gave none back.
check_each_once() {
  local once cut back
  once=$(cat "$LOGS"/* | sed -nE 's/^\{"event":"(start|end)","job_id":"([^"]*)".*/\1 \2/p' | sort | uniq -c |
    awk '$1 == 1 { seen[$3]++ } END { for (id in seen) if (seen[id] == 2) print id }' | sort)
  cut=$(($# - $(comm -12 <(printf '%s\n' "$@" | sort) <(echo "$once") | wc -l)))
  back=$(total jobs_requeued thumbnails)
  [ "$cut $back" = "0 0" ] || die "of $# jobs, $cut were not run exactly once, and $back were given back to the queue"
  note "  jobs enqueued, run, cut off or run twice" "$#, $#, 0 ($(find "$LOGS" -type f | wc -l) workers' logs)"
}
