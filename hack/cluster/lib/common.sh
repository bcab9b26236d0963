# shellcheck shell=bash
# What every command needs: messages, waiting with a bound, locks, root.

say() { printf '%s\n' "$*" >&2; }

die() {
	printf '%s: %s\n' "$(basename "$0")" "$*" >&2
	exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# wait_for SECONDS COMMAND...: run COMMAND until it succeeds. False when it
# hasn't within that time. The only place where time is spent waiting.
wait_for() {
	local deadline=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ "$SECONDS" -lt "$deadline" ] || return 1
		sleep 0.1
	done
}

# must_wait SECONDS SENTENCE COMMAND...: wait_for, or end with SENTENCE.
must_wait() {
	local seconds=$1 sentence=$2
	shift 2
	wait_for "$seconds" "$@" || die "$sentence (waited $seconds s)"
}

# Programs such as ip and iptables are not on everybody's PATH.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
export PATH

# The state folder can be read by everybody, but for keys.
umask 022

require_linux() {
	[ "$(uname -s)" = Linux ] || die "the test cluster runs on Linux only (this is $(uname -s)): run it in a Linux machine or virtual machine."
}

# as_root COMMAND...: run it as root, through sudo where needed.
as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	else
		have sudo || die "this needs root: run it as root or install sudo."
		sudo "$@"
	fi
}

# become_root ARGUMENT...: start the running command again as root if it isn't.
become_root() {
	[ "$(id -u)" != 0 ] || return 0
	have sudo || die "this needs root: run it as root or install sudo."
	local variables=() name
	for name in PATH HOME GOFLAGS GOPROXY GOSUMDB GOTOOLCHAIN GOMODCACHE GOCACHE; do
		[ -z "${!name:-}" ] || variables+=("$name=${!name}")
	done
	exec sudo env "${variables[@]}" \
		POOLKEEPER_CLUSTER="$CLUSTER" POOLKEEPER_CACHE="$CACHE" "$0" "$@"
}

# own FILE...: give files to the user who called sudo.
own() {
	[ -z "${SUDO_UID:-}" ] || chown -R "$SUDO_UID:${SUDO_GID:-$SUDO_UID}" "$@"
}

# lock_host SECONDS: one at a time on this host, for what all clusters share (the
# choice of an address range). Held on file descriptor 8 until unlock_host.
lock_host() {
	exec 8</run
	flock -w "$1" 8 || die "another cluster command held the lock on /run for $1 s: look for it with 'fuser -v /run'."
}

unlock_host() { exec 8<&-; }

# lock_cluster SECONDS: one command at a time for this cluster, on descriptor 9.
# The file is removed by `down`, hence the check that it still is the same one.
lock_cluster() {
	local file=/run/$CLUSTER_NAME.lock deadline=$((SECONDS + $1))
	while :; do
		exec 9>"$file"
		flock -n 9 || say "Waiting for another command that works on $CLUSTER ..."
		flock -w "$1" 9 || die "another command has worked on $CLUSTER for $1 s: wait for it, or end it (see 'fuser -v $file') and try again."
		[ "$(stat -Lc %i /proc/self/fd/9)" != "$(stat -c %i "$file" 2>/dev/null)" ] || return 0
		[ "$SECONDS" -lt "$deadline" ] || die "the lock $file changes all the time: is another command in a loop?"
	done
}

unlock_cluster() { exec 9>&-; }

# write FILE: replace FILE by standard input, as a whole or not at all.
write() {
	cat >"$1.new.$$" && mv -f "$1.new.$$" "$1"
}
