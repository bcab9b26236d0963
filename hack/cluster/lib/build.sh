# shellcheck shell=bash
# The programs that are built from source, each once per version, into the cache:
# tools/COMPONENT-VERSION/PROGRAM, with links to the default versions in bin/.

DEFAULT_KUBERNETES=${KUBERNETES%% *}

# kubernetes_version MAJOR.MINOR[.PATCH]: the pinned version that is meant.
kubernetes_version() {
	local version
	for version in $KUBERNETES; do
		if [ "$1" = "$version" ] || [ "$1" = "${version%.*}" ]; then
			echo "$version"
			return
		fi
	done
	die "Kubernetes $1 is not among the pinned versions ($KUBERNETES): add it to $HERE/versions.env and run hack/cluster/pin."
}

# recipe PROGRAM [KUBERNETES-VERSION]: sets component, version, folder, package,
# module and flags for it.
recipe() {
	flags=(-ldflags "-s -w")
	case $1 in
	etcd) component=etcd version=$ETCD module=go.etcd.io/etcd/server/v3 package=$module ;;
	coredns) component=coredns version=$COREDNS module=github.com/coredns/coredns package=$module ;;
	helm)
		component=helm version=$HELM module=helm.sh/helm/v3 package=$module/cmd/helm
		flags=(-ldflags "-s -w -X helm.sh/helm/v3/internal/version.version=v$HELM")
		;;
	keda | keda-adapter)
		component=keda version=$KEDA module=github.com/kedacore/keda/v2 package=$module/cmd/operator
		[ "$1" = keda ] || package=$module/cmd/adapter
		flags=(-ldflags "-s -w -X $module/version.Version=$KEDA")
		;;
	kubectl | kubelet | kube-apiserver | kube-controller-manager | kube-scheduler | kube-proxy)
		component=kubernetes version=${2:-$DEFAULT_KUBERNETES} module=k8s.io/kubernetes package=$module/cmd/$1
		local into=k8s.io/component-base/version minor=${version#*.}
		flags=(-ldflags "-s -w -X $into.gitVersion=v$version -X $into.gitMajor=${version%%.*} -X $into.gitMinor=${minor%.*}")
		# Leaves out what older releases had for particular clouds.
		[ "${minor%.*}" -ge 31 ] || flags+=(-tags providerless)
		;;
	*) die "there is no program called $1 here: see 'hack/cluster/build-tools --help'." ;;
	esac
	folder=$HERE/build/$component
	[ "$component" != kubernetes ] || folder=$folder-${version%.*}
}

tool_path() { # PROGRAM [KUBERNETES-VERSION]
	local component version folder package module flags
	recipe "$@"
	echo "$CACHE/tools/$component-$version/$1"
}

# require_go FOLDER: a Go that can build the module in FOLDER.
require_go() {
	local needed has
	have go || die "Go is needed to build the cluster's programs: install Go 1.26 or later from https://go.dev/dl and put it on the PATH."
	[ "$(go env GOTOOLCHAIN)" = local ] || return 0
	needed=$(sed -n 's/^go //p' "$1/go.mod")
	has=$(go env GOVERSION)
	has=${has#go}
	[ "$(printf '%s\n%s\n' "$needed" "$has" | sort -V | head -n 1)" = "$needed" ] ||
		die "Go $needed or later is needed, this is $has: install a newer one from https://go.dev/dl, or set GOTOOLCHAIN=auto to have it fetched."
}

# require_space FOLDER GIGABYTES WHAT
require_space() {
	local free
	mkdir -p "$1" || die "cannot make $1: set POOLKEEPER_CACHE or POOLKEEPER_CLUSTER to a folder where you may write."
	free=$(df -Pk "$1" | awk 'NR == 2 {print int($4 / 1048576)}')
	[ "$free" -ge "$2" ] || die "$3 needs $2 GB in $1, where $free GB are free: make space, or set POOLKEEPER_CACHE or POOLKEEPER_CLUSTER to another disk."
}

# build_tool PROGRAM KUBERNETES-VERSION PROGRESS
build_tool() {
	local component version folder package module flags target began=$SECONDS log pid
	recipe "$1" "$2"
	target=$(tool_path "$1" "$2")
	require_go "$folder"
	grep -qE "^(require )?[[:space:]]*$module v$version( |\$)" "$folder/go.mod" ||
		die "$folder/go.mod is not at $version as versions.env is: run hack/cluster/pin."
	mkdir -p "$(dirname "$target")"
	log=$CACHE/build.log
	(
		cd "$folder" || exit
		export CGO_ENABLED=0 GOFLAGS=-mod=readonly GOWORK=off
		exec nice go build -trimpath -buildvcs=false "${flags[@]}" -o "$target.new" "$package"
	) >"$log" 2>&1 8>&- 9>&- &
	pid=$!
	while ! wait_for 15 gone "$pid"; do
		say "  $3 $1 $version: $((SECONDS - began)) s"
		[ $((SECONDS - began)) -lt 3600 ] || {
			kill "$pid"
			die "building $1 took more than an hour: is the machine too small, or the module proxy slow?"
		}
	done
	if ! wait "$pid"; then
		tail -n 20 "$log" >&2
		die "could not build $1 $version: see above (the whole output is in $log); without a network set GOPROXY to a proxy within reach."
	fi
	mv -f "$target.new" "$target"
	say "  $3 $1 $version: built in $((SECONDS - began)) s"
}

gone() { ! kill -0 "$1"; }

# lock_cache: builds one at a time, on file descriptor 7.
lock_cache() {
	mkdir -p "$CACHE" || die "cannot make $CACHE: set POOLKEEPER_CACHE to a folder where you may write."
	exec 7>>"$CACHE/lock" || die "cannot write to $CACHE: set POOLKEEPER_CACHE to a folder where you may write."
	flock -n 7 || say "Waiting for another build in $CACHE ..."
	flock -w 3600 7 || die "another build has held $CACHE/lock for an hour: see 'fuser -v $CACHE/lock'."
}

unlock_cache() { exec 7>&-; }

# build_tools PROGRAM[@KUBERNETES-VERSION]...: build what is not in the cache.
build_tools() {
	local item program version wanted=() i=0
	for item in "$@"; do
		program=${item%@*} version=
		[ "$program" = "$item" ] || version=${item#*@}
		[ -x "$(tool_path "$program" "$version")" ] || wanted+=("$item")
	done
	if [ ${#wanted[@]} -gt 0 ]; then
		require_space "$CACHE" 8 "building the cluster's programs"
		lock_cache
		say "Building what is not in $CACHE yet: ${wanted[*]}"
		for item in "${wanted[@]}"; do
			i=$((i + 1)) program=${item%@*} version=
			[ "$program" = "$item" ] || version=${item#*@}
			# Another `up` may have built it in the meantime.
			[ -x "$(tool_path "$program" "$version")" ] || build_tool "$program" "$version" "$i/${#wanted[@]}"
		done
		unlock_cache
	fi
	link_tools "$@"
}

# link_tools PROGRAM[@VERSION]...: bin/PROGRAM for what has the default version.
link_tools() {
	local item path
	mkdir -p "$CACHE/bin"
	for item in "$@"; do
		path=$(tool_path "${item%@*}")
		[ -x "$path" ] || continue
		[ "$(readlink "$CACHE/bin/${item%@*}")" != "$path" ] || continue
		ln -sfn "$path" "$CACHE/bin/.${item%@*}.$$"
		mv -fT "$CACHE/bin/.${item%@*}.$$" "$CACHE/bin/${item%@*}"
	done
}
