#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 700
# runs on: 7.2/4
# Interoperation with the kernel's siw: rsiw on one interface, siw on another, each
# as client and as server, with CRC and without. The programs are rping, perftest, and
# the data integrity generator in the form that avoids siw's defects.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
needs_stock
# shellcheck source=perftest.sh
. "$(dirname "$0")/perftest.sh"

OURS=10.99.0.1
SIW=10.99.1.1

# siw as client completes a Send that was sent whole with IBV_WC_LOC_QP_OP_ERR (2), if the connection
# ends before siw's thread runs (siw_qp_sq_proc_tx() in siw_qp_tx.c). perftest's server ends the connection
# at the client's last message. A client that has printed its row has completed all its rounds.
was_through() {
	local log
	log=$(log_of "$(label_of "$1")")
	[ "$PERFTEST_FROM" = "$SIW" ] && shows '^ *[0-9][0-9]* ' <"$log" && shows 'Bad wc status 2$' <"$log"
}

# pair_with_siw LABEL...: a perftest pair; run again if siw has failed the last Send.
pair_with_siw() {
	local _
	for _ in 1 2 3; do
		(perftest_pair "$@") && return
		was_through "$1" || die "failed, and not by siw's last Send: $*"
		say "$1: siw takes its last message for failed, after the end; again"
		pkill -KILL -x 'ib_.*' || true
		PERFTEST_PORT=$((PERFTEST_PORT + 3))
	done
	die "siw fails again and again: $*"
}

# ping_rounds LABEL FROM TO SIZE COUNT
ping_rounds() {
	local server printed
	spawn server rping -s -a "$3" -p 7174 -S "$4" -C "$5" -V
	server=$SPAWNED
	wait_listening 7174
	# shellcheck disable=SC2016 # expanded by the inner shell
	run 60 "$1" sh -c 'rping -c -v -V -p 7174 -I "$1" -a "$2" -S "$3" -C "$4" | grep -ac "^ping data: "' sh "$2" "$3" "$4" "$5"
	printed=$(tail -n 1 "$(log_of "$(label_of "$1")")")
	[ "$printed" = "$5" ] || die "$1: $printed rounds of $5"
	finish "$server" 20 server
	ok "$1"
}

# one_role LABEL FROM TO
one_role() {
	local tool PERFTEST_FROM=$2
	ping_rounds "$1: rping 64" "$2" "$3" 64 "$(rounds 200)"
	ping_rounds "$1: rping 65535" "$2" "$3" 65535 "$(rounds 100)"
	for tool in ib_send_bw ib_write_bw ib_read_bw; do
		PERFTEST_PORT=$((PERFTEST_PORT + 10))
		pair_with_siw "$1: $tool" "$3" "" "" "$tool" -s 65536 -n "$(rounds 100)"
	done
	for tool in ib_send_lat ib_write_lat ib_read_lat; do
		# The CRC is one field of an FPDU. Soak has the latency tools without it too.
		[ "$crc" = 1 ] || all_rounds || continue
		# The server sends first. RFC 5044 section 7.1.2 forbids that until the client has sent an
		# FPDU: rsiw as client sends one at once, siw never.
		[ "$2/$tool" != "$SIW/ib_write_lat" ] || continue
		PERFTEST_PORT=$((PERFTEST_PORT + 10))
		pair_with_siw "$1: $tool" "$3" "" "" "$tool" -s 200 -n "$(rounds 100)"
	done
	run 60 "$1: integrity" "$RSIW_TESTBIN/integrity" -p -n 15 -s 7 -f "$2" "$3"
	ok "$1: $(tail -n 1 "$(log_of "$(label_of "$1: integrity")")")"
}

ip link set lo up
ip link set lo mtu 1500
make_dummy rd0 "$OURS/24"
make_dummy rd1 "$SIW/24"
load_type siw
make_link siw0 rd1 siw

for crc in 1 0; do
	RSIW_PARAMS="crc=$crc"
	rsiw_load
	make_link rsiw0 rd0
	one_role "crc=$crc, client rsiw" "$OURS" "$SIW"
	one_role "crc=$crc, client siw" "$SIW" "$OURS"
	rdma link del rsiw0
	unload_type "$RSIW_TYPE"
done
