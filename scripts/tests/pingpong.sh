# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Running one pair of libibverbs' example programs; sourced by the tests that do.

PINGPONG_PORT=18700

# pingpong_pair LABEL SERVER_PREFIX CLIENT_PREFIX HOST TOOL ARGUMENT...
# Both ends get the same arguments (1,000 rounds by default), but for the device, which PINGPONG_SERVER_DEVICE and
# PINGPONG_CLIENT_DEVICE name. The prefixes are commands such as "ip netns exec X" or "". HOST is
# the address at which the client exchanges numbers with the server.
pingpong_pair() {
	local label=$1 before_server=$2 before_client=$3 host=$4 tool=$5 server
	shift 5
	PINGPONG_PORT=$((PINGPONG_PORT + 1))
	# shellcheck disable=SC2086 # prefixes are lists of words
	spawn "server-$tool" $before_server "$tool" -d "${PINGPONG_SERVER_DEVICE:-r0}" -p "$PINGPONG_PORT" -n "$(rounds 1000)" "$@"
	server=$SPAWNED
	if ! (wait_listening "$PINGPONG_PORT" "$before_server"); then
		show_log "$(log_of "server-$tool")"
		die "$label: the server does not come up"
	fi
	# shellcheck disable=SC2086
	if ! (run "${PINGPONG_LIMIT:-120}" "$label" $before_client "$tool" -d "${PINGPONG_CLIENT_DEVICE:-r0}" -p "$PINGPONG_PORT" -n "$(rounds 1000)" "$@" "$host"); then
		show_log "$(log_of "server-$tool")"
		die "$label: the client failed"
	fi
	finish "$server" 20 "server-$tool"
	ok "$label: $(sed -n 's/.* = \(.*\)/\1/p' "$(log_of "$(label_of "$label")")" | tail -n 1)"
}
