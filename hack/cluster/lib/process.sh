# shellcheck shell=bash
# The cluster's processes: started once, known for sure, ended for sure.
#
# Every process has POOLKEEPER_COMPONENT=ID:NAME in its environment (what it
# starts inherits that), and run/NAME.pid holds its pid and its start time. The
# pid file is written by the process itself before it becomes the program, so a
# killed `up` never leaves one that nobody knows.

start_time() { # PID
	local stat
	stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
	stat=${stat##*) }
	# shellcheck disable=SC2086 # split on purpose
	set -- $stat
	[ "$1" != Z ] && echo "${20}"
}

# pid_of NAME: its pid, if it runs.
pid_of() {
	local pid started
	read -r pid started 2>/dev/null <"$RUN/$1.pid" || return 0
	[ -z "$started" ] || [ "$(start_time "$pid")" != "$started" ] || echo "$pid"
}

running() { [ -n "$(pid_of "$1")" ]; }

# marked [NAMES]: the pids of all that belongs to this cluster, including what
# containerd started (but not containers, see cgroup_pids). NAMES is a regular
# expression.
marked() {
	grep -lzx "POOLKEEPER_COMPONENT=$CLUSTER_ID:${1:-.*}" /proc/[0-9]*/environ 2>/dev/null |
		cut -d / -f 3 || true
}

# kill_marked [NAMES]: end them at once. Newly forked ones are caught by
# looking again until there are none.
none_marked() {
	local pids
	pids=$(marked "${1:-}")
	[ -n "$pids" ] || return 0
	# shellcheck disable=SC2086 # a list
	kill -KILL $pids 2>/dev/null || true
	return 1
}

kill_marked() {
	wait_for 30 none_marked "${1:-}" ||
		die "process $(marked "${1:-}" | tr '\n' ' ')does not end although it was killed: see 'ps -o pid,stat,wchan,args'."
}

# start NAME COMMAND...: run COMMAND in the background with its output in
# logs/NAME.log, unless the same command runs already.
start() {
	local name=$1
	shift
	if running "$name" && [ "$(cat "$RUN/$name.command" 2>/dev/null)" = "$*" ]; then
		return
	fi
	stop "$name"
	# It holds the cluster's lock (see lock_cluster) until it is on record, so that
	# a `down` after a killed `up` cannot miss it.
	# shellcheck disable=SC2016 # expanded by the shell that is started
	POOLKEEPER_COMPONENT="$CLUSTER_ID:$name" setsid bash -c '
		read -r stat </proc/$$/stat
		fields=(${stat##*) })
		echo "$$ ${fields[19]}" >"$0.pid.new" && mv -f "$0.pid.new" "$0.pid"
		exec "$@" 7>&- 8>&- 9>&-' "$RUN/$name" "$@" </dev/null >>"$LOGS/$name.log" 2>&1 &
	must_wait 10 "$name did not start: see $LOGS/$name.log" running_or_gone "$name" $!
	echo "$*" | write "$RUN/$name.command"
}

# A program that ends at once has been started, too; whoever needs it will see.
running_or_gone() { running "$1" || ! kill -0 "$2"; }

# stop NAME: end it, kindly for a few seconds.
stop() {
	local pid
	pid=$(pid_of "$1")
	if [ -n "$pid" ]; then
		kill -TERM "$pid" 2>/dev/null || true
		wait_for 5 stopped "$1" || kill -KILL "$pid" 2>/dev/null || true
		must_wait 10 "$1 (process $pid) does not end although it was killed." stopped "$1"
	fi
	# One that a killed `up` started and that wrote its pid too late.
	local stray
	for stray in $(marked "$1"); do
		case $(cat "/proc/$stray/comm" 2>/dev/null) in
		containerd-shim*) ;;
		*) kill -KILL "$stray" 2>/dev/null || true ;;
		esac
	done
	rm -f "$RUN/$1.pid" "$RUN/$1.command"
}

stopped() { ! running "$1"; }

# log_tail NAME: the last lines of a log, for an error.
log_tail() { tail -n 15 "$LOGS/$1.log" >&2 || true; }
