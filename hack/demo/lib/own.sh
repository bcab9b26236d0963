# shellcheck shell=bash
# shellcheck disable=SC2034 # variables in capitals are shared with the other files
# The demo's own cluster, on this machine.

NAMESPACE=demo
OPERATOR_NAMESPACE=poolkeeper-system
RELEASE=poolkeeper
IMAGE=localhost/poolkeeper:dev
WORKER_IMAGE=localhost/gocraft-worker:dev
REDIS_IMAGE=localhost/redis:dev
HELM_SETTINGS=()

prepare() {
  local name
  step "Bring up a Kubernetes cluster on this machine"
  # What stays must not hold our output open.
  "$ROOT/hack/cluster/up" 6>&- 7>&- || die "the cluster is not up; see above"
  CLUSTER_FOLDER=${POOLKEEPER_CLUSTER:-$ROOT/.cluster}
  export KUBECONFIG=$CLUSTER_FOLDER/kubeconfig
  KUBECTL=$("$ROOT/hack/cluster/build-tools" kubectl)
  HELM=$("$ROOT/hack/cluster/build-tools" helm)
  step "Build the images: the operator, a gocraft/work worker, this machine's Redis"
  "$ROOT/hack/cluster/packages" redis
  build_images poolkeeper gocraft-worker redis
  for name in poolkeeper gocraft-worker redis; do
    "$ROOT/hack/cluster/load" "$(image_tar "$name")" >/dev/null || die "the image $name could not be loaded; see above"
  done
  IMAGE_SUM=$(sha256sum "$(image_tar poolkeeper)" | cut -c 1-16)
  say "loaded into the cluster"
}

# ready_to_strike: nothing to do; a process of this machine can be killed at any time.
ready_to_strike() { :; }

# strike POD CONTAINER_ID: SIGKILL for the container's process. Sets STRUCK to the time of it.
strike() {
  local pid socket
  socket=$(sed -n "s/^NODE_1_CONTAINERD='\(.*\)'$/\1/p" "$CLUSTER_FOLDER/env")
  pid=$(as_root ctr --address "$socket" --namespace k8s.io tasks list | awk -v id="$2" '$1 == id { print $2 }')
  [ -n "$pid" ] || die "containerd knows no process of the container $2"
  as_root tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q '^/usr/local/bin/gocraft-worker ' ||
    die "process $pid is not the worker that was to be killed"
  say "kill -KILL $pid   (the worker in pod $1)"
  STRUCK=$(now)
  as_root kill -KILL "$pid"
}

after_strike() { :; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

show_way_on() {
  cat <<END

The cluster is still there. Look around, and end it:

  export KUBECONFIG=$KUBECONFIG PATH=$(dirname "$KUBECTL"):\$PATH
  kubectl -n $NAMESPACE get jq
  kubectl -n $NAMESPACE describe jq mail
  kubectl -n $OPERATOR_NAMESPACE logs deployment/$RELEASE
  kubectl -n $NAMESPACE exec deployment/mail -- gocraft-worker enqueue send_email -n 100 -args '{"ms":500}'
  ${POOLKEEPER_CLUSTER:+POOLKEEPER_CLUSTER=$POOLKEEPER_CLUSTER }make down
END
}

# The cluster stays, so that people can look around, also after a failure.
clean_up() { :; }
