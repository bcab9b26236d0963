# shellcheck shell=bash
# Networks: a namespace per node, wires between them, and one wire to the host.
#
# The cluster has a /24 of its own. Node 1 (with the control plane) is .2, the
# host's end of its wire .1. Node N > 1 is .4N-2, node 1's end of its wire .4N-3:
# four addresses for each. Pods of node N have 10.244.N.0/24, services 10.96.0.0/16;
# the host has no route to these, so they may be the same in every cluster.

# shellcheck disable=SC2034 # for control-plane.sh
SERVICE_RANGE=10.96.0.0/16
# shellcheck disable=SC2034 # for control-plane.sh and node.sh
POD_RANGE=10.244.0.0/16

node_address() {
	local subnet
	subnet=$(option subnet)
	[ -z "$subnet" ] || echo "$subnet.$((4 * $1 - 2))"
}

pod_range() { echo "10.244.$1.0/24"; }

# used_ranges: every address and route of the host, one a line.
used_ranges() {
	ip -4 -o address show | awk '{print $4}'
	ip -4 route show table all | awk '{
		for (i = 1; i <= 2; i++) if ($i ~ /^[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+(\/[0-9]+)?$/) { print $i; break }
	}'
}

# free_subnet: the first three numbers of a /24 that nothing on the host uses.
# Starts at a place that depends on the folder, so that it usually stays the same.
free_subnet() {
	used_ranges | awk -v seed="$((16#${CLUSTER_ID:0:4}))" '
		function number(address, p) { split(address, p, "."); return ((p[1] * 256 + p[2]) * 256 + p[3]) * 256 + p[4] }
		{
			split($1, part, "/")
			bits = part[2] == "" ? 32 : part[2]
			# Routes as wide as 0.0.0.0/1 stand for "everything else".
			if (bits < 4) next
			size = 2 ^ (32 - bits)
			from[n] = int(number(part[1]) / size) * size
			to[n] = from[n] + size - 1
			n++
		}
		END {
			split("10.98 172.29 10.197 192.168", bases, " ")
			for (b = 1; b <= 4; b++) for (i = 0; i < 256; i++) {
				subnet = bases[b] "." ((seed + i) % 256)
				low = number(subnet ".0"); high = low + 255; free = 1
				for (j = 0; j < n; j++) if (from[j] <= high && to[j] >= low) { free = 0; break }
				if (free) { print subnet; exit }
			}
		}'
}

# wired INTERFACE ADDRESS: does the interface of this namespace have it?
wired() { ip -4 -o address show dev "$1" 2>/dev/null | grep -qF " $2/30 "; }

namespace_works() { nsenter --net="/run/netns/$1" true 2>/dev/null; }

make_namespace() {
	if ! namespace_works "$1"; then
		lock_host 60
		# A killed `up` may have left the file without a namespace.
		ip netns delete "$1" 2>/dev/null || rm -f "/run/netns/$1"
		ip netns add "$1" || die "cannot make a network namespace: in a container, run it privileged."
		unlock_host
	fi
	nsenter --net="/run/netns/$1" -- sh -c '
		ip link set lo up
		echo 1 >/proc/sys/net/ipv4/ip_forward' ||
		die "cannot set up the network namespace $1: is /proc/sys/net writable?"
}

# wire_host: the namespace of node 1 and its wire to the host. The range is chosen
# and put to use under a lock, so what the host has in use says what is taken.
wire_host() {
	local namespace subnet node_link=pk$CLUSTER_ID-n
	namespace=$(node_ns 1)
	make_namespace "$namespace"
	subnet=$(option subnet)
	if [ -n "$subnet" ] && wired "$HOST_LINK" "$subnet.1" && in_ns 1 bash -c "$(declare -f wired); wired $node_link $subnet.2"; then
		return
	fi
	lock_host 60
	ip link delete "$HOST_LINK" 2>/dev/null || true
	subnet=$(free_subnet)
	[ -n "$subnet" ] || die "no free /24 address range is left in 10.98, 172.29, 10.197 or 192.168: take down other clusters (see 'ip address')."
	set_option subnet "$subnet"
	ip link add "$HOST_LINK" type veth peer name "$node_link" netns "$namespace" ||
		die "cannot make a pair of virtual interfaces: does the kernel have veth ('modprobe veth')?"
	ip address add "$subnet.1/30" dev "$HOST_LINK"
	ip link set "$HOST_LINK" up
	unlock_host
	in_ns 1 sh -c "
		ip address add $subnet.2/30 dev $node_link
		ip link set $node_link up
		ip route add default via $subnet.1"
}

# wire_node N: the namespace of another node, and its wire to node 1.
wire_node() {
	local number=$1 namespace subnet near here
	namespace=$(node_ns "$number")
	subnet=$(option subnet)
	near=$subnet.$((4 * number - 3))
	here=$(node_address "$number")
	make_namespace "$namespace"
	if in_ns "$number" bash -c "$(declare -f wired); wired node $here" &&
		in_ns 1 ip route show "$(pod_range "$number")" | grep -q .; then
		return
	fi
	in_ns 1 ip link delete "node-$number" 2>/dev/null || true
	in_ns 1 ip link add "node-$number" type veth peer name node netns "$namespace"
	in_ns "$number" sh -c "
		ip address add $here/30 dev node
		ip link set node up
		ip route add default via $near"
	in_ns 1 sh -c "
		ip address add $near/30 dev node-$number
		ip link set node-$number up
		ip route add $(pod_range "$number") via $here"
}

namespaces() {
	local path
	for path in "/run/netns/$CLUSTER_NAME"-*; do
		[ ! -e "$path" ] || basename "$path"
	done
}

remove_network() {
	local namespace
	ip link delete "$HOST_LINK" 2>/dev/null || true
	for namespace in $(namespaces); do
		ip netns delete "$namespace" 2>/dev/null || rm -f "/run/netns/$namespace" ||
			die "cannot remove the network namespace $namespace: see 'ip netns' and 'findmnt /run/netns/$namespace'."
	done
	lock_host 60
	# ip makes this folder, and mounts it, with the first namespace.
	if [ -d /run/netns ] && [ -z "$(ls -A /run/netns)" ]; then
		umount /run/netns 2>/dev/null || true
		rmdir /run/netns 2>/dev/null || true
	fi
	unlock_host
	must_wait 20 "the interface $HOST_LINK does not go away: see 'ip link show $HOST_LINK'." no_host_link
}

no_host_link() { ! ip link show "$HOST_LINK"; }
