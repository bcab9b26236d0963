# shellcheck shell=bash
# What is shown of caps, and the result of it all. deaths.sh and scaling.sh have the rest.

# enqueue JOB_TYPE COUNT ARGS: with the library's own Enqueuer, unchanged. Sets ENQUEUED to the jobs' ids.
enqueue() {
  mapfile -t ENQUEUED < <(kube exec deployment/mail --container worker -- gocraft-worker enqueue "$1" -n "$2" -args "$3")
  [ ${#ENQUEUED[@]} = "$2" ] || die "$2 jobs of type $1 were to be enqueued, and ${#ENQUEUED[@]} were; see above"
}

# set_jobs CAP [MORE]: the cap of send_email in the JobQueue, and MORE fields (as JSON) of report.
set_jobs() {
  kube patch jobqueue mail --type=merge --patch \
    "{\"spec\":{\"jobs\":[{\"name\":\"send_email\",\"maxConcurrency\":$1},{\"name\":\"report\"${2:-}}]}}" >/dev/null
}

cap_is() { [ "$(redis GET "$(job_key send_email):max_concurrency")" = "$1" ]; }

act_caps() {
  local compiled wanted held
  step "1. A cap: the workers' code says one thing, the JobQueue another"
  compiled=$(kube logs deployment/mail --container worker 2>/dev/null | sed -n 's/.*"event":"process-start".*"send_email":\([0-9]*\).*/\1/p' | head -n 1)
  wanted=$(kube get jobqueue mail -o 'jsonpath={.spec.jobs[?(@.name=="send_email")].maxConcurrency}')
  wait_until 10 "the cap in Redis is not that of the JobQueue" cap_is "$wanted"
  held=$(redis GET "$(job_key send_email):max_concurrency")
  note "Cap of send_email" "in the workers' code $compiled, in the JobQueue $wanted, in Redis $held"
}

# Redis tells, by its own clock, when a cap was overwritten and when a script set it again (MONITOR).
act_overwrite() {
  local key times count=10 i
  step "2. Somebody overwrites the cap"
  key=$(job_key send_email):max_concurrency
  background monitor
  wait_until 20 "Redis does not take MONITOR" grep -q '^OK' "$SCRATCH/monitor"
  for ((i = 0; i < count; i++)); do
    redis SET "$key" 10 >/dev/null
    wait_until 20 "the overwritten cap was not put back" cap_is 2
  done
  end_monitor
  stop_background
  times=$(put_back_times "$key" <"$SCRATCH/monitor" | sort -n)
  [ "$(wc -l <<<"$times")" = "$count" ] || die "the cap was overwritten $count times, and MONITOR shows that it was put back $(wc -w <<<"$times") times"
  note "Cap overwritten with 10, $count times" "back after $(sed -n "$(((count + 1) / 2))p" <<<"$times") ms at the median, $(tail -n 1 <<<"$times") ms at most (Redis' clock)"
}

monitor() { kube exec deployment/redis --container redis -- redis-cli MONITOR >"$SCRATCH/monitor" 2>/dev/null; }

# end_monitor: by Redis, as the program in the pod would go on without us.
end_monitor() {
  local id
  for id in $(redis CLIENT LIST | sed -n 's/^id=\([0-9]*\) .* cmd=monitor .*/\1/p'); do
    redis CLIENT KILL ID "$id" >/dev/null
  done
}

# put_back_times KEY: milliseconds from each SET of a client to the next one of a script, out of MONITOR's lines.
put_back_times() {
  awk -v key="\"$1\"" '
    toupper($4) != "\"SET\"" || $5 != key { next }
    $3 != "lua]" { overwritten = $1; next }
    overwritten { printf "%.2f\n", ($1 - overwritten) * 1000; overwritten = 0 }'
}

act_limit() {
  local count=40 from queued most last
  step "3. $count jobs are enqueued; the two workers have 20 slots, the cap is 2"
  start_samples send_email
  from=$(now)
  enqueue send_email "$count" '{"ms":200}'
  queued=$(now)
  wait_sample 90 "the jobs did not end" "$(idle_since "$queued")"
  last=$(sampled "$(idle_since "$queued")" | cut -d ' ' -f 1)
  stop_samples
  most=$(awk '$2 > most { most = $2 } END { print most + 0 }' "$SAMPLES")
  [ "$most" -le 2 ] || die "$most jobs ran at once, above the cap of 2"
  gather_logs
  [ "$(ended "${ENQUEUED[@]}")" = "$count" ] || die "of $count jobs, $(ended "${ENQUEUED[@]}") ended exactly once"
  note "$count jobs of 200 ms each" "at most $most ran at once ($(wc -l <"$SAMPLES") samples); each ended once, the last after $(seconds "$from" "$last")"
}

# gather_logs: lines of all workers, of ended containers too.
gather_logs() {
  local pod
  : >"$SCRATCH/logs"
  for pod in $(kube get pods --selector app.kubernetes.io/name=mail-worker -o name); do
    kube logs "$pod" --container worker >>"$SCRATCH/logs" 2>/dev/null || true
    kube logs "$pod" --container worker --previous >>"$SCRATCH/logs" 2>/dev/null || true
  done
}

# times EVENT JOB_ID: how often the logs say so.
times() { grep -c "^{\"event\":\"$1\",\"job_id\":\"$2\"" "$SCRATCH/logs" || true; }

# ended JOB_ID...: how many of the jobs ended exactly once.
ended() {
  local id count=0
  for id in "$@"; do
    [ "$(times end "$id")" != 1 ] || count=$((count + 1))
  done
  echo "$count"
}

at_rest() {
  [ "$(kube get jobqueue mail -o 'jsonpath={.status.waiting} {.status.running} {.status.replicas}')" = "0 0 2" ]
}

# show_events JOBQUEUE: of this one, not of one of this name that an earlier run left.
show_events() {
  printf '\n$ kubectl get events --field-selector involvedObject.name=%s\n' "$1"
  kube get events --field-selector "involvedObject.uid=$(kube get jobqueue "$1" -o 'jsonpath={.metadata.uid}')" --sort-by=.eventTime \
    -o 'custom-columns=TYPE:.type,REASON:.reason,TIMES:.series.count,MESSAGE:.message'
}

show_result() {
  step "What happened"
  wait_until 60 "the JobQueue's status does not come to rest" at_rest
  note "Jobs that started above a cap while it was overwritten" "$(total ran_above_cap), counted and reported (docs/redis.md has an ACL that rules them out)"
  echo
  table
  printf '\n$ kubectl get jobqueues\n'
  kube get jobqueues
  show_events mail
  show_events thumbnails
  printf '\nThe picture of 0 -> %s -> 0: %s\n' "$AT_MOST" "$PICTURE"
  show_way_on
  printf '\nDone in %d s.\n' "$((SECONDS - BEGAN))"
}
