// SPDX-License-Identifier: GPL-2.0
/*
 * A bulk transfer without polling, to measure processor time. The requesting end sleeps until completions
 * are there, and the other end has no thread.
 *
 * usage: bulk address read|write size count [spread]
 *
 * @count messages of @size octets (1 to 1 MiB). All use the same memory, or consecutive parts of @spread
 * octets (at most 16 MiB). Prints MB/s.
 */
#include "pair.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH 128
/* Every EVERYth request has a completion, and the last one. */
#define EVERY 32
#define MAX_SIZE (1 << 20)
#define MAX_SPREAD (16 << 20)

static char from[MAX_SPREAD], to[MAX_SPREAD];

/* Sleeps until the queue has a completion, at most 20 seconds. */
static void sleep_until_event(struct end *e)
{
	struct pollfd waits = { .fd = e->channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	if (poll(&waits, 1, 20000) != 1)
		fail("nothing completes");
	if (ibv_get_cq_event(e->channel, &cq, &context))
		fail("ibv_get_cq_event");
	ibv_ack_cq_events(cq, 1);
}

/* Polls all completions; returns how many requests they stand for. */
static long drain(struct end *e)
{
	struct ibv_wc wc;
	long done = 0;

	while (ibv_poll_cq(e->send_cq, 1, &wc) == 1) {
		if (wc.status)
			fail("completion of %llu: %s", (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status));
		done += wc.wr_id;
	}
	return done;
}

int main(int argc, char **argv)
{
	struct pair_options options = pair_defaults();
	struct ibv_send_wr wr = { .num_sge = 1 }, *bad;
	struct ibv_mr *near, *far;
	long posted = 0, done = 0, since = 0, got, count, size, spread;
	struct ibv_sge sge;
	struct pair p;
	double begun;

	if (argc != 5 && argc != 6)
		fail("usage: bulk address read|write size count [spread]");
	size = atol(argv[3]);
	count = atol(argv[4]);
	spread = argc > 5 ? atol(argv[5]) : size;
	if (size < 1 || size > MAX_SIZE || count < 1 || spread < size || spread > MAX_SPREAD)
		fail("size or count out of range");
	wr.opcode = strcmp(argv[2], "read") ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;

	options.send_depth = DEPTH;
	options.events = 1;
	if (pair_open(&p, NULL, argv[1], &options))
		fail("no connection to %s", argv[1]);
	near = must_register(p.a.pd, from, sizeof(from), IBV_ACCESS_LOCAL_WRITE);
	far = must_register(p.b.pd, to, sizeof(to),
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	sge = (struct ibv_sge){ .length = size, .lkey = near->lkey };
	wr.sg_list = &sge;
	wr.wr.rdma.rkey = far->rkey;

	begun = now();
	while (done < count) {
		for (; posted < count && posted - done < DEPTH; posted++) {
			int tells = ++since == EVERY || posted + 1 == count;
			long place = posted % (spread / size) * size;

			wr.wr_id = since;
			sge.addr = (uintptr_t)from + place;
			wr.wr.rdma.remote_addr = (uintptr_t)to + place;
			wr.send_flags = tells ? IBV_SEND_SIGNALED : 0;
			if (ibv_post_send(p.a.qp, &wr, &bad))
				fail("ibv_post_send");
			if (tells)
				since = 0;
		}
		if (ibv_req_notify_cq(p.a.send_cq, 0))
			fail("ibv_req_notify_cq");
		/* A completion before the queue was armed brings no event. */
		got = drain(&p.a);
		if (!got) {
			sleep_until_event(&p.a);
			got = drain(&p.a);
		}
		done += got;
	}
	printf("%.1f\n", (double)size * count / (now() - begun) / 1e6);
	pair_close(&p);
	return 0;
}
