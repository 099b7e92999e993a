#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 400
# runs on: soak
# The page about loss and delay under RDMA; packets were lost, and sent again by TCP.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=howto.sh
. "$(dirname "$0")/howto.sh"

modprobe sch_netem
run_page docs/howto/netem.md

# TCP's retransmissions since the client's network namespace was made. The page has removed netem at its end.
sent_again=$(on client nstat -asz TcpRetransSegs | awk '$1 == "TcpRetransSegs" { print $2 }')
[ "$sent_again" -gt 0 ] || die "TCP sent nothing again"
ok "TCP sent $sent_again segments again"
