// SPDX-License-Identifier: GPL-2.0
/*
 * Queue pairs are destroyed while threads of another process try to connect them without end. Each call holds
 * a reference until it is refused, so with many calls the queue pair always has a reference. The destruction
 * must not wait for all of these calls.
 *
 * No signal ends the destruction. If the destruction takes too long, the other process is killed, and the
 * failure is printed when the call returns.
 */
#include "foreign.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 20
#define LIMIT 5.0		/* seconds for one destroy */
#define CALLS 500		/* refused calls before a destroy */

/* Memory shared by both processes. */
struct shared {
	_Atomic uint32_t number;	/* of the victim; 0: none yet */
	_Atomic uint32_t ready;		/* threads that have begun */
	_Atomic uint64_t calls;
	_Atomic int answer;		/* one that is not EINVAL; -1: a call was let in */
};

static struct shared *shared;
static struct sockaddr_in *peer;

static void *ask_on(void *arg)
{
	struct rdma_cm_id *id = ready_to_connect(arg, peer);
	uint32_t number;
	int err;

	shared->ready++;
	for (;;) {
		number = shared->number;
		if (!number) {
			usleep(1000);
			continue;
		}
		err = connect_as(id, number);
		if (err != EINVAL)
			shared->answer = err ? err : -1;
		shared->calls++;
	}
	return NULL;
}

/* The other process shares no files with this one, which therefore opens its own later. */
static pid_t begin_to_ask(int threads)
{
	struct rdma_event_channel *events;
	pid_t parent = getpid(), pid = fork();
	pthread_t thread;
	int i;

	if (pid < 0)
		fail("fork: %s", strerror(errno));
	if (pid)
		return pid;
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
		_exit(1);
	events = rdma_create_event_channel();
	if (!events)
		fail("no rdma_cm");
	for (i = 0; i < threads; i++)
		if (pthread_create(&thread, NULL, ask_on, events))
			fail("pthread_create");
	for (;;)
		pause();
}

/* Waits until @more calls have returned. */
static void await_calls(uint64_t more)
{
	uint64_t from = shared->calls;
	double end = now() + 30 * factor();

	while (shared->calls < from + more) {
		if (now() > end)
			fail("the other process asked %lu times of %lu", (unsigned long)(shared->calls - from),
			     (unsigned long)more);
		usleep(1000);
	}
	if (shared->answer)
		fail("a call of the other process for what is taken: %s",
		     shared->answer < 0 ? "let in" : strerror(shared->answer));
}

struct watch {
	pid_t other;
	atomic_int over;
	int late;
};

static void *watch(void *arg)
{
	struct watch *w = arg;
	double end = now() + LIMIT * factor();

	while (!w->over) {
		if (!w->late && now() > end) {
			w->late = 1;
			kill(w->other, SIGKILL);
		}
		usleep(1000);
	}
	return NULL;
}

/* Destroys a queue pair that is connecting, or one that is connected. */
static void one_round(int round, pid_t other, struct rdma_event_channel *events)
{
	struct pair_options options = pair_defaults();
	struct watch w = { .other = other };
	struct rdma_cm_id *id = NULL;
	char text[INET_ADDRSTRLEN];
	struct pair p = { 0 };
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	pthread_t thread;
	double begun;
	int err;

	if (round & 1) {
		inet_ntop(AF_INET, &peer->sin_addr, text, sizeof(text));
		if (pair_open(&p, NULL, text, &options))
			fail("round %d: no connection", round);
		qp = p.a.qp;
	} else {
		id = ready_to_connect(events, peer);
		qp = lone_qp(id->verbs, &cq);
		err = connect_as(id, qp->qp_num);
		if (err)
			fail("round %d: the owner's own connect: %s", round, strerror(err));
	}
	shared->number = qp->qp_num;
	await_calls(CALLS);
	if (pthread_create(&thread, NULL, watch, &w))
		fail("pthread_create");
	begun = now();
	if (id) {
		lone_qp_end(qp, cq);
	} else {
		rdma_destroy_qp(p.a.id);
		p.a.qp = NULL;
	}
	w.over = 1;
	pthread_join(thread, NULL);
	if (w.late)
		fail("round %d: destroying a queue pair that %s was over after %.1f s, when the process that asks for it was killed",
		     round, id ? "connects" : "is connected", now() - begun);
	if (id)
		rdma_destroy_id(id);
	else
		pair_close(&p);
}

void destroy_under_fire(struct sockaddr_in *silent, int threads)
{
	struct rdma_event_channel *events;
	double end = now() + 60 * factor();
	pid_t other;
	int round;

	peer = silent;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		fail("no memory");
	other = begin_to_ask(threads);
	while (shared->ready < (uint32_t)threads) {
		if (waitpid(other, NULL, WNOHANG) || now() > end)
			fail("%u of %d threads of the other process have begun", shared->ready, threads);
		usleep(1000);
	}
	events = rdma_create_event_channel();
	if (!events)
		fail("no rdma_cm");
	for (round = 0; round < ROUNDS; round++)
		one_round(round, other, events);
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	printf("%d queue pairs destroyed, %lu calls\n", ROUNDS, (unsigned long)shared->calls);
}
