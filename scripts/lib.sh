# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
#
# Shared by all scripts: the folders, progress lines, locked cache entries, compilers, and the toolbox root as a
# chroot. To be sourced by scripts that set -eu.

TOP=$(cd "$(dirname "$0")/.." && pwd)
while [ "$TOP" != / ] && [ ! -e "$TOP/scripts/lib.sh" ]; do TOP=$(dirname "$TOP"); done
# shellcheck disable=SC2034  # for the callers
SCRIPTS=$TOP/scripts LAB=$TOP/scripts/lab

if [ -n "${RSIW_CACHE:-}" ]; then
	CACHE=$RSIW_CACHE
elif [ "$(id -u)" = 0 ]; then
	CACHE=/var/cache/rsiw
else
	CACHE=${HOME:-$TOP/build}/.cache/rsiw
fi

# A progress line on stderr; results that other scripts read go to stdout.
say() { printf '%s %s\n' "$(date +%H:%M:%S)" "$*" >&2; }

die() {
	printf '%s: %s\n' "$(basename "$0")" "$*" >&2
	exit 1
}

# need_root PURPOSE: exits without root or CAP_SYS_ADMIN, and prints the purpose and what works without.
need_root() {
	if [ "$(id -u)" = 0 ]; then
		unshare --mount true 2>/dev/null ||
			die "$1 needs to mount file systems, which root may not do here: in a container, give it CAP_SYS_ADMIN (docker run --privileged)"
		return 0
	fi
	cat >&2 <<-EOF
	$(basename "$0"): $1 needs root: chroot, mounts and device nodes are made for it.
	Run it with sudo, or as root in a container with CAP_SYS_ADMIN. It changes this checkout and
	${RSIW_CACHE:-/var/cache/rsiw}, and installs QEMU, mmdebstrap and cpio where they are missing.
	Without root, "make KDIR=..." works with a prepared kernel tree.
	EOF
	exit 1
}

# tree_release KDIR: the release of a kernel's build tree, from its path where the tree is missing; fails if
# neither has it.
tree_release() {
	cat "$1/include/config/kernel.release" 2>/dev/null && return
	case $1 in /lib/modules/?*/build) basename "${1%/build}" ;; *) return 1 ;; esac
}

# use_libclang KDIR: bindgen takes the newest libclang of the machine. The kernel's bindings come from that of the LLVM
# which the kernel's rustc has; LIBCLANG_PATH names it, where it is installed.
use_libclang() {
	major=$(sed -n 's/^CONFIG_RUSTC_LLVM_VERSION=\([0-9]*\)[0-9]\{4\}$/\1/p' "$1/.config")
	if [ -z "${LIBCLANG_PATH:-}" ] && ls "/usr/lib/llvm-$major/lib"/libclang[.-][0-9s]* >/dev/null 2>&1; then
		export LIBCLANG_PATH="/usr/lib/llvm-$major/lib"
	fi
}

# need_tools PACKAGE:COMMAND...: installs the missing packages on a Debian host, or names them.
need_tools() {
	missing=
	for t in "$@"; do
		command -v "${t#*:}" >/dev/null 2>&1 || missing="$missing ${t%%:*}"
	done
	[ -n "$missing" ] || return 0
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		die "missing on this machine:$missing (on Debian: apt-get install$missing)"
	fi
	say "Installing what this machine lacks:$missing"
	# shellcheck disable=SC2086  # a list of words
	quiet "$CACHE/log/host-packages.log" sh -ec \
		'apt-get update; DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"' \
		sh $missing
}

# quiet LOG COMMAND...: the command's output goes to LOG; its end is shown if the command fails.
quiet() {
	log=$1
	shift
	mkdir -p "$(dirname "$log")"
	if "$@" >"$log" 2>&1 </dev/null; then return 0; fi
	say "Failed: $* (whole log: $log)"
	tail -n 40 "$log" | sed 's/^/    /' >&2
	return 1
}

# ticking SECONDS TEXT COMMAND...: prints TEXT every so many seconds until the command ends. The printing
# process holds neither stdout nor the lock of an entry. The process ends with this script, also where a terminal's
# interrupt does not reach it.
ticking() {
	every=$1 text=$2
	shift 2
	(
		# Without the trap the shell would report the killed process.
		trap 'exit 0' TERM
		seconds=0
		while sleep 2 && kill -0 $$ 2>/dev/null; do
			seconds=$((seconds + 2))
			[ $((seconds % every)) != 0 ] || say "$text"
		done
	) >/dev/null 9>&- &
	ticker=$!
	ticked=0
	"$@" || ticked=$?
	kill "$ticker" 2>/dev/null || :
	return "$ticked"
}

# make_entry DIR COMMAND...: runs COMMAND DIR, unless the entry is ready. One of several callers
# runs the command, and the others wait. An interrupted entry is made anew.
make_entry() {
	entry=$1
	shift
	[ ! -e "$entry.ready" ] || return 0
	mkdir -p "$(dirname "$entry")"
	(
		flock -n 9 || {
			say "Waiting for another run that makes $entry"
			flock 9
		}
		[ ! -e "$entry.ready" ] || exit 0
		rm -rf --one-file-system "$entry"
		"$@" "$entry"
		touch "$entry.ready"
	) 9>"$entry.lock"
}

# toolbox_of KERNEL: makes the tree with the compilers for a kernel, by any of its names (scripts/lab/kernel), and prints
# its directory. Kernels of Debian 13 and its backports have +deb13 in their names, those of testing a higher number.
toolbox_of() {
	case $1 in
	*+deb13-*arm64*) "$LAB/toolbox" --arm64 ;;
	*+deb13-*) "$LAB/toolbox" ;;
	*+deb*) "$LAB/toolbox" --testing ;;
	*arm64*) "$LAB/toolbox" --arm64 ;;
	*) "$LAB/toolbox" ;;
	esac
}

# compiler_of KERNEL CONFIG: make's arguments for the compiler of a kernel, by any of its names. The configuration of a
# Debian kernel names it.
compiler_of() {
	cc=$(sed -n 's/^CONFIG_CC_VERSION_TEXT="\([^ ]*\) .*/\1/p' "$2")
	case $1 in
	debug) echo LLVM=1 ;;
	uml) echo LLVM=1 ARCH=um ;;
	bench) echo ARCH=um ;;
	*arm64*) echo ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu- CC="$cc" ;;
	*) echo CC="$cc" ;;
	esac
}

# check_options CONFIG TREE: exits if an option of CONFIG is not in the tree's .config. An option that is renamed, or
# has new dependencies, would silently leave out a checker or a candidate.
check_options() {
	lost=$(grep '^CONFIG_' "$1" | while read -r line; do
		case $line in
		*=n) ! grep -q "^${line%n}" "$2/.config" || echo "$line" ;;
		*) grep -qxF "$line" "$2/.config" || echo "$line" ;;
		esac
	done)
	[ -z "$lost" ] || die "options of $1 without effect in $2: $(echo "$lost" | tr '\n' ' ')"
}

# key: a short hash of stdin.
key() { sha256sum | cut -c1-12; }

# in_root ROOT COMMAND...: runs a command in the toolbox with the cache, the checkout and the
# working directory at their own paths. The mounts are private and end with the command. /proc and /dev come last:
# virtual machines share the directory of the toolbox in the cache, which must show neither.
in_root() {
	# shellcheck disable=SC2016  # the inner shells expand
	unshare --mount -- sh -euc '
		cwd=$1 cache=$2 top=$3 root=$4
		shift 4
		more=$cwd
		case $cwd/ in //|"$top"/*|"$cache"/*) more=/sys ;; esac
		for d in "$cache" "$top" "$more" /proc /dev; do
			mkdir -p "$root$d"
			mount --rbind "$d" "$root$d"
		done
		cp -L /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || :
		exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
			LC_ALL=C.UTF-8 TERM="${TERM:-dumb}" \
			${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
			sh -euc "cd \"\$0\"; exec \"\$@\"" "$cwd" "$@"
	' sh "$PWD" "$CACHE" "$TOP" "$@"
}
