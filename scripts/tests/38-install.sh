#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 180
# make install for the running kernel: modprobe and "rdma link add" find the module by
# its names, until make uninstall. A module for another kernel is refused.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
[ "$RSIW_TYPE" = rsiw ] || exit 4

PROJECT=$(cd "$(dirname "$0")/../.." && pwd)
RELEASE=$(uname -r)
INSTALLED=/lib/modules/$RELEASE/updates
COPY=$WORK/checkout
MODULE=${RSIW_KO:-$(modinfo -n rsiw)}

# The checkout with the module built, and a writable module tree with its dependencies only, since depmod
# reads all of a tree.
a_machine_of_its_own() {
	local tree=$WORK/lib/modules/$RELEASE file
	mkdir -p "$COPY/build/$RELEASE" "$tree"
	cp -r "$PROJECT"/{Makefile,Kbuild,scripts,include,rust} "$COPY/"
	cp "$MODULE" "$COPY/build/$RELEASE/rsiw.ko"
	cp "/lib/modules/$RELEASE"/modules.{order,builtin,builtin.modinfo} "$tree/"
	for file in $(modprobe -a --show-depends rsiw ib_uverbs rdma_ucm | awk '$1 == "insmod" { print $2 }' | sort -u); do
		[[ $file == */rsiw.ko ]] || cp --parents "$file" "$WORK/"
	done
	mount --bind "$WORK/lib/modules" /usr/lib/modules
	MOUNTS+=(/usr/lib/modules)
	run 30 depmod depmod "$RELEASE"
	! modinfo -n rsiw 2>/dev/null || die "rsiw is known before it is installed"
}

unknown() {
	refuse "modprobe $1" 'not found' modprobe rsiw
	refuse "link add $1" 'invalid|not supp|unknown|no such' rdma link add r0 type rsiw netdev rd0
	! loaded rsiw || die "the module came from somewhere"
	[ -z "$(rdma link show)" ] || die "something changed: $(rdma link show)"
}

# by_name COMMAND...: the command loads the module; traffic runs, and the module is unloaded.
by_name() {
	"$@" || die "$*: status $?"
	loaded rsiw || die "$*: the module is not there"
	has_link r0 || rdma link add r0 type rsiw netdev rd0
	wait_for 10 "the device has a node" verbs_node r0
	wait_for 10 "the device is active" link_active r0
	spawn server rping -s -a 10.99.0.1 -p 7174 -C 10 -V
	local server=$SPAWNED
	wait_listening 7174
	run 20 "rping" rping -c -a 10.99.0.1 -p 7174 -C 10 -V
	finish "$server" 10 server
	rdma link del r0
	unload_type rsiw
	ok "$*"
}

modprobe -a ib_uverbs rdma_cm rdma_ucm
make_dummy rd0 10.99.0.1/24
a_machine_of_its_own
unknown "before the module is installed"

run 40 "make install" make -C "$COPY" install
# Without debugging information, as packages of modules are.
objcopy --strip-debug "$MODULE" "$WORK/stripped.ko"
cmp "$WORK/stripped.ko" "$INSTALLED/rsiw.ko" || die "make install does not strip the module"
[ "$(ls "$INSTALLED")" = rsiw.ko ] || die "make install leaves $(ls "$INSTALLED")"
by_name modprobe rsiw
by_name rdma link add r0 type rsiw netdev rd0
by_name modprobe siw
by_name rdma link add r0 type siw netdev rd0
modprobe rsiw
run 40 "make install, loaded already" make -C "$COPY" install
unload_type rsiw

refuse "another kernel that is not installed" 'no modules of 7\.9\.9-other' make -C "$COPY" install KDIR=/lib/modules/7.9.9-other/build
for other in 7.2 7.3; do
	file=$PROJECT/build/$other/rsiw.ko
	if [ ! -e "$file" ] || [[ $(modinfo -F vermagic "$file") == "$RELEASE "* ]]; then continue; fi
	refuse "the module of $other" 'invalid module format|exec format' insmod "$file"
	! loaded rsiw || die "the module of $other is there"
	ok "the module of $other is refused"
done

run 40 "make uninstall" make -C "$COPY" uninstall
unknown "after the module is uninstalled"
[ ! -e "$INSTALLED" ] || die "make uninstall left $(ls "$INSTALLED")"
ok "uninstalled"
