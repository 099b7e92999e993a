#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 420
# runs on: soak
# Open MPI over libfabric's verbs provider (ofi_rxm). A program of two and of four ranks checks the messages it
# receives and the results of collective operations (src/mpi_check.c). The device's counters have the octets.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

# Open MPI refuses to run as root otherwise.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1

octets() { rdma statistic show link r0/1 | sed -n 's/.*\brx_octets \([0-9]*\).*/\1/p'; }

single_bed
for ranks in 2 4; do
	label="mpirun, $ranks ranks"
	before=$(octets)
	# There are fewer processors than ranks, which poll: each gives its processor up when it has nothing to do.
	run 180 "$label" mpirun -np "$ranks" --oversubscribe --mca mpi_yield_when_idle 1 --mca pml cm --mca mtl ofi \
		--mca mtl_ofi_provider_include "verbs;ofi_rxm" "$RSIW_TESTBIN/mpi_check"
	shows -x checked "$(log_of "$(label_of "$label")")" || die "$label: the program did not come to its end"
	# Each rank sends 48 messages, 22,369,620 octets in all, to the next one.
	carried=$(($(octets) - before))
	[ "$carried" -ge $((ranks * 22369620)) ] || die "$label: the device carried $carried octets only"
	ok "$label: the device carried $carried octets"
done
