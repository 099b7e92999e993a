# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Running one perftest pair; sourced by the tests that do.

PERFTEST_PORT=18600

# perftest_pair LABEL ADDRESS SERVER_PREFIX CLIENT_PREFIX TOOL ARGUMENT...
# rdma_cm connects, unless PERFTEST_CM is set and empty: then perftest exchanges queue pair numbers over TCP.
# Both ends get the same arguments; the prefixes are commands such as "ip netns exec X" or "".
# With PERFTEST_FROM the client's connection has that source address; the server then listens on
# its own address only, not on every device.
# Sets PERFTEST_ROW to the last row of the client's table: size, iterations and the figures.
#
# With -R perftest connects twice, first by a socket and then by rdma_cm. The server opens the second listener
# after the first connection, and the client does not wait for it: with any driver the client may find no
# listener, and crashes then. late_listener has TCP try again. Without nf_tables such a pair is run again, on
# another port. rsiw reports the refusal by an event, siw by the result of rdma_connect().
perftest_pair() {
	local label=$1 try client
	client=$(log_of "$(label_of "$label")")
	for try in 1 2 3; do
		if perftest_once "$@"; then
			# The header starts with '#bytes'; a row starts with a number.
			PERFTEST_ROW=$(sed -n 's/^ *\([0-9][0-9]* .*\)/\1/p' "$client" | tail -n 1)
			[ -n "$PERFTEST_ROW" ] || die "$label: no result row"
			ok "$label: $(printf %s "$PERFTEST_ROW" | tr -s ' ')"
			return
		fi
		if [ "$try" = 3 ] || ! shows -e 'RDMA_CM_EVENT_REJECTED; error: -111' -e 'ERRNO: Connection refused' <"$client"; then
			die "$label: the client failed"
		fi
		say "$label: the client was faster than the server's second listener; again"
	done
}

# pair LABEL TOOL ARGUMENT...: by rdma_cm, both ends on this host. A test may redefine pair.
pair() { perftest_pair "$1" "$RDMA_V4" "" "" "${@:2}"; }

# perftest_once LABEL ADDRESS SERVER_PREFIX CLIENT_PREFIX TOOL ARGUMENT...: fails as the client does.
perftest_once() {
	local label=$1 address=$2 before_server=$3 before_client=$4 tool=$5 server
	shift 5
	PERFTEST_PORT=$((PERFTEST_PORT + 1))
	# shellcheck disable=SC2086 # prefixes are lists of words
	spawn "server-$tool" $before_server "$tool" ${PERFTEST_CM--R} -F -p "$PERFTEST_PORT" ${PERFTEST_FROM:+--bind_source_ip "$address"} "$@"
	server=$SPAWNED
	if ! (wait_listening "$PERFTEST_PORT" "$before_server"); then
		show_log "$(log_of "server-$tool")"
		die "$label: the server does not come up"
	fi
	[ -z "${PERFTEST_CM--R}" ] || late_listener 18600-18999 "$before_server"
	# shellcheck disable=SC2086
	if ! (run 60 "$label" $before_client "$tool" ${PERFTEST_CM--R} -F -p "$PERFTEST_PORT" ${PERFTEST_FROM:+--bind_source_ip "$PERFTEST_FROM"} "$@" "$address"); then
		show_log "$(log_of "server-$tool")"
		stop "$server"
		return 1
	fi
	finish "$server" 20 "server-$tool"
}

# every_size PAIR TOOL ARGUMENT...: PAIR, a function that runs a pair, at every power of two to 8 MiB. Slow
# kernels run some of these sizes. Where not all rounds are wanted, only Sends run every size, other tools of bandwidth
# the largest, and tools of latency none.
every_size() {
	local pair=$1 tool=$2 size
	shift 2
	if [ "$FACTOR" = 1 ] && { all_rounds || [ "$tool" = ib_send_bw ]; }; then
		"$pair" "$tool -a" "$tool" -a -n 5 "$@"
		return
	fi
	if [ "$FACTOR" = 1 ] && [[ $tool == *_bw ]]; then
		"$pair" "$tool 8 MiB" "$tool" -s 8388608 -n 5 "$@"
		return
	fi
	for size in 2 32768 1048576; do
		all_rounds || [[ $tool == *_bw ]] || continue
		"$pair" "$tool $size" "$tool" -s "$size" -n 5 "$@"
	done
}

# perftest_traffic PORT ADDRESS SERVER_PREFIX TOOL ARGUMENT...: starts a pair whose client sends, and waits until
# data flows. The caller stops both processes, SERVER and CLIENT.
# shellcheck disable=SC2034 # SERVER and CLIENT are for the caller
perftest_traffic() {
	local port=$1 address=$2 before_server=$3
	shift 3
	# shellcheck disable=SC2086 # a list of words
	spawn traffic-server $before_server "$@" -R -F -p "$port"
	SERVER=$SPAWNED
	wait_listening "$port" "$before_server"
	late_listener 18600-18999 "$before_server"
	spawn traffic-client "$@" -R -F -p "$port" "$address"
	CLIENT=$SPAWNED
	wait_for 60 "data flows" data_flows "$port"
}

# data_flows PORT: a server there has received a few MB from here.
data_flows() { ss -Htin "dport = :$1" | shows 'bytes_acked:[0-9]\{7,\}'; }
