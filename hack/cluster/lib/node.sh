# shellcheck shell=bash
# A node: its namespaces, containerd, kubelet and kube-proxy.

# node_start N NAME COMMAND...: start NAME-N within the node.
node_start() {
	local number=$1 name=$2
	shift 2
	start "$name-$number" nsenter --net="/run/netns/$(node_ns "$number")" \
		--mount="/proc/$(pid_of "node-$number")/ns/mnt" -- "$@"
}

# kill_node N: everything in it at once, as if its power failed.
kill_node() {
	kill_marked "[a-z-]*-$1"
	kill_cgroup "$(node_cgroup "$1")"
	# Shims that were being started meanwhile.
	kill_marked "[a-z-]*-$1"
}

# choose_snapshotter: overlayfs where the file system of the state folder can do it.
choose_snapshotter() {
	local try=$CLUSTER/try
	[ -z "$(option snapshotter)" ] || return 0
	mkdir -p "$try/lower" "$try/upper" "$try/work" "$try/merged"
	if unshare --mount mount -t overlay -o "lowerdir=$try/lower,upperdir=$try/upper,workdir=$try/work" none "$try/merged" 2>/dev/null; then
		set_option snapshotter overlayfs
	else
		set_option snapshotter native
	fi
	rm -rf "$try"
}

# hold_node N: the node's mount namespace. When it is gone, or the node's network
# namespace is another one, all else in the node is useless: as after a power loss.
hold_node() {
	local number=$1 directory network
	directory=$(node_dir "$number")
	network=$(stat -Lc %i "/run/netns/$(node_ns "$number")")
	if running "node-$number" && [ -e "$directory/mounted" ] && [ "$(cat "$RUN/node-$number.network" 2>/dev/null)" = "$network" ]; then
		return
	fi
	kill_node "$number"
	rm -rf "$directory/containerd/state" "$directory/mounted"
	mkdir -p "$directory/kubelet" "$directory/containerd" "$directory/pod-logs" "$directory/cni" "$directory/pki"
	echo "$network" | write "$RUN/node-$number.network"
	start "node-$number" unshare --mount --propagation slave -- \
		"$HERE/lib/node-mounts" "$directory" "$(pause_program)" "$CLUSTER" "$CACHE"
	wait_for 10 node_held_or_gone "$number" || true
	if ! running "node-$number" || [ ! -e "$directory/mounted" ]; then
		log_tail "node-$number"
		die "cannot mount what a node needs: see $LOGS/node-$number.log; in a container, run it privileged."
	fi
}

node_held_or_gone() { [ -e "$(node_dir "$1")/mounted" ] || ! running "node-$1"; }

write_containerd_config() { # N
	local directory
	directory=$(node_dir "$1")
	# AppArmor profiles would be loaded into the host's kernel, hence without.
	write "$directory/containerd.toml" <<EOF
version = 2
root = "/run/node/containerd/root"
state = "/run/node/containerd/state"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.internal.v1.tracing",
  "io.containerd.tracing.processor.v1.otlp",
]

[grpc]
  address = "/run/node/containerd.sock"

[plugins."io.containerd.internal.v1.opt"]
  path = "/run/node/containerd/opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$PAUSE_IMAGE"
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "$(option snapshotter)"
    default_runtime_name = "runc"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$(cni_folder)"
    conf_dir = "/run/node/cni"
EOF
	# Point-to-point links instead of a bridge: services work without the kernel
	# module br_netfilter, which would change how the host's own bridges behave.
	write "$directory/cni/10-pods.conflist" <<EOF
{
  "cniVersion": "0.4.0",
  "name": "pods",
  "plugins": [
    {
      "type": "ptp",
      "ipMasq": false,
      "ipam": {
        "type": "host-local",
        "ranges": [[{"subnet": "$(pod_range "$1")"}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/run/node/cni-addresses"
      }
    }
  ]
}
EOF
}

write_kubelet_config() { # N
	local directory
	directory=$(node_dir "$1")
	cp "$PKI/node-$1.crt" "$PKI/node-$1.key" "$PKI/ca.crt" "$directory/pki/"
	kubeconfig "node-$1" "$directory/pki/kubelet.kubeconfig"
	kubeconfig kube-proxy "$directory/pki/kube-proxy.kubeconfig"
	echo "# Pods ask the cluster's DNS only; it knows no names outside." | write "$directory/resolv.conf"
	write "$directory/kubelet.yaml" <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: /run/node/pki/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: /run/node/pki/node-$1.crt
tlsPrivateKeyFile: /run/node/pki/node-$1.key
containerRuntimeEndpoint: unix:///run/node/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /$(node_cgroup "$1")
enforceNodeAllocatable: []
failSwapOn: false
localStorageCapacityIsolation: false
# Images are loaded by hand and can't be had again, so never remove one.
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi}
clusterDomain: cluster.local
clusterDNS: [10.96.0.10]
resolvConf: /run/node/resolv.conf
podLogsDir: /run/node/pod-logs
volumePluginDir: /run/node/volume-plugins
containerLogMaxSize: 5Mi
containerLogMaxFiles: 2
maxPods: 200
nodeStatusUpdateFrequency: 4s
# Containers that end again and again start again after 1 to 10 s, not 5 min.
featureGates:
  KubeletCrashLoopBackOffMax: true
  ReduceDefaultCrashLoopBackOffDecay: true
crashLoopBackOff: {maxContainerRestartPeriod: 10s}
EOF
	# The sizes of the host's connection table stay as they are.
	write "$directory/kube-proxy.yaml" <<EOF
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clusterCIDR: $POD_RANGE
hostnameOverride: node-$1
clientConnection: {kubeconfig: /run/node/pki/kube-proxy.kubeconfig}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
iptables: {syncPeriod: 30s, minSyncPeriod: 200ms}
EOF
}

# start_runtime N: containerd with the images that every node needs.
start_runtime() {
	local number=$1 socket image
	socket=$(node_dir "$number")/containerd.sock
	make_cgroup "$(node_cgroup "$number")"
	hold_node "$number"
	write_containerd_config "$number"
	node_start "$number" containerd containerd --config /run/node/containerd.toml
	wait_for 60 runtime_ready_or_gone "$number" || true
	if ! runtime_ready "$number"; then
		log_tail "containerd-$number"
		die "containerd of node $number does not work: see $LOGS/containerd-$number.log."
	fi
	for image in "$PAUSE_IMAGE $(pause_tar)" "$COREDNS_IMAGE $(coredns_tar)"; do
		has_image "$socket" "${image% *}" || import_image "$socket" "${image#* }" >/dev/null
	done
}

runtime_ready() {
	timeout 10 ctr --address "$(node_dir "$1")/containerd.sock" --connect-timeout 2s version >/dev/null 2>&1
}

runtime_ready_or_gone() { ! running "containerd-$1" || runtime_ready "$1"; }

# start_kubelet N: once the API server answers.
start_kubelet() {
	local number=$1
	make_node_pki "$number"
	write_kubelet_config "$number"
	node_start "$number" kubelet "$(kubernetes_tools)/kubelet" \
		--config=/run/node/kubelet.yaml --kubeconfig=/run/node/pki/kubelet.kubeconfig \
		--root-dir=/run/node/kubelet --hostname-override="node-$number" \
		--node-ip="$(node_address "$number")"
	node_start "$number" kube-proxy "$(kubernetes_tools)/kube-proxy" --config=/run/node/kube-proxy.yaml
}

# node_ready N: as the running kubelet said, not one before it.
node_ready() {
	local status since
	running "kubelet-$1" || return 1
	since=$(date -u -r "$RUN/kubelet-$1.pid" +%FT%TZ)
	status=$(kube get node "node-$1" --output='jsonpath={range .status.conditions[?(@.type=="Ready")]}{.status} {.lastHeartbeatTime}{end}' 2>/dev/null)
	[[ $status == "True "* && ! ${status#True } < $since ]]
}

node_ready_or_gone() { ! running "kubelet-$1" || node_ready "$1"; }

wait_for_node() {
	wait_for 90 node_ready_or_gone "$1" || true
	node_ready "$1" && return
	log_tail "kubelet-$1"
	die "node $1 is not ready: see $LOGS/kubelet-$1.log."
}

# start_dns: CoreDNS, unless it is there.
dns_ready() {
	[ "$(kube --namespace kube-system get deployment coredns --output='jsonpath={.status.readyReplicas}' 2>/dev/null)" = 1 ]
}

start_dns() {
	if [ "$(option dns)" = "$COREDNS" ] && dns_ready; then
		return
	fi
	sed "s|IMAGE|$COREDNS_IMAGE|" "$HERE/manifests/coredns.yaml" | kube apply --filename - >/dev/null ||
		die "could not set up CoreDNS: see above."
	set_option dns "$COREDNS"
}

# dns_reachable N: through its service, as pods of node N would reach it.
dns_reachable() { in_ns "$1" timeout 2 bash -c 'exec 3<>/dev/tcp/10.96.0.10/53'; }

wait_for_dns() {
	local number
	if ! wait_for 90 dns_ready; then
		kube --namespace kube-system get pods,events >&2 || true
		die "CoreDNS is not ready after 90 s: see above and $LOGS/kubelet-1.log."
	fi
	for ((number = 1; number <= $1; number++)); do
		must_wait 60 "services cannot be reached from node $number: see $LOGS/kube-proxy-$number.log." dns_reachable "$number"
	done
}
