# shellcheck shell=bash
# shellcheck disable=SC2034 # variables in capitals are shared with the other files
# The cluster of kubectl's current context: everything in one new namespace, and removed at the end.

NAMESPACE=poolkeeper-demo-$(od -An -N3 -tx1 /dev/urandom | tr -d ' \n')
OPERATOR_NAMESPACE=$NAMESPACE
RELEASE=poolkeeper
IMAGE=${POOLKEEPER_DEMO_IMAGE:-}
WORKER_IMAGE=${POOLKEEPER_DEMO_WORKER_IMAGE:-}
REDIS_IMAGE=${POOLKEEPER_DEMO_REDIS_IMAGE:-}
LOAD=${POOLKEEPER_DEMO_LOAD:-}

prepare() {
  KUBECTL=$(program kubectl) || die "kubectl is neither on the PATH nor could it be built; see above"
  HELM=$(program helm) || die "helm is neither on the PATH nor could it be built; see above"
  CONTEXT=$("$KUBECTL" config current-context 2>/dev/null) || CONTEXT="none set"
  step "Use the current context ($CONTEXT), namespace $NAMESPACE"
  "$KUBECTL" --request-timeout=20s get namespaces >/dev/null 2>&1 || die "the cluster of the current context does not answer, or you may not list namespaces; check: kubectl get namespaces"
  require_no_other_operator
  get_images
  # One namespace, and a name instead of kube-system's uid: no rights beyond the namespace.
  HELM_SETTINGS=(--set "watchNamespace=$NAMESPACE,clusterName=demo,rbac.aggregate=false")
  if "$KUBECTL" get crd jobqueues.poolkeeper.dev >/dev/null 2>&1; then
    say "the definition of JobQueue is there already and stays as it is"
    HELM_SETTINGS+=(--set crds.install=false)
  else
    BROUGHT_DEFINITION=yes
  fi
}

# Another operator that looks after all namespaces would look after the demo's too, and report in its place.
require_no_other_operator() {
  local found
  found=$("$KUBECTL" get deployments --all-namespaces --selector app.kubernetes.io/name=poolkeeper \
    -o 'jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} {.spec.template.spec.containers[*].env[*].name}{"\n"}{end}' 2>/dev/null |
    grep -v POOLKEEPER_WATCH_NAMESPACE | cut -d ' ' -f 1 | head -n 1) || true
  [ -z "$found" ] || die "a poolkeeper that looks after all namespaces runs here ($found); the demo brings its own, so try another cluster"
}

get_images() {
  local build=() name
  if [ -z "$LOAD" ]; then
    : "${REDIS_IMAGE:=docker.io/library/redis:7}"
    [ -n "$IMAGE" ] || die "no way for poolkeeper's image into the cluster: set POOLKEEPER_DEMO_LOAD or POOLKEEPER_DEMO_IMAGE (see hack/demo/run --help)"
    [ -n "$WORKER_IMAGE" ] || die "no way for the worker's image into the cluster: set POOLKEEPER_DEMO_LOAD or POOLKEEPER_DEMO_WORKER_IMAGE (see hack/demo/run --help)"
  fi
  [ -n "$IMAGE" ] || { build+=(poolkeeper) && IMAGE=localhost/poolkeeper:dev; }
  [ -n "$WORKER_IMAGE" ] || { build+=(gocraft-worker) && WORKER_IMAGE=localhost/gocraft-worker:dev; }
  [ -n "$REDIS_IMAGE" ] || { build+=(redis) && REDIS_IMAGE=localhost/redis:dev; }
  IMAGE_SUM=none
  [ ${#build[@]} -gt 0 ] || return 0
  step "Build and load: ${build[*]}"
  case " ${build[*]} " in *' redis '*) "$ROOT/hack/cluster/packages" redis ;; esac
  build_images "${build[@]}"
  for name in "${build[@]}"; do
    # Words of the setting are words of the command.
    # shellcheck disable=SC2086
    $LOAD "$(image_tar "$name")" >"$SCRATCH/load" 2>&1 ||
      die "'$LOAD $(image_tar "$name")' failed: $(tail -n 1 "$SCRATCH/load")"
  done
  [ -z "${build[*]}" ] || IMAGE_SUM=$(cksum <"$(image_tar "${build[0]}")" | tr -d ' ')
}

# Nobody outside of a node can send SIGKILL to a process in a pod, and inside it the first process is immune to it. So a job
# ends the process, at once and without any clean-up. Its type is paused meanwhile, so that it does so once.
ready_to_strike() {
  say "SIGKILL can't be sent into a pod from outside: a job will end the worker's process from inside instead (exit status 137)"
  kube scale jobqueue/mail --replicas=1 >/dev/null
  wait_until 90 "the workers were not scaled to one pod" pods_are 1
}

pods_are() { [ "$(kube get pods --selector app.kubernetes.io/name=mail-worker -o name | wc -l)" = "$1" ]; }

# strike POD CONTAINER_ID: Sets STRUCK to the time at which the process was seen to have been told.
strike() {
  enqueue report 1 '{"ms":6000,"crash":true}'
  wait_until 20 "the job that ends the worker was not started" runs_report
  set_jobs 4 ',"paused":true'
  wait_until 20 "the pause of report is not in Redis" paused
  say "the worker in pod $1 is about to end, in the middle of its jobs"
  STRUCK=""
}

paused() { [ "$(redis EXISTS "$(job_key report):paused")" = 1 ]; }

# after_strike: takes away the job that would do it again.
after_strike() {
  redis DEL "$(job_key report)" >/dev/null
  set_jobs 4 ',"paused":false'
  kube scale jobqueue/mail --replicas=2 >/dev/null
}

show_way_on() { printf "\nAll that the demo made is removed now.\n"; }

# clean_up: in an order in which nothing hangs: the operator must be there to take off finalizers.
clean_up() {
  local status=0 name
  [ -n "${INSTALLED:-}${APPLIED:-}" ] || "$KUBECTL" get namespace "$NAMESPACE" >/dev/null 2>&1 || return 0
  step "Clean up"
  if [ -n "${APPLIED:-}" ] && ! kube delete jobqueues --all --timeout=60s >/dev/null 2>&1; then
    say "a JobQueue did not go by itself; its finalizer is taken off"
    for name in mail thumbnails; do
      kube patch jobqueue "$name" --type=merge --patch '{"metadata":{"finalizers":null}}' >/dev/null 2>&1 || true
    done
  fi
  "$HELM" uninstall "$RELEASE" --namespace "$NAMESPACE" --ignore-not-found --wait --timeout 60s >"$SCRATCH/helm" 2>&1 || status=1
  if [ -n "${BROUGHT_DEFINITION:-}" ]; then
    "$KUBECTL" delete crd jobqueues.poolkeeper.dev --ignore-not-found --timeout=60s >/dev/null || status=1
  fi
  "$KUBECTL" delete namespace "$NAMESPACE" --ignore-not-found --timeout=120s >/dev/null || status=1
  if [ "$status" = 0 ]; then
    say "namespace $NAMESPACE is gone"
  else
    echo "make demo: something is left over: kubectl delete namespace $NAMESPACE${BROUGHT_DEFINITION:+; kubectl delete crd jobqueues.poolkeeper.dev}" >&2
  fi
  return "$status"
}
