# shellcheck shell=bash
# Control groups: one per cluster and node, in every hierarchy (version 1 has
# several, version 2 one). The kubelet puts the pods below its node's group.

# cgroup_mounts [TYPE]: where hierarchies are mounted (TYPE: cgroup or cgroup2).
cgroup_mounts() {
	awk -v type="${1:-}" '{
		for (i = 7; i <= NF; i++) if ($i == "-") break
		if ($(i + 1) == type || (type == "" && $(i + 1) ~ /^cgroup2?$/)) print $5
	}' /proc/self/mountinfo
}

cgroup_version() {
	if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
		echo 2
	elif [ -n "$(cgroup_mounts cgroup)" ]; then
		echo 1
	else
		die "no control groups are mounted at /sys/fs/cgroup: mount them (on a machine without systemd, install cgroupfs-mount)."
	fi
}

require_cgroups() {
	local version controller missing=()
	version=$(cgroup_version)
	for controller in cpu cpuset memory pids; do
		if [ "$version" = 2 ]; then
			grep -qw "$controller" /sys/fs/cgroup/cgroup.controllers || missing+=("$controller")
		else
			awk -v c="$controller" '$1 == c && $4 == 1 { found = 1 } END { exit !found }' /proc/cgroups &&
				cgroup_mounts cgroup | grep -qE "[/,]$controller(,|$)" || missing+=("$controller")
		fi
	done
	[ ${#missing[@]} = 0 ] || die "this machine lacks the control group controller ${missing[*]}: enable it (kernel option cgroup_enable=${missing[0]}), or in a container give it access to the host's control groups."
}

# make_cgroup NAME/NODE: in every hierarchy, ready to hold pods.
make_cgroup() {
	local mount group
	if [ "$(cgroup_version)" = 2 ]; then
		group=/sys/fs/cgroup
		local part
		for part in '' "${1%%/*}" "${1#*/}"; do
			group=$group${part:+/$part}
			mkdir -p "$group" || die "cannot make the control group $group: is /sys/fs/cgroup writable?"
			enable_controllers "$group"
		done
		return
	fi
	cgroup_mounts cgroup | while read -r mount; do
		for group in "$mount/${1%%/*}" "$mount/$1"; do
			mkdir -p "$group" || die "cannot make the control group $group: is $mount writable?"
			fill_cpuset "$group"
		done
	done
}

# enable_controllers GROUP: version 2 hands controllers down level by level. A
# group that does so has no process of its own (other than the root group).
enable_controllers() {
	local controller
	for controller in cpu cpuset memory pids io hugetlb; do
		grep -qw "$controller" "$1/cgroup.controllers" || continue
		grep -qw "$controller" "$1/cgroup.subtree_control" && continue
		echo "+$controller" >"$1/cgroup.subtree_control" 2>/dev/null ||
			die "cannot enable the controller $controller in $1: in a container, move its processes to a group below the top one first."
	done
}

# fill_cpuset GROUP: version 1 starts with no processors, which fits no process.
fill_cpuset() {
	local file
	for file in cpuset.cpus cpuset.mems; do
		[ -e "$1/$file" ] || continue
		[ -n "$(cat "$1/$file")" ] || cat "$(dirname "$1")/$file" >"$1/$file"
	done
}

# cgroup_folders NAME: the group itself and those below it, deepest first.
cgroup_folders() {
	local mount
	cgroup_mounts | while read -r mount; do
		[ ! -d "$mount/$1" ] || find "$mount/$1" -depth -type d 2>/dev/null
	done || true
}

cgroup_pids() {
	local folder
	cgroup_folders "$1" | while read -r folder; do
		cat "$folder/cgroup.procs" 2>/dev/null
	done | sort -un || true
}

no_cgroup_pids() {
	local pids
	pids=$(cgroup_pids "$1")
	[ -n "$pids" ] || return 0
	# shellcheck disable=SC2086 # a list
	kill -KILL $pids 2>/dev/null || true
	return 1
}

# kill_cgroup NAME: end all processes in it and below.
kill_cgroup() {
	local file
	cgroup_folders "$1" | while read -r file; do
		# A frozen process does not see the signal.
		[ ! -e "$file/freezer.state" ] || echo THAWED >"$file/freezer.state" || true
		[ ! -e "$file/cgroup.freeze" ] || echo 0 >"$file/cgroup.freeze" || true
	done 2>/dev/null
	wait_for 30 no_cgroup_pids "$1" ||
		die "process $(cgroup_pids "$1" | tr '\n' ' ')in the control group $1 does not end although it was killed: see 'ps -o pid,stat,wchan,args'."
}

no_cgroup() {
	local folder
	cgroup_folders "$1" | while read -r folder; do rmdir "$folder" 2>/dev/null || true; done
	[ -z "$(cgroup_folders "$1")" ]
}

remove_cgroup() {
	must_wait 20 "the control group $1 cannot be removed: see its cgroup.procs below /sys/fs/cgroup." no_cgroup "$1"
}
