# shellcheck shell=bash
# Which cluster: its folder, its names, its options and what others may read.

CHECKOUT=$(cd "$HERE/../.." && pwd)
CLUSTER=$(realpath -ms "${POOLKEEPER_CLUSTER:-$CHECKOUT/.cluster}")
CLUSTER=$(realpath -m "$CLUSTER")
CACHE=$(realpath -ms "${POOLKEEPER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/poolkeeper}")

# The id is what keeps clusters apart: it's the same for the same folder, always.
# Network interfaces have 15 characters at most.
CLUSTER_ID=$(printf '%s' "$CLUSTER" | sha256sum | cut -c 1-8)
CLUSTER_NAME=poolkeeper-$CLUSTER_ID
# shellcheck disable=SC2034 # for network.sh
HOST_LINK=pk$CLUSTER_ID-h

MARKER=$CLUSTER/.poolkeeper-cluster
RUN=$CLUSTER/run
LOGS=$CLUSTER/logs
KUBECONFIG_FILE=$CLUSTER/kubeconfig

# node_ns N, node_dir N, node_cgroup N: what belongs to a node. The control plane
# lives in the network namespace of node 1.
node_ns() { echo "$CLUSTER_NAME-$1"; }
node_dir() { echo "$CLUSTER/node-$1"; }
node_cgroup() { echo "$CLUSTER_NAME/node-$1"; }

in_ns() {
	local number=$1
	shift
	nsenter --net="/run/netns/$(node_ns "$number")" -- "$@"
}

# claim_folder: make the state folder, with the mark that says that it is one.
claim_folder() {
	if [ -e "$CLUSTER" ] && [ ! -e "$MARKER" ]; then
		[ -d "$CLUSTER" ] || die "$CLUSTER is not a folder: set POOLKEEPER_CLUSTER to another one."
		[ -z "$(ls -A "$CLUSTER")" ] || die "$CLUSTER has something else in it: set POOLKEEPER_CLUSTER to a new or an empty folder."
	fi
	mkdir -p "$CLUSTER"
	: >>"$MARKER"
	mkdir -p "$RUN" "$LOGS"
}

# Options are kept from one `up` to the next, in files of one line each.
option() { cat "$CLUSTER/options/$1" 2>/dev/null || true; }

set_option() {
	mkdir -p "$CLUSTER/options"
	echo "$2" | write "$CLUSTER/options/$1"
}

# kubectl for this cluster, with a bound.
kube() {
	timeout 60 "$CACHE/bin/kubectl" --kubeconfig="$KUBECONFIG_FILE" --request-timeout=15s "$@"
}

# write_env: the facts that tests need, as shell variables.
write_env() {
	local number nodes
	nodes=$(option nodes)
	{
		echo "POOLKEEPER_CLUSTER='$CLUSTER'"
		echo "CLUSTER_ID='$CLUSTER_ID'"
		echo "KUBECONFIG='$KUBECONFIG_FILE'"
		echo "KUBERNETES_VERSION='$(option kubernetes)'"
		echo "CONTROL_PLANE_ONLY='$(option control-plane-only)'"
		echo "NODES='$nodes'"
		echo "API_SERVER='https://$(option subnet).2:6443'"
		echo "HOST_ADDRESS='$(option subnet).1'"
		echo "NETNS='$(node_ns 1)'"
		echo "AUDIT_LOG='$LOGS/audit.log'"
		echo "BIN='$CACHE/bin'"
		for ((number = 1; number <= nodes; number++)); do
			echo "NODE_${number}_NAME='node-$number'"
			echo "NODE_${number}_NETNS='$(node_ns "$number")'"
			echo "NODE_${number}_ADDRESS='$(node_address "$number")'"
			echo "NODE_${number}_CONTAINERD='$(node_dir "$number")/containerd.sock'"
			echo "NODE_${number}_CGROUP='$(node_cgroup "$number")'"
			echo "NODE_${number}_PID='$(pid_of "node-$number")'"
			echo "NODE_${number}_KUBELET_PID='$(pid_of "kubelet-$number")'"
			echo "NODE_${number}_CONTAINERD_PID='$(pid_of "containerd-$number")'"
			echo "NODE_${number}_PROXY_PID='$(pid_of "kube-proxy-$number")'"
		done
	} | write "$CLUSTER/env"
	own "$CLUSTER/env"
}
