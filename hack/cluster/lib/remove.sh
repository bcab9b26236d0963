# shellcheck shell=bash
# Taking a cluster down, whatever is left of it.

# remove_processes: nothing has to be kept, so nothing is asked to end in order.
remove_processes() {
	kill_marked
	kill_cgroup "$CLUSTER_NAME"
	# Shims that were being started meanwhile.
	kill_marked
}

# mounts: what is mounted below the state folder. Usually nothing: a node's mounts
# are in a mount namespace of its own.
mounts() {
	awk -v folder="$CLUSTER/" 'index($5 "/", folder) == 1 {print $5}' /proc/self/mountinfo | sort -r
}

remove_mounts() {
	local mount
	mounts | while read -r mount; do
		mount=$(printf '%b' "$mount")
		umount "$mount" 2>/dev/null || umount -l "$mount" 2>/dev/null || true
	done
	[ -z "$(mounts)" ] || die "still mounted below $CLUSTER: $(mounts | paste -sd ' '); unmount it by hand and try again."
}

# remove_folder: the mark goes last, so that it can be told from other folders
# until the end.
remove_folder() {
	[ -e "$CLUSTER" ] || return 0
	if [ ! -e "$MARKER" ]; then
		[ ! -d "$CLUSTER" ] || [ -n "$(ls -A "$CLUSTER")" ] || rmdir "$CLUSTER"
		[ ! -e "$CLUSTER" ] || say "$CLUSTER is not a cluster's folder, so it stays."
		return
	fi
	find "$CLUSTER" -xdev -mindepth 1 -maxdepth 1 ! -path "$MARKER" -exec rm -rf --one-file-system {} + ||
		die "could not remove all of $CLUSTER: see above."
	rm -f "$MARKER"
	rmdir "$CLUSTER"
}

remove_cluster() {
	# Somebody may have removed the mark, but not all the rest.
	if [ -d "$CLUSTER" ] && [ -n "$(marked)$(namespaces)" ]; then : >>"$MARKER"; fi
	remove_processes
	remove_mounts
	remove_network
	remove_cgroup "$CLUSTER_NAME"
	remove_folder
}
