// SPDX-License-Identifier: GPL-2.0
/* Checks of abi.c: the memory that a process and the module share. */
#define _GNU_SOURCE
#include "bed.h"
#include "maps.h"

#include <errno.h>
#include <pthread.h>
#include <rdma/siw-abi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static void *map(int fd, size_t size, uint64_t offset)
{
	return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
}

static void map_is_refused(const char *what, int fd, size_t size, uint64_t offset)
{
	if (map(fd, size, offset) != MAP_FAILED)
		fail("%s: mapped, %zu octets of %#lx", what, size, (unsigned long)offset);
	if (errno != EINVAL)
		fail("%s: %s", what, strerror(errno));
}

/* A ring is mapped as a whole, any number of times. A mapping outlives its object. */
void rings_map_whole(void)
{
	const size_t page = 4096;
	struct ring rings[MAX_RINGS];
	struct pair_options o = pair_defaults();
	struct ibv_context *context;
	struct bed bed;
	uint8_t *again[MAX_RINGS];
	int i, count, fd, long_ones = 0;

	o.recv_depth = 512;
	bed = bed_open(&o);
	context = bed.p.a.pd->context;
	fd = context->cmd_fd;
	count = find_rings(rings);
	/* Two queues each for two queue pairs, and their completion queues. */
	if (count < 8)
		fail("%d rings", count);
	for (i = 0; i < count; i++) {
		struct ring *r = &rings[i];

		map_is_refused("a page too much", fd, r->size + page, r->offset);
		map_is_refused("not from the beginning", fd, page, r->offset + (r->size > page ? page : 0x1000000));
		if (r->size > page) {
			long_ones++;
			map_is_refused("a part", fd, page, r->offset);
		}
		again[i] = map(fd, r->size, r->offset);
		if (again[i] == MAP_FAILED)
			fail("ring %d once more: %s", i, strerror(errno));
		/* No entry in use has the last octet. */
		r->at[r->size - 1] ^= 0x55;
		if (again[i][r->size - 1] != r->at[r->size - 1])
			fail("ring %d, mapped twice, is not the same memory", i);
		r->at[r->size - 1] ^= 0x55;
	}
	if (!long_ones)
		fail("no ring has more than one page");
	bed_close(&bed);
	for (i = 0; i < count; i++) {
		map_is_refused("a ring that is gone", fd, rings[i].size, rings[i].offset);
		memset(again[i], 0xff, rings[i].size);
		if (munmap(again[i], rings[i].size))
			fail("munmap: %s", strerror(errno));
	}
}

/* A thread that posts until it is stopped. */
struct poster {
	struct siw_rqe *queue;
	size_t depth;
	atomic_bool stop;
};

/* Posts by a system call instead of libsiw, which blocks posts while it changes the state. */
static void *keep_posting(void *arg)
{
	struct poster *p = arg;
	size_t i;

	while (!atomic_load(&p->stop))
		for (i = 0; i < p->depth; i++)
			atomic_fetch_or((_Atomic uint16_t *)&p->queue[i].flags, SIW_WQE_VALID);
	return NULL;
}

static void stay_on(pthread_t thread, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	/* Fails on a machine with one processor. */
	pthread_setaffinity_np(thread, sizeof(set), &set);
}

/* The longest ring that is not among @old. */
static struct ring longest_new(const struct ring *old, int n)
{
	struct ring rings[MAX_RINGS], best = { 0 };
	int i, j, count = find_rings(rings);

	for (i = 0; i < count; i++) {
		for (j = 0; j < n && old[j].at != rings[i].at; j++)
			;
		if (j == n && rings[i].size > best.size)
			best = rings[i];
	}
	return best;
}

static int change(struct ibv_qp *qp, enum ibv_qp_state to)
{
	struct ibv_qp_attr attr = { .qp_state = to };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	if (ibv_query_qp(qp, &attr, IBV_QP_STATE, &init))
		fail("ibv_query_qp");
	return attr.qp_state;
}

/*
 * Receives are posted without a system call, and the kernel cannot wait for ever for their end. The queue is
 * long, so that it does not get empty while the posting thread does not run for some milliseconds.
 */
#define DEPTH 16384

void reset_against_posts(void)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct bed bed = bed_open(NULL);
	struct poster poster = { 0 };
	struct ring old[MAX_RINGS], queue;
	int tries, err = 0, count = find_rings(old);
	pthread_t thread;
	struct ibv_qp *qp;
	struct ibv_cq *cq;

	cq = ibv_create_cq(bed.p.a.pd->context, 1024, NULL, NULL, 0);
	if (!cq)
		fail("ibv_create_cq");
	init.send_cq = cq;
	init.recv_cq = cq;
	qp = ibv_create_qp(bed.p.a.pd, &init);
	if (!qp || change(qp, IBV_QPS_ERR))
		fail("no queue pair in ERR");
	/* The ring of completions is shorter: 1024 times 32 octets. */
	queue = longest_new(old, count);
	poster.queue = (struct siw_rqe *)queue.at;
	poster.depth = queue.size / sizeof(*poster.queue);
	if (poster.depth < DEPTH)
		fail("the longest new ring has %zu octets", queue.size);
	if (pthread_create(&thread, NULL, keep_posting, &poster))
		fail("pthread_create");
	stay_on(pthread_self(), 0);
	stay_on(thread, 1);
	while (!(atomic_load((_Atomic uint16_t *)&poster.queue[poster.depth - 1].flags) & SIW_WQE_VALID))
		sched_yield();
	/*
	 * On a busy machine the queue may get empty all the same, and RESET succeeds. In both cases the call
	 * returns, and its result agrees with the queue pair's state.
	 */
	for (tries = 0; tries < 20 && !err; tries++) {
		err = change(qp, IBV_QPS_RESET);
		if (err && err != EBUSY)
			fail("RESET, against posts without end: %s", strerror(err));
		if (state_of(qp) != (err ? IBV_QPS_ERR : IBV_QPS_RESET))
			fail("state %d after RESET, which said: %s", state_of(qp), strerror(err));
		if (!err && change(qp, IBV_QPS_ERR))
			fail("RESET, and no way from there to ERR");
	}
	printf("%s at try %d\n", err ? "EBUSY" : "never EBUSY, the last time", tries);
	atomic_store(&poster.stop, true);
	pthread_join(thread, NULL);
	err = change(qp, IBV_QPS_RESET);
	if (err || state_of(qp) != IBV_QPS_RESET)
		fail("RESET, when the posts have ended: %s", strerror(err));
	if (ibv_destroy_qp(qp) || ibv_destroy_cq(cq))
		fail("the queue pair cannot be destroyed");
	bed_close(&bed);
}
