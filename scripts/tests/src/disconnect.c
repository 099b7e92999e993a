// SPDX-License-Identifier: GPL-2.0
/*
 * rdma_disconnect() with many posted requests, which it flushes (rdma_disconnect(3)). Both ends get their
 * event in time. Completions come in order and once each, successes before flushes. Data of a successful
 * request is in the peer's memory.
 *
 * usage: disconnect address [factor]       factor stretches the time limit of each wait
 */
#include "pair.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define COUNT 128
#define SIZE (4 << 20)
/* Messages that have memory of their own; the others use it again. */
#define SLOTS 16
#define DEPTH 256
/*
 * Repeats until a request is flushed, and both ends are told in time in one such try. On a fast machine all may
 * have been sent before the disconnect, and a busy one may be late.
 */
#define TRIES 10
/* Seconds until both events. */
#define TOLD_SECONDS 1.0
/* Octets of a message that differ from those of all others, at its beginning and at its end. */
#define MARK 64

static uint8_t *near, *far;
static struct ibv_mr *near_mr, *far_mr, *near_back, *far_back;
/* The time limit of a wait, in seconds. */
static double limit = 20.0;
static const char *what;

/* A case: the requests of each end, and whether b answers the disconnect with its own. */
struct test {
	const char *name;
	enum ibv_wr_opcode by_a;
	int b_posts;		/* Writes towards a */
	int b_answers;
	int no_receives;	/* b has none for a's Sends, and waits for them without end */
};

static const struct test tests[] = {
	{ "Writes", IBV_WR_RDMA_WRITE, 0, 1, 0 },
	{ "Sends", IBV_WR_SEND, 0, 1, 0 },
	{ "Sends without receives", IBV_WR_SEND, 0, 1, 1 },
	{ "Reads", IBV_WR_RDMA_READ, 0, 1, 0 },
	{ "Writes both ways", IBV_WR_RDMA_WRITE, 1, 1, 0 },
	{ "Writes both ways, one end stays", IBV_WR_RDMA_WRITE, 1, 0, 0 },
};

static void *memory(void)
{
	void *at = mmap(NULL, (size_t)SLOTS * SIZE, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (at == MAP_FAILED)
		fail("no memory");
	return at;
}

static void mark(uint8_t *at, int round, int number)
{
	memset(at, round * 31 + number + 1, MARK);
	memset(at + SIZE - MARK, round * 17 + number + 1, MARK);
}

static int marked(const uint8_t *at, int round, int number)
{
	int i;

	for (i = 0; i < MARK; i++)
		if (at[i] != (uint8_t)(round * 31 + number + 1) ||
		    at[SIZE - MARK + i] != (uint8_t)(round * 17 + number + 1))
			return 0;
	return 1;
}

static void post(struct end *e, enum ibv_wr_opcode opcode, uint8_t *from, struct ibv_mr *mr, uint8_t *to, uint32_t rkey)
{
	struct ibv_send_wr wr[COUNT];
	struct ibv_sge sge[COUNT];
	int i;

	/* All in one call: a request posted by itself has been sent before the next one is posted. */
	for (i = 0; i < COUNT; i++) {
		sge[i] = (struct ibv_sge){
			.addr = (uintptr_t)from + (size_t)(i % SLOTS) * SIZE, .length = SIZE, .lkey = mr->lkey,
		};
		wr[i] = (struct ibv_send_wr){
			.wr_id = i, .next = i + 1 < COUNT ? &wr[i + 1] : NULL, .sg_list = &sge[i], .num_sge = 1,
			.opcode = opcode, .send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { .remote_addr = (uintptr_t)to + (size_t)(i % SLOTS) * SIZE, .rkey = rkey },
		};
	}
	must_post_send(e, wr);
}

static void post_receives(struct end *e, uint8_t *to, struct ibv_mr *mr)
{
	int i;

	for (i = 0; i < COUNT; i++) {
		struct ibv_sge sge = { .addr = (uintptr_t)to + (size_t)(i % SLOTS) * SIZE, .length = SIZE, .lkey = mr->lkey };

		must_post_recv(e, i, &sge, 1);
	}
}

/* Collects all completions of one queue; returns the number of successes. */
static int collect(struct ibv_cq *cq, const char *queue)
{
	int i, good = 0;
	struct ibv_wc wc;

	for (i = 0; i < COUNT; i++) {
		if (wait_completion(cq, &wc, limit))
			fail("%s: %s: completion %d does not come", what, queue, i);
		if (wc.wr_id != (uint64_t)i)
			fail("%s: %s: completion of %d instead of %d", what, queue, (int)wc.wr_id, i);
		if (wc.status == IBV_WC_SUCCESS && good == i)
			good++;
		else if (wc.status != IBV_WC_WR_FLUSH_ERR)
			fail("%s: %s: completion %d of which %d successes: %s", what, queue, i, good,
			     ibv_wc_status_str(wc.status));
	}
	if (ibv_poll_cq(cq, 1, &wc))
		fail("%s: %s: one completion too many", what, queue);
	return good;
}

/* Waits for DISCONNECTED at both ends; b may answer with its own. Returns the seconds until the later event. */
static double both_are_told(struct pair *p, double begin, const struct test *test)
{
	int answers = test->b_answers;

	double at[2] = { 0, 0 };

	while (!at[0] || !at[1]) {
		struct pollfd fd = { .fd = p->events->fd, .events = POLLIN };
		struct rdma_cm_event *event;
		int is_b, ms = (begin + limit - now()) * 1000;

		if (ms <= 0 || poll(&fd, 1, ms) != 1)
			fail("%s: after %.1f s the %s end has not been told", what, now() - begin,
			     at[0] ? "other" : "disconnecting");
		if (rdma_get_cm_event(p->events, &event))
			fail("rdma_get_cm_event");
		if (event->event != RDMA_CM_EVENT_DISCONNECTED)
			fail("%s: event %s", what, rdma_event_str(event->event));
		/* Without receives no FIN can arrive: the reset of the connection ends it, with a status. */
		if (event->status && !test->no_receives)
			fail("%s: DISCONNECTED with status %d: a reset?", what, event->status);
		is_b = event->id == p->b.id;
		at[is_b] = now() - begin;
		rdma_ack_cm_event(event);
		if (is_b && answers && rdma_disconnect(p->b.id))
			fail("%s: the other end cannot disconnect", what);
	}
	printf("%s: told after %.3f and %.3f s", what, at[0], at[1]);
	return at[0] > at[1] ? at[0] : at[1];
}

/* Returns the number of successes, and in @told the seconds until both ends are told. */
static int run(const char *address, const struct test *test, int round, double *told)
{
	struct pair_options options = pair_defaults();
	enum ibv_wr_opcode opcode = test->by_a;
	int i, done, got;
	struct pair p;
	double begin;

	what = test->name;
	options.send_depth = options.recv_depth = options.cq_depth = DEPTH;
	if (pair_open(&p, NULL, address, &options))
		fail("%s: no connection to %s", what, address);
	near_mr = must_register(p.a.pd, near, (size_t)SLOTS * SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	far_mr = must_register(p.b.pd, far, (size_t)SLOTS * SIZE,
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	/* b's Writes have one memory at either end, whose content does not matter. */
	near_back = near_mr;
	far_back = far_mr;
	for (i = 0; i < SLOTS; i++)
		mark((opcode == IBV_WR_RDMA_READ ? far : near) + (size_t)i * SIZE, round, i);
	for (i = 0; i < SLOTS; i++)
		memset((opcode == IBV_WR_RDMA_READ ? near : far) + (size_t)i * SIZE, 0, SIZE);
	if (opcode == IBV_WR_SEND && !test->no_receives)
		post_receives(&p.b, far, far_mr);
	if (test->b_posts)
		post(&p.b, IBV_WR_RDMA_WRITE, far, far_back, near, near_back->rkey);
	post(&p.a, opcode, near, near_mr, far, far_mr->rkey);

	begin = now();
	if (rdma_disconnect(p.a.id))
		fail("%s: rdma_disconnect", what);
	*told = both_are_told(&p, begin, test);
	done = collect(p.a.send_cq, "the disconnecting end's send queue");
	printf(", %d of %d were done\n", done, COUNT);
	if (!test->b_posts && !test->no_receives)
		for (i = 0; i < done && i < SLOTS; i++)
			if (!marked((opcode == IBV_WR_RDMA_READ ? near : far) + (size_t)i * SIZE, round, i))
				fail("%s: %d was a success, and its data is not there", what, i);
	if (opcode == IBV_WR_SEND && !test->no_receives) {
		got = collect(p.b.recv_cq, "the other end's receive queue");
		if (got < done)
			fail("%s: %d Sends were successes, %d arrived", what, done, got);
	}
	if (test->b_posts)
		collect(p.b.send_cq, "the other end's send queue");
	ibv_dereg_mr(near_mr);
	ibv_dereg_mr(far_mr);
	pair_close(&p);
	return done;
}

/* The time counts where something was flushed: where all was sent, the end is told earlier. */
static void repeat(const char *address, const struct test *test, int round)
{
	double told, least = limit;
	int try, flushed = 0;

	for (try = 0; try < TRIES && least > TOLD_SECONDS; try++) {
		if (run(address, test, round + try, &told) == COUNT)
			continue;
		flushed = 1;
		if (told < least)
			least = told;
	}
	if (!flushed)
		fail("%s: all of it was sent, in every try", test->name);
	if (least > TOLD_SECONDS)
		fail("%s: told after %.2f s at least", test->name, least);
}

int main(int argc, char **argv)
{
	size_t i;

	if (argc < 2)
		fail("usage: disconnect address [factor]");
	if (argc > 2)
		limit *= atoi(argv[2]);
	setvbuf(stdout, NULL, _IOLBF, 0);
	near = memory();
	far = memory();
	for (i = 0; i < sizeof(tests) / sizeof(*tests); i++)
		repeat(argv[1], &tests[i], i * TRIES);
	return 0;
}
