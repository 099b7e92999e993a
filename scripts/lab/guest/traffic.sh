# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=dash
# rping and perftest on a system that has its own packages' programs alone, by busybox or bash: both ends on this
# machine. To be sourced by guest/arm64 and release/guest-boot. They set ADDRESS and DEVICE, and have ok and fail.

seconds() { cut -d. -f1 /proc/uptime; }

# wait_for SECONDS WHAT COMMAND...
wait_for() {
	deadline=$(($(seconds) + $1)) what=$2
	shift 2
	until "$@" >/dev/null 2>&1; do
		[ "$(seconds)" -lt "$deadline" ] || fail "still not: $what"
		sleep 0.2
	done
}

listening() { ss -Hltn "sport = :$1" | grep -q .; }
# shellcheck disable=SC2154  # the caller's
sent() { cat "/sys/class/infiniband/$DEVICE/ports/1/hw_counters/tx_octets"; }
sent_more_than() { [ "$(sent)" -gt "$1" ]; }

# rping_pair PORT ROUNDS: rping compares the data at both ends, SERVER and CLIENT.
# shellcheck disable=SC2154  # the caller's
rping_pair() {
	timeout 120 rping -s -a "$ADDRESS" -p "$1" -C "$2" -S 65000 -V >/tmp/server 2>&1 &
	SERVER=$!
	wait_for 60 "rping listens" listening "$1"
	timeout 120 rping -c -a "$ADDRESS" -p "$1" -C "$2" -S 65000 -V >/tmp/client 2>&1 &
	CLIENT=$!
}
rping_works() {
	rping_pair "$1" 20
	wait "$CLIENT" || fail "rping: $(cat /tmp/client)"
	wait "$SERVER" || fail "rping's server: $(cat /tmp/server)"
	ok "rping, 20 rounds of 65000 octets"
}

# endless_rping PORT: rping that transfers until ended_rping.
endless_rping() {
	rping_pair "$1" 100000000
	wait_for 60 "traffic" sent_more_than $(($(sent) + 1000000))
}
ended_rping() {
	kill -9 "$CLIENT" "$SERVER" 2>/dev/null || :
	wait "$CLIENT" "$SERVER" || :
}

# perftest PORT TOOL ARGUMENT...: its tools connect twice, and the second listener may come behind the client
# (scripts/tests/perftest.sh). Such a pair runs again.
perftest() {
	try=1
	until perftest_once "$@"; do
		if [ "$try" = 3 ] || ! grep -q -e 'REJECTED; error: -111' -e 'Connection refused' /tmp/client; then
			fail "$*: $(cat /tmp/client; echo "the server:"; cat /tmp/server)"
		fi
		echo "$*: the client was faster than the second listener; again"
		try=$((try + 1))
	done
	ok "$*: $(sed -n 's/^ *\([0-9][0-9]* .*\)/\1/p' /tmp/client | tail -n 1 | tr -s ' ')"
}
perftest_once() {
	port=$1
	shift
	timeout 120 "$@" -R -F -p "$port" >/tmp/server 2>&1 &
	SERVER=$!
	wait_for 60 "$* listens" listening "$port"
	if ! timeout 120 "$@" -R -F -p "$port" "$ADDRESS" >/tmp/client 2>&1; then
		kill -9 "$SERVER" 2>/dev/null || :
		wait "$SERVER" || :
		return 1
	fi
	wait "$SERVER" || fail "the server of $*: $(cat /tmp/server)"
}
