# shellcheck shell=bash
# shellcheck disable=SC2034 # variables in capitals are shared with the other files
# The operator by helm, Redis and the JobQueues from examples/.

# install_operator: needs $HELM, $RELEASE, $OPERATOR_NAMESPACE, $IMAGE, $HELM_SETTINGS and $IMAGE_SUM.
install_operator() {
  step "Install the operator with helm (release $RELEASE, namespace $OPERATOR_NAMESPACE)"
  local repository=${IMAGE%:*} tag=${IMAGE##*:}
  case ${IMAGE##*/} in *:*) ;; *) repository=$IMAGE tag=latest ;; esac
  # The sum of the image restarts the pods when the image behind an unchanged name is another one.
  "$HELM" upgrade --install "$RELEASE" "$ROOT/charts/poolkeeper" --namespace "$OPERATOR_NAMESPACE" --create-namespace \
    --set-string "image.repository=$repository,image.tag=$tag,podAnnotations.image-sum=$IMAGE_SUM" \
    "${HELM_SETTINGS[@]}" >"$SCRATCH/helm" 2>&1 || die "helm could not install the chart: $(tail -n 3 "$SCRATCH/helm")"
  INSTALLED=yes
  wait_until 60 "the definition jobqueues.poolkeeper.dev is not established; look at: kubectl describe crd jobqueues.poolkeeper.dev" defined
  rolled_out "$OPERATOR_NAMESPACE" "$RELEASE"
  say "$("$KUBECTL" --namespace "$OPERATOR_NAMESPACE" get "deployment/$RELEASE" -o 'jsonpath={.status.readyReplicas}') replicas are ready"
}

# `kubectl wait` fails on a definition so new that it has no conditions yet.
defined() {
  "$KUBECTL" get crd jobqueues.poolkeeper.dev -o 'jsonpath={.status.conditions[?(@.type=="Established")].status}' | grep -q True
}

# rolled_out NAMESPACE DEPLOYMENT
rolled_out() {
  "$KUBECTL" --namespace "$1" rollout status "deployment/$2" --timeout=180s >/dev/null 2>"$SCRATCH/rollout" && return
  "$KUBECTL" --namespace "$1" get pods >&2 || true
  die "deployment $2 in namespace $1 is not ready: $(tail -n 1 "$SCRATCH/rollout"); look at: kubectl --namespace $1 describe pods"
}

apply_examples() {
  local name
  step "Apply redis.yaml, jobqueue.yaml and jobqueue-scaling.yaml of examples/ (namespace $NAMESPACE)"
  "$KUBECTL" get namespace "$NAMESPACE" >/dev/null 2>&1 || "$KUBECTL" create namespace "$NAMESPACE" >/dev/null
  APPLIED=yes
  remove_examples
  sed "s|localhost/redis:dev|$REDIS_IMAGE|" "$ROOT/examples/redis.yaml" | kube apply -f - >/dev/null
  rolled_out "$NAMESPACE" redis
  require_redis
  apply_with_workers "$ROOT/examples/jobqueue.yaml"
  apply_with_workers "$ROOT/examples/jobqueue-scaling.yaml"
  for name in mail thumbnails; do
    kube wait --for=condition=Ready "jobqueue/$name" --timeout=60s >/dev/null 2>&1 ||
      die "the JobQueue $name is not Ready; its conditions are above"
    wait_until 30 "poolkeeper made no Deployment from the template of JobQueue $name" kube get deployment "$name"
  done
  rolled_out "$NAMESPACE" mail
  say "JobQueue mail is Ready and its workers run; JobQueue thumbnails is Ready and has none"
}

# apply_with_workers FILE: with the worker's image of this run.
apply_with_workers() {
  sed "s|localhost/gocraft-worker:dev|$WORKER_IMAGE|" "$1" | kube apply -f - >/dev/null ||
    die "$(basename "$1") could not be applied; see above"
}

# remove_examples: what an earlier run left, so that all counts begin at zero.
remove_examples() {
  kube delete jobqueue mail thumbnails --ignore-not-found --timeout=180s >/dev/null ||
    die "a JobQueue of an earlier run does not go; look at: kubectl --namespace $NAMESPACE describe jobqueues"
  kube delete deployment/redis pod/burst --ignore-not-found --timeout=60s >/dev/null
  # The Deployment's name is free once the old pods are gone, and so is the Service's address.
  kube wait --for=delete pod --selector 'app.kubernetes.io/name in (mail-worker,thumbnail-worker)' --timeout=90s >/dev/null 2>&1 || true
  kube wait --for=delete pod --selector app.kubernetes.io/name=redis --timeout=60s >/dev/null 2>&1 || true
}

require_redis() {
  local version
  version=$(redis INFO server | tr -d '\r' | sed -n 's/^redis_version://p')
  case $version in
    [0-5].* | 6.[01].*) die "Redis $version is too old for poolkeeper; it needs 6.2 or newer (this machine's redis-server is what was packed)" ;;
  esac
  say "Redis $version"
}

# build_images [NAME...]: with hack/images/build; progress of cargo is shown.
build_images() {
  [ $# -gt 0 ] || return 0
  "$ROOT/hack/images/build" "$@" >"$SCRATCH/images" || die "the images could not be built; see above"
}

image_tar() { echo "${CARGO_TARGET_DIR:-$ROOT/target}/images/$1.tar"; }
