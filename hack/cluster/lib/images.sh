# shellcheck shell=bash
# The two images that every cluster needs, put together without a container engine.

IMAGES_SOURCE=$CHECKOUT/hack/images
PAUSE_IMAGE=localhost/poolkeeper/pause:1
COREDNS_IMAGE=localhost/poolkeeper/coredns:$COREDNS

# The pause program has no version: what it is made from counts.
pause_sum() { cat "$IMAGES_SOURCE"/pause/*.go | sha256sum | cut -c 1-12; }

pause_program() { echo "$CACHE/tools/pause-$(pause_sum)/pause"; }
pause_tar() { echo "$CACHE/images/pause-$(pause_sum).tar"; }
coredns_tar() { echo "$CACHE/images/coredns-$COREDNS.tar"; }

# make_image FILE.tar ARGUMENT...: ARGUMENTs are those of hack/images/mkimage.
make_image() {
	local file=$1
	shift
	[ ! -e "$file" ] || return 0
	(cd "$IMAGES_SOURCE" && CGO_ENABLED=0 GOWORK=off go run -mod=readonly ./mkimage -out "$file.new" "$@") >&2 ||
		die "could not make the image $file: see above."
	mv -f "$file.new" "$file"
}

build_images() {
	local pause
	pause=$(pause_program)
	[ ! -x "$pause" ] || [ ! -e "$(pause_tar)" ] || [ ! -e "$(coredns_tar)" ] || return 0
	require_go "$IMAGES_SOURCE"
	lock_cache
	mkdir -p "$CACHE/images" "$(dirname "$pause")"
	if [ ! -x "$pause" ]; then
		(cd "$IMAGES_SOURCE" && CGO_ENABLED=0 GOWORK=off go build -mod=readonly -trimpath -buildvcs=false -ldflags "-s -w" -o "$pause.new" ./pause) >&2 ||
			die "could not build hack/images/pause: see above."
		mv -f "$pause.new" "$pause"
	fi
	make_image "$(pause_tar)" -ref "$PAUSE_IMAGE" -entrypoint /pause -user 65532:65532 -file "$pause:/pause"
	make_image "$(coredns_tar)" -ref "$COREDNS_IMAGE" -entrypoint /coredns -file "$(tool_path coredns):/coredns"
	unlock_cache
}

# import_image SOCKET FILE.tar
import_image() {
	timeout 300 ctr --address "$1" --namespace k8s.io images import --snapshotter "$(option snapshotter)" "$2" ||
		die "containerd could not import $2: is it an OCI or Docker image archive?"
}

# has_image SOCKET NAME
has_image() {
	timeout 20 ctr --address "$1" --namespace k8s.io images list --quiet "name==$2" | grep -q .
}
