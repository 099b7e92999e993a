// SPDX-License-Identifier: GPL-2.0
/*
 * A real-time thread that deregisters a region under traffic.
 *
 *   fifo ADDRESS CPU ROUNDS
 *
 * One thread posts Writes to a region, and receiving pins that region. A thread of a higher real-time
 * priority deregisters the region on the same CPU, at any time, and preempts the holder of the pin. The
 * deregistration has to return in time, and nothing may be written to the memory afterwards (DDP-83).
 */
#define _GNU_SOURCE
#include "pair.h"
#include "rng.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIZE		(256 << 10)	/* octets of a Write */
#define UNDER_WAY	8
#define LOW		10
#define HIGH		50
#define LONGEST_DELAY	20000		/* us, from the first completion to the deregistration */
#define LIMIT_SECONDS	2.0		/* of one deregistration: the copies of all pins take milliseconds */
#define STEP_SECONDS	20.0
#define MARK		0xa5

struct round {
	struct pair pair;
	struct ibv_mr *source, *target;
	uint8_t *from, *to;
	unsigned int delay_us;
	atomic_int flowing;	/* a Write has completed */
	atomic_int ended;	/* a Write has failed */
	double took;		/* seconds of the deregistration */
	int early;		/* it began before a Write had failed */
};

static void post(struct round *r)
{
	struct ibv_sge sge = { (uintptr_t)r->from, SIZE, r->source->lkey };
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1,
		.wr.rdma = { .remote_addr = (uintptr_t)r->to, .rkey = r->target->rkey },
	};

	must_post_send(&r->pair.a, &wr);
}

/* Posts Writes until the peer refuses one. Sleeps between polls, so that threads of the system can run. */
static void *writer(void *arg)
{
	struct round *r = arg;
	double end = now() + STEP_SECONDS;
	struct ibv_wc wc;
	int i, n;

	for (i = 0; i < UNDER_WAY; i++)
		post(r);
	while (now() < end) {
		while ((n = ibv_poll_cq(r->pair.a.send_cq, 1, &wc)) == 1) {
			if (wc.status != IBV_WC_SUCCESS) {
				atomic_store(&r->ended, 1);
				return NULL;
			}
			atomic_store(&r->flowing, 1);
			post(r);
		}
		if (n < 0)
			fail("ibv_poll_cq: %d", n);
		usleep(200);
	}
	fail("no Write has failed within %.0f s of the deregistration", STEP_SECONDS);
}

static void *revoker(void *arg)
{
	struct round *r = arg;
	double begun, end = now() + STEP_SECONDS;

	while (!atomic_load(&r->flowing)) {
		if (now() > end)
			fail("no Write has completed within %.0f s", STEP_SECONDS);
		usleep(200);
	}
	usleep(r->delay_us);
	r->early = !atomic_load(&r->ended);
	begun = now();
	if (ibv_dereg_mr(r->target))
		fail("ibv_dereg_mr");
	r->took = now() - begun;
	memset(r->to, MARK, SIZE);
	return NULL;
}

static pthread_t start(void *(*body)(void *), struct round *r, int priority, int cpu)
{
	struct sched_param param = { .sched_priority = priority };
	pthread_attr_t attr;
	pthread_t thread;
	cpu_set_t set;
	int err;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	pthread_attr_init(&attr);
	err = pthread_attr_setaffinity_np(&attr, sizeof(set), &set) ?:
	      pthread_attr_setschedpolicy(&attr, SCHED_FIFO) ?:
	      pthread_attr_setschedparam(&attr, &param) ?:
	      pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED) ?:
	      pthread_create(&thread, &attr, body, r);
	if (err)
		fail("a real-time thread on CPU %d: %s", cpu, strerror(err));
	pthread_attr_destroy(&attr);
	return thread;
}

int main(int argc, char **argv)
{
	struct pair_options options = pair_defaults();
	struct round r = { .from = NULL };
	pthread_t write_thread, revoke_thread;
	double longest = 0;
	int cpu, rounds, i, j;

	if (argc != 4)
		fail("usage: fifo ADDRESS CPU ROUNDS");
	cpu = atoi(argv[2]);
	rounds = atoi(argv[3]);
	r.from = aligned_alloc(4096, SIZE);
	r.to = aligned_alloc(4096, SIZE);
	if (!r.from || !r.to)
		fail("no memory");
	memset(r.from, 1, SIZE);
	rng_state = cpu + 1;
	for (i = 0; i < rounds; i++) {
		if (pair_open(&r.pair, NULL, argv[1], &options))
			fail("round %d: no connection", i);
		r.source = must_register(r.pair.a.pd, r.from, SIZE, IBV_ACCESS_LOCAL_WRITE);
		r.target = must_register(r.pair.b.pd, r.to, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		r.delay_us = below(LONGEST_DELAY);
		atomic_store(&r.flowing, 0);
		atomic_store(&r.ended, 0);
		revoke_thread = start(revoker, &r, HIGH, cpu);
		write_thread = start(writer, &r, LOW, cpu);
		pthread_join(revoke_thread, NULL);
		pthread_join(write_thread, NULL);
		if (!r.early)
			fail("round %d: a Write failed before the deregistration", i);
		if (r.took > LIMIT_SECONDS)
			fail("round %d: the deregistration took %.3f s", i, r.took);
		if (r.took > longest)
			longest = r.took;
		ibv_dereg_mr(r.source);
		pair_close(&r.pair);
		for (j = 0; j < SIZE; j++)
			if (r.to[j] != MARK)
				fail("round %d: octet %d was written after the deregistration", i, j);
	}
	printf("ok: %d deregistrations under traffic on CPU %d, the longest %.3f ms\n", rounds, cpu, longest * 1e3);
	return 0;
}
