// SPDX-License-Identifier: GPL-2.0
/*
 * Connects and disconnects many times, one Send over each connection.
 *
 * usage: churn [-k] [-n rounds] address
 *
 * -k: keeps all connections: says "1 open" after the first, makes the others on
 * SIGUSR1, says "N open", and waits to be killed.
 */
#include "pair.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void one_send(struct pair *p, int round)
{
	char memory[64] = "";
	struct ibv_mr *out = must_register(p->a.pd, memory, 32, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mr *in = must_register(p->b.pd, memory + 32, 32, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge from = { .addr = (uintptr_t)memory, .length = 32, .lkey = out->lkey };
	struct ibv_sge to = { .addr = (uintptr_t)memory + 32, .length = 32, .lkey = in->lkey };
	struct ibv_recv_wr recv = { .sg_list = &to, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = {
		.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
	}, *bad_send;
	struct ibv_wc wc;

	snprintf(memory, 32, "round %d", round);
	if (ibv_post_recv(p->b.qp, &recv, &bad_recv) || ibv_post_send(p->a.qp, &send, &bad_send))
		fail("round %d: cannot post", round);
	if (wait_completion(p->b.recv_cq, &wc, 10) || wc.status)
		fail("round %d: nothing received", round);
	if (strcmp(memory, memory + 32))
		fail("round %d: received '%s'", round, memory + 32);
	if (wait_completion(p->a.send_cq, &wc, 10) || wc.status)
		fail("round %d: the Send did not complete", round);
	if (ibv_dereg_mr(out) || ibv_dereg_mr(in))
		fail("round %d: ibv_dereg_mr", round);
}

/* Prints the number of open connections, and waits. */
static void stay(int count, const sigset_t *until)
{
	int number;

	printf("%d open\n", count);
	fflush(stdout);
	sigwait(until, &number);
}

int main(int argc, char **argv)
{
	struct pair_options options = pair_defaults();
	int rounds = 100, keep = 0, c, i;
	sigset_t go_on;
	struct pair p;

	sigemptyset(&go_on);
	sigaddset(&go_on, SIGUSR1);
	sigprocmask(SIG_BLOCK, &go_on, NULL);
	while ((c = getopt(argc, argv, "kn:")) != -1) {
		if (c == 'n')
			rounds = atoi(optarg);
		else if (c == 'k')
			keep = 1;
		else
			return 2;
	}
	if (optind != argc - 1)
		return 2;
	options.send_depth = options.recv_depth = options.cq_depth = 4;
	for (i = 0; i < rounds; i++) {
		if (pair_open(&p, NULL, argv[optind], &options))
			fail("round %d: no connection", i);
		one_send(&p, i);
		if (keep) {
			if (rdma_destroy_id(p.listener))
				fail("round %d: rdma_destroy_id", i);
			if (i == 0 || i == rounds - 1)
				stay(i + 1, &go_on);
			continue;
		}
		/* Every other round the accepting end disconnects first. */
		if (i & 1)
			rdma_disconnect(p.b.id);
		pair_close(&p);
	}
	printf("%d rounds\n", rounds);
	return 0;
}
