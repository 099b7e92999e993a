#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 700
# Interoperation with the kernel's own siw, which knows nothing of us: rsiw on
# one interface, siw on another, each as client and as server, with CRC and
# without. rping, perftest, and the data integrity generator in the form that
# avoids siw's own defects.
# shellcheck source=../guest/lib.sh
. "$(dirname "$0")/../guest/lib.sh"
# shellcheck source=perftest.sh
. "$(dirname "$0")/perftest.sh"
# shellcheck source=siw.sh
. "$(dirname "$0")/siw.sh"

OURS=10.99.0.1
SIW=10.99.1.1

# siw as client calls a Send that went out whole failed (IBV_WC_LOC_QP_OP_ERR, 2), if the connection
# ends before its thread has looked (siw_qp_sq_proc_tx() in siw_qp_tx.c). perftest's server ends it
# as soon as it has the client's last message. A client that has printed its row then was through.
was_through() {
	local log
	log=$(log_of "$(label_of "$1")")
	[ "$PERFTEST_FROM" = "$SIW" ] && shows '^ *[0-9][0-9]* ' <"$log" && shows 'Bad wc status 2$' <"$log"
}

# with_siw COMMAND LABEL...: once more if siw has lost a wake-up, or taken its last Send for failed.
with_siw() {
	local _
	for _ in 1 2 3; do
		rm -f "$LOST"
		("$@") && return
		if [ -e "$LOST" ]; then
			say "siw has octets that it does not look at: $(cat "$LOST"); again"
		elif [ "$1" = perftest_pair ] && was_through "$2"; then
			say "$2: siw takes its last message for failed, after the end; again"
		else
			die "failed, and not by siw's lost wake-up or its last Send: $*"
		fi
		pkill -KILL -x 'rping|ib_.*' || true
		wait_for 10 "nobody listens" not listening 7174
	done
	die "siw fails again and again: $*"
}

# ping LABEL FROM TO SIZE COUNT
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

# both_roles LABEL FROM TO
one_role() {
	local tool PERFTEST_FROM=$2
	with_siw ping_rounds "$1: rping 64" "$2" "$3" 64 200
	with_siw ping_rounds "$1: rping 65535" "$2" "$3" 65535 100
	for tool in ib_send_bw ib_write_bw ib_read_bw; do
		PERFTEST_PORT=$((PERFTEST_PORT + 10))
		with_siw perftest_pair "$1: $tool" "$3" "" "" "$tool" -s 65536 -n 100
	done
	for tool in ib_send_lat ib_write_lat ib_read_lat; do
		# Its server sends first, which RFC 5044 section 7.1.2 forbids until the client has sent
		# something; rsiw as client does at once, siw never.
		[ "$2/$tool" != "$SIW/ib_write_lat" ] || continue
		PERFTEST_PORT=$((PERFTEST_PORT + 10))
		with_siw perftest_pair "$1: $tool" "$3" "" "" "$tool" -s 200 -n 100
	done
	with_siw run 60 "$1: integrity" "$RSIW_TESTBIN/integrity" -p -n 15 -s 7 -f "$2" "$3"
	ok "$1: $(tail -n 1 "$(log_of "$(label_of "$1: integrity")")")"
}

ip link set lo up
ip link set lo mtu 1500
make_dummy rd0 "$OURS/24"
make_dummy rd1 "$SIW/24"
load_type siw
make_link siw0 rd1 siw
spawn watch watch_siw "$SIW" 'rping|ib_.*|integrity'

for crc in 1 0; do
	RSIW_PARAMS="crc=$crc"
	rsiw_load
	make_link rsiw0 rd0
	one_role "crc=$crc, client rsiw" "$OURS" "$SIW"
	one_role "crc=$crc, client siw" "$SIW" "$OURS"
	rdma link del rsiw0
	unload_type "$RSIW_TYPE"
done
