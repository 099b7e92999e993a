#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 120
# Attributes of rdma-resource(8), counters of rdma-statistic(8) by message and by cause of a failure, trace
# events, and the port's speed. The wire peer (scripts/tests/peer) sends the messages that are counted, and
# states the expected values.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"


port_rate() { cat "/sys/class/infiniband/$1/ports/1/rate"; }

# rates: the port has the speed of its interface, and follows it.
rates() {
	veth_bed
	make_link r1 rv0
	wait_for 10 "10 Gb/s, which a veth tells" rate_is r1 10
	ok "the port's rate on a veth: $(port_rate r1)"
	# A tap reports the speed that was set; not every kernel has the driver.
	modprobe tun 2>/dev/null || true
	ip tuntap add tap0 mode tap 2>/dev/null || [ "${RSIW_KERNEL:-}" = bench ] || die "no tap"
	ip link show tap0 >/dev/null 2>&1 || return 0
	NETDEVS+=(tap0)
	ethtool -s tap0 speed 25000 duplex full autoneg off
	ip link set tap0 up
	rdma link add r2 type "$RSIW_TYPE" netdev tap0
	wait_for 10 "25 Gb/s" rate_is r2 25
	ethtool -s tap0 speed 100000 duplex full autoneg off
	ip link set tap0 down
	ip link set tap0 up
	wait_for 10 "100 Gb/s" rate_is r2 100
	ok "the port's rate on a tap: $(port_rate r2)"
}
rate_is() { [[ $(port_rate "$1") == "$2 "* ]]; }

RSIW_PARAMS="mpa_request_timeout_ms=2000 mpa_reply_timeout_ms=1000 rev1_fallback=0 $RSIW_PARAMS"
single_bed
export RSIW_ADDRESS=$RDMA_V4 RSIW_TESTBIN RSIW_FALLBACK=0
if mountpoint -q "$TRACING" || mount -t tracefs none "$TRACING" 2>/dev/null; then
	[ ! -d "$TRACING/events/rsiw" ] || export RSIW_TRACING=$TRACING
fi
[ "${RSIW_KERNEL:-}" != 7.2 ] || [ -n "${RSIW_TRACING:-}" ] || die "no trace events on a kernel that has them"
PYTHONPATH=$PEER_DIR run 90 "what is told" python3 -B "$(dirname "$0")/src/observed.py"
grep '^ok' "$(log_of what_is_told)"
rates
