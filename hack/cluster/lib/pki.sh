# shellcheck shell=bash
# Certificates, keys and kubeconfigs. Made anew with each new cluster; nothing in
# here is secret beyond the cluster's own life.

PKI=$CLUSTER/pki

# certificate NAME SUBJECT [ALTERNATIVE-NAMES] [CA]
certificate() {
	local ca=${4:-ca}
	openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
		-keyout "$1.key" -out "$1.csr" -subj "$2" 2>/dev/null
	# With extensions it is of version 3; clients that use rustls take no other.
	echo "basicConstraints=CA:FALSE" >"$1.ext"
	[ -z "${3:-}" ] || echo "subjectAltName=$3" >>"$1.ext"
	openssl x509 -req -in "$1.csr" -CA "$ca.crt" -CAkey "$ca.key" -CAcreateserial \
		-out "$1.crt" -days 3650 -extfile "$1.ext" 2>/dev/null
	rm -f "$1.csr" "$1.ext"
}

authority() { # NAME
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
		-keyout "$1.key" -out "$1.crt" -subj "/CN=poolkeeper test $1" -days 3650 2>/dev/null
}

# make_pki: all of it in a folder beside, then put in place at once.
make_pki() {
	local subnet new=$PKI.new
	subnet=$(option subnet)
	[ "$(cat "$PKI/subnet" 2>/dev/null)" != "$subnet" ] || return 0
	rm -rf "$new" "$PKI"
	mkdir -p "$new"
	(
		cd "$new"
		umask 077
		authority ca
		authority front-proxy-ca
		openssl ecparam -name prime256v1 -genkey -noout -out service-account.key 2>/dev/null
		openssl ec -in service-account.key -pubout -out service-account.pub 2>/dev/null
		certificate kube-apiserver /CN=kube-apiserver "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,DNS:localhost,IP:127.0.0.1,IP:10.96.0.1,IP:$subnet.2"
		certificate kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client
		certificate front-proxy-client /CN=front-proxy-client "" front-proxy-ca
		certificate admin /O=system:masters/CN=kubernetes-admin
		certificate kube-controller-manager /CN=system:kube-controller-manager
		certificate kube-scheduler /CN=system:kube-scheduler
		certificate kube-proxy /CN=system:kube-proxy
		echo "$subnet" >subnet
	) || die "openssl could not make the certificates in $new: is openssl 1.1 or later installed, and is there space?"
	mv "$new" "$PKI"
}

# make_node_pki N
make_node_pki() {
	local name=node-$1
	[ ! -e "$PKI/$name.done" ] || return 0
	(
		cd "$PKI"
		umask 077
		certificate "$name" "/O=system:nodes/CN=system:node:$name" "DNS:$name,IP:$(node_address "$1"),IP:127.0.0.1"
		: >"$name.done"
	) || die "openssl could not make the certificate of $name in $PKI."
}

# kubeconfig NAME FILE: with everything in the file, so that it can be copied.
kubeconfig() {
	(
		umask 077
		write "$2" <<EOF
apiVersion: v1
kind: Config
clusters:
- name: $CLUSTER_NAME
  cluster:
    server: https://$(option subnet).2:6443
    certificate-authority-data: $(base64 -w 0 "$PKI/ca.crt")
users:
- name: $1
  user:
    client-certificate-data: $(base64 -w 0 "$PKI/$1.crt")
    client-key-data: $(base64 -w 0 "$PKI/$1.key")
contexts:
- name: $CLUSTER_NAME
  context:
    cluster: $CLUSTER_NAME
    user: $1
current-context: $CLUSTER_NAME
EOF
	)
}
