# shellcheck shell=bash
# etcd, API server, controller manager and scheduler, in node 1's namespace.

kubernetes_tools() { echo "$CACHE/tools/kubernetes-$(option kubernetes)"; }

start_etcd() {
	start etcd nsenter --net="/run/netns/$(node_ns 1)" -- "$CACHE/tools/etcd-$ETCD/etcd" \
		--data-dir="$CLUSTER/etcd" \
		--listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379 \
		--listen-peer-urls=http://127.0.0.1:2380 --initial-advertise-peer-urls=http://127.0.0.1:2380 \
		--initial-cluster=default=http://127.0.0.1:2380 \
		--unsafe-no-fsync --log-level=warn
}

# Every request, without its content; not the health checks and leases, which are
# most of the traffic.
write_audit_policy() {
	write "$CLUSTER/audit-policy.yaml" <<'EOF'
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  nonResourceURLs: [/healthz*, /livez*, /readyz*]
- level: None
  userGroups: [system:nodes]
  resources: [{group: coordination.k8s.io, resources: [leases]}]
- level: Metadata
EOF
}

start_api_server() {
	write_audit_policy
	# Readable for tests that aren't run as root; a rotated file keeps the mode.
	[ -e "$LOGS/audit.log" ] || install -m 644 /dev/null "$LOGS/audit.log"
	start kube-apiserver nsenter --net="/run/netns/$(node_ns 1)" -- "$(kubernetes_tools)/kube-apiserver" \
		--etcd-servers=http://127.0.0.1:2379 \
		--bind-address=0.0.0.0 --secure-port=6443 --advertise-address="$(option subnet).2" \
		--tls-cert-file="$PKI/kube-apiserver.crt" --tls-private-key-file="$PKI/kube-apiserver.key" \
		--client-ca-file="$PKI/ca.crt" \
		--service-account-issuer=https://kubernetes.default.svc.cluster.local \
		--service-account-key-file="$PKI/service-account.pub" \
		--service-account-signing-key-file="$PKI/service-account.key" \
		--service-cluster-ip-range="$SERVICE_RANGE" \
		--authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
		--allow-privileged=true \
		--kubelet-client-certificate="$PKI/kubelet-client.crt" --kubelet-client-key="$PKI/kubelet-client.key" \
		--kubelet-certificate-authority="$PKI/ca.crt" --kubelet-preferred-address-types=InternalIP \
		--requestheader-client-ca-file="$PKI/front-proxy-ca.crt" \
		--requestheader-allowed-names=front-proxy-client \
		--requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
		--requestheader-extra-headers-prefix=X-Remote-Extra- \
		--proxy-client-cert-file="$PKI/front-proxy-client.crt" --proxy-client-key-file="$PKI/front-proxy-client.key" \
		--audit-policy-file="$CLUSTER/audit-policy.yaml" --audit-log-path="$LOGS/audit.log" \
		--audit-log-maxsize=100 --audit-log-maxbackup=2 \
		--shutdown-delay-duration=0s
}

start_controller_manager() {
	kubeconfig kube-controller-manager "$PKI/kube-controller-manager.kubeconfig"
	start kube-controller-manager nsenter --net="/run/netns/$(node_ns 1)" -- "$(kubernetes_tools)/kube-controller-manager" \
		--kubeconfig="$PKI/kube-controller-manager.kubeconfig" \
		--authentication-kubeconfig="$PKI/kube-controller-manager.kubeconfig" \
		--authorization-kubeconfig="$PKI/kube-controller-manager.kubeconfig" \
		--requestheader-client-ca-file="$PKI/front-proxy-ca.crt" --client-ca-file="$PKI/ca.crt" \
		--service-account-private-key-file="$PKI/service-account.key" --root-ca-file="$PKI/ca.crt" \
		--cluster-signing-cert-file="$PKI/ca.crt" --cluster-signing-key-file="$PKI/ca.key" \
		--use-service-account-credentials=true --leader-elect=false \
		--kube-api-qps=100 --kube-api-burst=200 \
		--allocate-node-cidrs=false --cluster-cidr="$POD_RANGE"
}

start_scheduler() {
	kubeconfig kube-scheduler "$PKI/kube-scheduler.kubeconfig"
	start kube-scheduler nsenter --net="/run/netns/$(node_ns 1)" -- "$(kubernetes_tools)/kube-scheduler" \
		--kubeconfig="$PKI/kube-scheduler.kubeconfig" \
		--authentication-kubeconfig="$PKI/kube-scheduler.kubeconfig" \
		--authorization-kubeconfig="$PKI/kube-scheduler.kubeconfig" \
		--leader-elect=false
}

# api_ready: also false at once when the server has ended, so that waiting for it
# does not take all its time.
api_ready() { kube get --raw /readyz --request-timeout=5s; }
api_ready_or_gone() { ! running kube-apiserver || ! running etcd || api_ready; }

wait_for_api() {
	wait_for 90 api_ready_or_gone || true
	if ! api_ready >/dev/null 2>&1; then
		local name
		for name in etcd kube-apiserver; do
			if ! running "$name"; then
				log_tail "$name"
				die "$name has ended: see $LOGS/$name.log."
			fi
		done
		log_tail kube-apiserver
		die "the API server did not become ready within 90 s: see $LOGS/kube-apiserver.log."
	fi
}

# Pods need the namespace's service account, which a controller makes.
account_exists() { kube get serviceaccount default; }

start_control_plane() {
	start_etcd
	start_api_server
	kubeconfig admin "$KUBECONFIG_FILE"
	own "$KUBECONFIG_FILE"
}

finish_control_plane() {
	wait_for_api
	start_controller_manager
	[ "$(option control-plane-only)" = yes ] || start_scheduler
}

wait_for_accounts() {
	must_wait 60 "the controller manager does not work: see $LOGS/kube-controller-manager.log." account_exists
}
