# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# What the kernel's siw does to its peers, whoever they are; sourced by tests.

# siw as server loses a wake-up now and then: what arrives between its Reply and its taking the
# socket over is not looked at before more arrives (siw_accept() in siw_cm.c). A client that then
# waits for an answer waits for good, whoever it is. It shows by octets that stay in the receive
# queue of siw's socket; then the programs are ended here, and only then they may try again.
LOST=$WORK/siw-lost-a-wake-up

# watch_siw ADDRESS PROGRAMS [PREFIX...]: ends PROGRAMS (a pattern of names) when siw at ADDRESS has
# not looked for eight seconds; PREFIX enters its network namespace.
watch_siw() {
	local same=0 last='' now address=$1 programs=$2
	shift 2
	while sleep 1; do
		now=$("$@" ss -Htn state established "src $address" | awk '$1 > 0')
		if [ -n "$now" ] && [ "$now" = "$last" ]; then same=$((same + 1)); else same=0; fi
		last=$now
		[ "$same" -ge 8 ] || continue
		printf '%s\n' "$now" >"$LOST"
		pkill -KILL -x "$programs" || true
		same=0
	done
}
