// SPDX-License-Identifier: GPL-2.0
/*
 * A process that writes garbage into all memory it shares with the module: the
 * rings of send, receive and completion queues and the notify word, at any
 * time. The process rings the doorbell by its own system calls, and may break
 * its own connection. Another connection, even of this process, must go on
 * working. The kernel must report no fault, which the runner checks.
 *
 * usage: hostile [-n rounds] [-s seed] address
 */
#include "maps.h"
#include "pair.h"
#include "rng.h"

#include <errno.h>
#include <inttypes.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/siw-abi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The doorbell, as libibverbs writes it. */
static void ring_doorbell(struct ibv_qp *qp)
{
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_post_send command;
	} __attribute__((packed)) message;
	struct ib_uverbs_post_send_resp response;

	memset(&message, 0, sizeof(message));
	message.header.command = IB_USER_VERBS_CMD_POST_SEND;
	message.header.in_words = sizeof(message) / 4;
	message.header.out_words = sizeof(response) / 4;
	message.command.response = (uintptr_t)&response;
	message.command.qp_handle = qp->handle;
	message.command.wqe_size = sizeof(struct ib_uverbs_send_wr);
	/* The module may refuse the doorbell with any other error. */
	if (write(qp->context->cmd_fd, &message, sizeof(message)) < 0 && errno == EFAULT)
		fail("doorbell: %s", strerror(errno));
}

/* A request that looks right but for some fields. */
static void plausible(struct siw_sqe *sqe, struct ibv_mr *mr)
{
	memset(sqe, 0, sizeof(*sqe));
	sqe->id = rng();
	sqe->flags = SIW_WQE_VALID | (rng() % 4 ? rng() & 0x7f : 0);
	sqe->num_sge = rng() % 8 ? rng() % 7 : rng();
	sqe->opcode = rng() % 4 ? rng() % 13 : rng();
	sqe->rkey = rng() % 2 ? mr->rkey : rng();
	sqe->raddr = rng() % 2 ? (uintptr_t)mr->addr : rng();
	for (int i = 0; i < SIW_MAX_SGE; i++) {
		sqe->sge[i].laddr = rng() % 4 ? (uintptr_t)mr->addr + rng() % 64 : rng();
		sqe->sge[i].length = rng() % 4 ? rng() % 4096 : rng();
		sqe->sge[i].lkey = rng() % 4 ? mr->lkey : rng() % 2 ? 0 : rng();
	}
}

static void scribble(struct ring *ring, struct ibv_mr *mr)
{
	size_t at, i;

	if (rng() % 2) {
		for (at = 0; at + sizeof(struct siw_sqe) <= ring->size; at += sizeof(struct siw_sqe))
			plausible((struct siw_sqe *)(ring->at + at), mr);
		return;
	}
	for (i = 1 + rng() % 64; i; i--)
		ring->at[rng() % ring->size] = rng();
}

static void bystander_works(struct pair *p, struct ibv_mr *mr[2], uint8_t memory[2][64], int round)
{
	struct ibv_sge from = { .addr = (uintptr_t)memory[0], .length = 64, .lkey = mr[0]->lkey };
	struct ibv_sge to = { .addr = (uintptr_t)memory[1], .length = 64, .lkey = mr[1]->lkey };
	struct ibv_recv_wr recv = { .sg_list = &to, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = {
		.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
	}, *bad_send;
	struct ibv_wc wc;

	memset(memory[0], round, 64);
	if (ibv_post_recv(p->b.qp, &recv, &bad_recv) || ibv_post_send(p->a.qp, &send, &bad_send))
		fail("round %d: the bystander cannot post", round);
	if (wait_completion(p->b.recv_cq, &wc, 10) || wc.status || wait_completion(p->a.send_cq, &wc, 10) || wc.status)
		fail("round %d: the bystander's Send does not arrive", round);
	if (memcmp(memory[0], memory[1], 64))
		fail("round %d: the bystander received something else", round);
}

int main(int argc, char **argv)
{
	static uint8_t memory[2][64], target[65536] __attribute__((aligned(4096)));
	struct pair_options options = pair_defaults();
	struct ring before[MAX_RINGS], rings[MAX_RINGS];
	struct pair bystander, victim;
	int rounds = 100, c, i, j, old, count;
	struct ibv_mr *mr[2], *victim_mr;
	uint64_t seed = 1;

	while ((c = getopt(argc, argv, "n:s:")) != -1) {
		if (c == 'n')
			rounds = atoi(optarg);
		else if (c == 's')
			seed = strtoull(optarg, NULL, 0);
		else
			return 2;
	}
	if (optind != argc - 1)
		return 2;
	rng_state = seed;
	printf("seed %" PRIu64 "\n", seed);
	if (pair_open(&bystander, NULL, argv[optind], &options))
		fail("no connection");
	for (i = 0; i < 2; i++)
		mr[i] = must_register(i ? bystander.b.pd : bystander.a.pd, memory[i], 64, IBV_ACCESS_LOCAL_WRITE);
	old = find_rings(before);
	if (!old)
		fail("no shared ring found in /proc/self/maps");
	for (i = 0; i < rounds; i++) {
		if (pair_open(&victim, NULL, argv[optind], &options))
			fail("round %d: no connection", i);
		victim_mr = must_register(victim.a.pd, target, sizeof(target), IBV_ACCESS_LOCAL_WRITE |
					  IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
		count = find_rings(rings);
		if (count <= old)
			fail("round %d: no new ring", i);
		for (j = 0; j < count; j++) {
			/* The bystander's rings are left alone. */
			for (c = 0; c < old && before[c].at != rings[j].at; c++)
				;
			if (c == old)
				scribble(&rings[j], victim_mr);
		}
		ring_doorbell(victim.a.qp);
		if (rng() % 2)
			ring_doorbell(victim.b.qp);
		if (rng() % 2)
			usleep(rng() % 3000);
		bystander_works(&bystander, mr, memory, i);
		if (ibv_dereg_mr(victim_mr))
			fail("ibv_dereg_mr");
		pair_close(&victim);
	}
	ibv_dereg_mr(mr[0]);
	ibv_dereg_mr(mr[1]);
	pair_close(&bystander);
	printf("%d rounds\n", rounds);
	return 0;
}
