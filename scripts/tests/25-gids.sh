#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 240
# The GID table: entry 0, addresses that are added and removed, its size, and every call
# that reads it, also in a network namespace.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

single_bed
status=0
PYTHONPATH="$(dirname "$0")/src" timeout -k 5 $((110 * FACTOR)) python3 -B "$(dirname "$0")/src/gids.py" 2>&1 || status=$?
[ "$status" = 0 ] || die "gids.py: status $status"
run 10 "ibv_devinfo" ibv_devinfo -v -d r0
info=$(log_of ibv_devinfo)
grep -Eq 'GID\[ *1\]:.*(::ffff:10\.99\.0\.1|:0000:ffff:0a63:0001)' "$info" || die "ibv_devinfo does not show GID 1: $(grep GID "$info")"
grep -Eq 'gid_tbl_len:[[:space:]]*32' "$info" || die "ibv_devinfo: $(grep gid_tbl_len "$info")"
ok "ibv_devinfo -v"

veth_bed
make_peer_link r1 "$RSIW_TYPE"
has_gid() { grep -l "0000:0000:0000:0000:0000:ffff:$1" /sys/class/infiniband/r1/ports/1/gids/*; }
wait_for 5 "the address of the far end is a GID" has_gid 0a62:0002
ip -n peer addr add 10.98.0.77/24 dev rv1
wait_for 5 "an address added in a namespace is a GID" has_gid 0a62:004d
ok "a network namespace"
