# shellcheck shell=bash
# A worker that is killed in the middle of its jobs, and one that is asked to go.

LONG_MS=${LONG_MS:-15000}

act_death() {
  local line pool pod count id before jobs zero reported freed again ended
  step "4. A worker is killed in the middle of its jobs"
  change_cap
  ready_to_strike
  enqueue send_email 4 "{\"ms\":$LONG_MS}"
  local ids=("${ENQUEUED[@]}")
  enqueue send_email 4 '{"ms":200}'
  ids+=("${ENQUEUED[@]}")
  wait_until 30 "the jobs were not started" four_run
  # The worker with the most jobs.
  line=$(pools_of send_email | sort -k 3 -n | tail -n 1)
  read -r pool pod count <<<"$line"
  say "pod $pod runs $count of 4 jobs; 4 more wait"
  id=$(kube get pod "$pod" -o 'jsonpath={.status.containerStatuses[?(@.name=="worker")].containerID}')
  background watch_container "$pod"
  wait_until 20 "the watch over pod $pod says nothing" test -s "$SCRATCH/watch"
  start_samples send_email "$pool"
  STRUCK=''
  before=$(now)
  strike "$pod" "${id##*/}"
  zero=${STRUCK:-$before}
  wait_sample 60 "what the dead worker held was not given back" "t > $zero && \$7 == \"-\""
  wait_until 60 "the API server does not tell of the end of the container" reported_end "${id##*/}"
  wait_sample 60 "the jobs were not started again" "t > $zero && \$7 == \"-\" && \$2 == 4"
  freed=$(sampled "t > $zero && \$7 == \"-\"")
  reported=$(reported_end "${id##*/}")
  again=$(sampled "t > ${freed%% *} && \$2 == 4" | cut -d ' ' -f 1)
  jobs=$(awk -v zero="$zero" '$1 < zero || $7 != "-" { last = $7 } $1 > zero && $7 == "-" { exit } END { print last }' "$SAMPLES")
  after_strike
  wait_sample 90 "the jobs did not end" "$(idle_since "$again")"
  ended=$(sampled "$(idle_since "$again")" | cut -d ' ' -f 1)
  stop_samples
  report_death "$zero" "$reported" "$freed" "$again" "$ended" "$jobs" "$count"
  check_runs "$count" "${ids[@]}"
}

# change_cap: so that there is more to hold; and to show that a change is there at once.
change_cap() {
  local asked
  start_samples send_email
  set_jobs 4
  asked=$(now)
  wait_sample 20 "the new cap is not in Redis" "\$4 == 4"
  asked=$(sampled "\$4 == 4" | awk -v asked="$asked" '{ d = ($1 - asked) / 1000; printf "%.0f", d < 0 ? 0 : d }')
  stop_samples
  note "Cap changed from 2 to 4 in the JobQueue" "in Redis $asked ms after kubectl had said so"
}

four_run() { [ "$(pools_of send_email | awk '{ n += $3 } END { print n + 0 }')" = 4 ]; }

# watch_container POD: each state of its worker container, with the time at which the API server told it.
watch_container() {
  local status='.status.containerStatuses[?(@.name=="worker")]'
  # No range: kubectl's watch prints what is in one for the first object only.
  kube get pod "$1" --watch -o "jsonpath=state={$status.state.terminated.containerID} last={$status.lastState.terminated.containerID}{\"\\n\"}" |
    stamp >"$SCRATCH/watch"
}

# reported_end CONTAINER_ID: when its end was told.
reported_end() { awk -v id="$1" 'index($0, id) { print $1; found = 1; exit } END { exit !found }' "$SCRATCH/watch"; }

# report_death ZERO REPORTED FREED-SAMPLE AGAIN DONE JOBS COUNT
report_death() {
  local at lock front taken how
  read -r at _ lock _ _ front _ <<<"$3"
  taken=$(taken_again "$6" "$front") || die "the jobs are not at the front in the order taken: were $6, front is $front"
  how="$7 of $7 in front of the 4 that waited, byte for byte, in the order taken"
  [ "$taken" = 0 ] || how="$how ($taken of them in another worker's hands by then)"
  if [ -n "$STRUCK" ]; then
    note "Worker killed with SIGKILL, $7 jobs running" "kubelet's report is in the API $(ms "$1" "$2") after it"
    note "  locks free, jobs back in the queue" "$(ms "$1" "$at") after the kill (locks of send_email: 4, then $lock)"
  else
    note "Worker ended abruptly (exit status 137), $7 jobs running" "kubelet's report is in the API"
    note "  locks free, jobs back in the queue" "$(ms "$2" "$at") after that (locks of send_email: 4, then $lock)"
  fi
  note "  the jobs" "$how"
  note "  running again, all ended" "$(seconds "$at" "$4") and $(seconds "$at" "$5") later"
}

# taken_again JOBS FRONT: how many of JOBS, from the end that runs next, are no longer at the end of FRONT; the others must
# be there in the same order.
taken_again() {
  local rest=$1 taken=0
  until [ "$rest" = "$2" ] || [[ $2 == *,$rest ]]; do
    taken=$((taken + 1))
    case $rest in
      *,*) rest=${rest%,*} ;;
      # All were taken: what is in front now was behind them.
      *) echo "$taken" && return ;;
    esac
  done
  # Of jobs that can't be told from those behind them nothing is known; there are none, as each has an id of its own.
  echo "$taken"
}

# check_runs COUNT JOB_ID...: each job ended once; COUNT of them were started twice, the others once.
check_runs() {
  local id twice=0 expected=$1
  shift
  gather_logs
  for id in "$@"; do
    case $(times start "$id") in
      1) ;;
      2) twice=$((twice + 1)) ;;
      *) die "job $id was started $(times start "$id") times" ;;
    esac
  done
  [ "$(ended "$@")" = $# ] || die "of $# jobs, $(ended "$@") ended exactly once"
  [ "$twice" = "$expected" ] || die "$expected jobs were killed, and $twice were started twice"
  note "  jobs lost, or run twice without having been killed" "none of $#"
}

act_graceful() {
  local pool pod requeued from ended gone
  step "5. A pod is deleted while its job runs on"
  requeued=$(total jobs_requeued)
  enqueue report 1 '{"ms":8000}'
  wait_until 30 "the job was not started" runs_report
  read -r pool pod _ < <(pools_of report | grep ' 1$')
  start_samples report "$pool"
  background follow "$pod"
  from=$(now)
  kube delete pod "$pod" --wait=false >/dev/null
  say "kubectl delete pod $pod"
  wait_sample 60 "the job did not end" "t > $from && \$2 == 0"
  ended=$(sampled "t > $from && \$2 == 0" | cut -d ' ' -f 1)
  if sampled "\$5 > 0" >/dev/null; then die "the job went back to the queue while it still ran"; fi
  kube wait --for=delete "pod/$pod" --timeout=90s >/dev/null || die "pod $pod does not go; look at: kubectl --namespace $NAMESPACE describe pod $pod"
  gone=$(now)
  wait_until 20 "the log of pod $pod does not tell of the end of the job" grep -q '"event":"process-stop"' "$SCRATCH/logs"
  stop_samples
  [ "$(times start "${ENQUEUED[0]}") $(times end "${ENQUEUED[0]}")" = "1 1" ] || die "the job of the deleted pod did not run exactly once"
  [ "$(total jobs_requeued)" = "$requeued" ] || die "a job of the pod that ended well went back to the queue"
  note "Pod deleted while its job ran" "the job ran on for $(seconds "$from" "$ended"), ended, and ran once; nothing was taken from it; the pod was gone $(seconds "$ended" "$gone") later"
}

runs_report() { pools_of report | grep -q ' 1$'; }

follow() { kube logs "$1" --container worker --follow >"$SCRATCH/logs"; }
