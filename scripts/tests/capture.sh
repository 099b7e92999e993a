# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Captures packets by tcpdump; sourced by tests.

# Where the packets go.
CAPTURE=$WORK/capture.pcap

# capture_start INTERFACE KIB: captures all TCP on it, with a buffer that does not overflow.
capture_start() {
	spawn tcpdump tcpdump -i "$1" -s 0 -U -B "$2" -w "$CAPTURE" tcp
	TCPDUMP=$SPAWNED
	wait_for 20 "tcpdump listens" grep -q 'listening on' "$(log_of tcpdump)"
}

# capture_stop: ends the capture when its file is complete.
capture_stop() {
	# All captured packets are written when the size no longer grows.
	local size=-1
	while [ "$size" != "$(stat -c %s "$CAPTURE")" ]; do
		size=$(stat -c %s "$CAPTURE")
		sleep 0.5
	done
	kill -INT "$TCPDUMP"
	finish "$TCPDUMP" 20 tcpdump
	grep -q '^0 packets dropped by kernel' "$(log_of tcpdump)" || die "tcpdump lost packets: $(cat "$(log_of tcpdump)")"
}
