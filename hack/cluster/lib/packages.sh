# shellcheck shell=bash
# The programs that come from the distribution. Each line: what it is for, the
# program (or a file), the Debian and Ubuntu package that has it.

PACKAGES='
control-plane ip            iproute2
control-plane nsenter       util-linux
control-plane flock         util-linux
control-plane setsid        util-linux
control-plane openssl       openssl
control-plane awk           mawk
control-plane /etc/ssl/certs/ca-certificates.crt ca-certificates
node          containerd    containerd
node          ctr           containerd
node          runc          runc
node          CNI           containernetworking-plugins
node          iptables      iptables
node          conntrack     conntrack
node          socat         socat
node          modprobe      kmod
redis         redis-server  redis-server
redis         redis-cli     redis-tools
redis         redis-sentinel redis-sentinel
redis         openssl       openssl
lint          shellcheck    shellcheck
'

# cni_folder: where the distribution has the network plugins.
cni_folder() {
	local folder
	for folder in /usr/lib/cni /opt/cni/bin /usr/libexec/cni; do
		if [ -x "$folder/ptp" ] && [ -x "$folder/host-local" ] && [ -x "$folder/loopback" ]; then
			echo "$folder"
			return
		fi
	done
	return 1
}

has_program() {
	case $1 in
	CNI) cni_folder >/dev/null ;;
	/*) [ -e "$1" ] ;;
	*) have "$1" ;;
	esac
}

# missing GROUP...: lines of "program package" that are not there.
missing() {
	local group program package
	while read -r group program package; do
		[ -n "$group" ] || continue
		case " $* " in *" $group "*) ;; *) continue ;; esac
		has_program "$program" || echo "$program $package"
	done <<<"$PACKAGES"
}

# install_packages GROUP...: install what is missing, without starting services.
install_packages() {
	local lines packages
	lines=$(missing "$@")
	[ -n "$lines" ] || return 0
	mapfile -t packages < <(awk '{print $2}' <<<"$lines" | sort -u)
	if ! have apt-get; then
		die "these programs are missing: $(awk '{print $1}' <<<"$lines" | paste -sd ' '); install them with this system's package manager (in Debian they are in: ${packages[*]})."
	fi
	say "Installing ${packages[*]} ..."
	as_root env DEBIAN_FRONTEND=noninteractive bash -c "$(declare -f apt_install); apt_install \"\$@\"" apt_install "${packages[@]}" ||
		die "apt-get could not install ${packages[*]}: see above, install them by hand and try again."
	lines=$(missing "$@")
	[ -z "$lines" ] || die "still missing after apt-get: $(awk '{print $1}' <<<"$lines" | paste -sd ' ')."
}

# apt_install PACKAGE...: as root. Services neither start now nor at the next boot.
apt_install() {
	local policy=/usr/sbin/policy-rc.d service
	if [ ! -e "$policy" ]; then
		trap 'rm -f /usr/sbin/policy-rc.d' EXIT
		printf '#!/bin/sh\n# poolkeeper: while it installs packages; may be removed\nexit 101\n' >"$policy"
		chmod 755 "$policy"
	elif grep -q '^# poolkeeper:' "$policy"; then
		# Left over by one that was killed.
		trap 'rm -f /usr/sbin/policy-rc.d' EXIT
	fi
	local get=(timeout 900 apt-get -qq -o DPkg::Lock::Timeout=300)
	if ! "${get[@]}" install --no-install-recommends -y "$@" >/dev/null 2>&1; then
		"${get[@]}" update >&2 && "${get[@]}" install --no-install-recommends -y "$@" >&2 || return 1
	fi
	if [ -d /run/systemd/system ]; then
		for service in "$@"; do
			case $service in
			redis-server | redis-sentinel | containerd)
				systemctl disable --now "$service" >/dev/null 2>&1 || true
				;;
			esac
		done
	fi
}
