#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 600
# runs on: soak
# The page about firewalls: nftables, closed and opened for RDMA. After its Undo the hosts have their own file, rules and
# state of the service again. The server's service is enabled before, and the client's is not.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=howto.sh
. "$(dirname "$0")/howto.sh"

modprobe -q nf_tables || exit 4

# before_page HOST STATE
before_page() {
	on "$1" sh -c "echo '# of $1' >>/etc/nftables.conf; nft add table inet before_page"
	[ "$2" = disabled ] || on "$1" systemctl enable nftables
	state_of "$1" >"$WORK/before-$1"
	grep -qx "$2" "$WORK/before-$1" || die "$1: the service is not $2"
}
state_of() {
	on "$1" sh -c 'stat -c "%a %U %s" /etc/nftables.conf; cat /etc/nftables.conf; ls -d /etc/nftables.d 2>/dev/null
		nft list ruleset; systemctl is-enabled nftables; :'
}

before_page server enabled
before_page client disabled
run_page docs/howto/firewall.md

for name in server client; do
	state_of "$name" >"$WORK/after-$name"
	diff "$WORK/before-$name" "$WORK/after-$name" || die "$name: not as before the page"
	ok "$name: file, rules and state of the service are as before the page"
done
