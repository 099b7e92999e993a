# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Validated rounds of rping; sourced by the tests that run them.

# rping_client LABEL SIZE COUNT ADDRESS: rping ends with status 0 also when its peer closes early, so the
# rounds are counted in its output.
rping_client() {
	local printed
	# shellcheck disable=SC2016 # expanded by the inner shell
	run 120 "$1" sh -c 'rping -c -v -V -p 7174 -a "$1" -S "$2" -C "$3" | grep -ac "^ping data: "' sh "$4" "$2" "$3"
	printed=$(tail -n 1 "$(log_of "$(label_of "$1")")")
	[ "$printed" = "$3" ] || die "$1: $printed rounds of $3"
}

# rping_rounds SIZE COUNT ADDRESS [SERVER_PREFIX]: the prefix is a command such as "ip netns exec X".
rping_rounds() {
	local server before_server=${4:-}
	# shellcheck disable=SC2086 # a list of words
	spawn rping-server $before_server rping -s -a "$3" -p 7174 -S "$1" -C "$2" -V
	server=$SPAWNED
	wait_listening 7174 "$before_server"
	rping_client "rping $1 octets to $3" "$1" "$2" "$3"
	finish "$server" 20 rping-server
	ok "rping $2 rounds of $1 octets to $3"
}
