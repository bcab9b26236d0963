# shellcheck shell=bash
# Sourced by every command, with HERE set to hack/cluster.

# shellcheck source=hack/cluster/versions.env disable=SC2153 # HERE is the caller's
. "$HERE/versions.env"
# shellcheck source=hack/cluster/lib/common.sh
. "$HERE/lib/common.sh"
# shellcheck source=hack/cluster/lib/state.sh
. "$HERE/lib/state.sh"
# shellcheck source=hack/cluster/lib/process.sh
. "$HERE/lib/process.sh"
# shellcheck source=hack/cluster/lib/cgroup.sh
. "$HERE/lib/cgroup.sh"
# shellcheck source=hack/cluster/lib/network.sh
. "$HERE/lib/network.sh"
# shellcheck source=hack/cluster/lib/pki.sh
. "$HERE/lib/pki.sh"
# shellcheck source=hack/cluster/lib/packages.sh
. "$HERE/lib/packages.sh"
# shellcheck source=hack/cluster/lib/build.sh
. "$HERE/lib/build.sh"
# shellcheck source=hack/cluster/lib/images.sh
. "$HERE/lib/images.sh"
# shellcheck source=hack/cluster/lib/control-plane.sh
. "$HERE/lib/control-plane.sh"
# shellcheck source=hack/cluster/lib/node.sh
. "$HERE/lib/node.sh"
# shellcheck source=hack/cluster/lib/remove.sh
. "$HERE/lib/remove.sh"
