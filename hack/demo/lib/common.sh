# shellcheck shell=bash
# shellcheck disable=SC2034 # variables in capitals are shared with the other files
# What every part of the demo needs: messages, bounded waits, background jobs, the table of what happened.

export LC_ALL=C # decimal points, and one sort order
BEGAN=$SECONDS

[ -n "${EPOCHREALTIME:-}" ] || {
  echo "make demo: needs bash 5 or newer, and this is $BASH_VERSION" >&2
  exit 1
}

# Where `finish` writes, whatever is redirected when a signal comes.
exec 6>&1 7>&2

SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/poolkeeper-demo.XXXXXX")

step() { printf '\n== %s  [%d s]\n' "$*" "$((SECONDS - BEGAN))"; }

say() { printf '   %s\n' "$*"; }

die() {
  printf '\nmake demo: %s\n' "$*" >&2
  exit 1
}

# now: microseconds since 1970, by this machine's clock.
now() {
  local time=$EPOCHREALTIME
  echo "${time/./}"
}

# ms FROM TO: the milliseconds between two times of `now`, with one decimal below 100.
ms() {
  awk -v from="$1" -v to="$2" 'BEGIN { d = (to - from) / 1000; printf (d < 100 ? "%.1f ms" : "%.0f ms"), d }'
}

# seconds FROM TO: the same in seconds.
seconds() { awk -v from="$1" -v to="$2" 'BEGIN { printf "%.1f s", (to - from) / 1000000 }'; }

# wait_until SECONDS SENTENCE COMMAND...: run COMMAND until it succeeds, or end with SENTENCE.
wait_until() {
  local deadline=$((SECONDS + $1)) bound=$1 sentence=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$deadline" ] || die "$sentence (waited $bound s)"
    sleep 0.05
  done
}

# background COMMAND...: run it in a process group of its own, which `stop_background` and the end of the demo end.
STARTED=()
background() {
  set -m
  "$@" </dev/null &
  set +m
  STARTED+=("$!")
}

stop_background() {
  local group
  for group in "${STARTED[@]}"; do
    kill -TERM -- "-$group" 2>/dev/null || true
    wait "$group" 2>/dev/null || true
  done
  STARTED=()
}

# stamp: each line of the input with the time at which it came.
stamp() {
  local line
  while IFS= read -r line; do printf '%s %s\n' "${EPOCHREALTIME/./}" "$line"; done
}

# note WHAT RESULT: a line of the table.
NOTES=()
note() {
  NOTES+=("$1"$'\t'"$2")
  say "$1: $2"
}

table() {
  local what result width=0
  for what in "${NOTES[@]}"; do
    what=${what%%$'\t'*}
    [ ${#what} -le "$width" ] || width=${#what}
  done
  while IFS=$'\t' read -r what result; do printf '%-*s  %s\n' "$width" "$what" "$result"; done < <(printf '%s\n' "${NOTES[@]}")
}

# finish: at the end, whatever the end is.
finish() {
  local status=$?
  trap '' INT TERM HUP
  trap - EXIT
  exec >&6 2>&7
  stop_background
  if [ "$status" != 0 ] && [ "$status" -lt 128 ]; then explain_failure || true; fi
  clean_up || status=1
  rm -rf "$SCRATCH"
  exit "$status"
}

# explain_failure: what the cluster says, where there is one already.
explain_failure() {
  [ -n "${APPLIED:-}" ] || return 0
  {
    echo
    kube get jobqueues,pods -o wide
    kube get jobqueues -o 'jsonpath={range .items[*]}JobQueue {.metadata.name}{"\n"}{range .status.conditions[*]}  {.type}={.status} {.reason}: {.message}{"\n"}{end}{end}'
    "$KUBECTL" --namespace "$OPERATOR_NAMESPACE" logs "deployment/$RELEASE" --tail=15
  } >&2 2>&1
}

# kube ARGUMENT...: kubectl in the demo's namespace.
kube() { "$KUBECTL" --namespace "$NAMESPACE" "$@"; }

# program NAME: its path; from the cache where it is not on the PATH.
program() {
  command -v "$1" && return
  "$ROOT/hack/cluster/build-tools" "$1"
}
