// SPDX-License-Identifier: GPL-2.0
/*
 * Connects queue pairs of other processes. rdma_connect() and rdma_accept() take the number of a queue pair
 * from any process: without a check, another user's process could connect it. Allowed are the process that
 * made the queue pair, processes of the same user, and those with CAP_SYS_ADMIN. A later process with the
 * maker's process number is refused.
 *
 * usage: foreign ADDRESS users              processes that may, and may not, connect a process's queue pair
 *        foreign ADDRESS kernel NUMBER      a process may not connect one that the kernel has made
 *        foreign ADDRESS destroy [THREADS]  destruction while others try to connect (foreign_destroy.c)
 *
 * A file of rdma_cm works only for the user that opened it, so each process opens its own after it has
 * changed its user.
 */
#include "foreign.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534
#define SOMEBODY 65533

enum role { ROOT, ROOT_TOO, ONE, ONE_TOO, OTHER, FALLEN, MOUNTER, HEIR, ROLES };
enum request { MAKE, DESTROY, CONNECT, ACCEPT, BECOME, LEAVE };

struct job {
	enum request what;
	uint32_t arg;		/* a number of a queue pair, or of a user */
};

struct answer {
	int err;
	uint32_t number;
};

/* A process that executes commands. */
static struct worker {
	const char *name;
	uid_t uid;
	int fd;
	pid_t pid;
} workers[ROLES] = {
	[ROOT] = { "root", 0, -1, 0 },
	[ROOT_TOO] = { "root in another process", 0, -1, 0 },
	[ONE] = { "a user", NOBODY, -1, 0 },
	[ONE_TOO] = { "the same user in another process", NOBODY, -1, 0 },
	[OTHER] = { "another user", SOMEBODY, -1, 0 },
	[FALLEN] = { "a process that is not root any more", 0, -1, 0 },
	[MOUNTER] = { "another user that may mount", SOMEBODY, -1, 0 },
	[HEIR] = { "another user, in the next process of that number", SOMEBODY, -1, 0 },
};

int factor(void)
{
	const char *text = getenv("RSIW_TIME_FACTOR");

	return text ? atoi(text) : 1;
}

struct ibv_qp *lone_qp(struct ibv_context *context, struct ibv_cq **cq)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_qp *qp;

	*cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	attr.send_cq = attr.recv_cq = *cq;
	qp = pd && *cq ? ibv_create_qp(pd, &attr) : NULL;
	if (!qp)
		fail("no queue pair: %s", strerror(errno));
	return qp;
}

void lone_qp_end(struct ibv_qp *qp, struct ibv_cq *cq)
{
	struct ibv_pd *pd = qp->pd;

	if (ibv_destroy_qp(qp) || ibv_destroy_cq(cq) || ibv_dealloc_pd(pd))
		fail("something is left of a queue pair: %s", strerror(errno));
}

static void become(uid_t uid)
{
	if (uid && (setgroups(0, NULL) || setgid(uid) || setuid(uid)))
		fail("cannot become user %u: %s", uid, strerror(errno));
}

/* Becomes another user, and keeps one capability. */
static void become_mounter(uid_t uid)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { 0 };

	if (prctl(PR_SET_KEEPCAPS, 1))
		fail("cannot keep a right: %s", strerror(errno));
	become(uid);
	data[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective = CAP_TO_MASK(CAP_SYS_ADMIN);
	data[CAP_TO_INDEX(CAP_SYS_ADMIN)].permitted = CAP_TO_MASK(CAP_SYS_ADMIN);
	if (syscall(SYS_capset, &header, data))
		fail("cannot have a right: %s", strerror(errno));
}

/* Forks a process with the process number @number; 0: any. */
static pid_t fork_as(pid_t number)
{
	struct clone_args args = {
		.exit_signal = SIGCHLD,
		.set_tid = number ? (uintptr_t)&number : 0, .set_tid_size = number ? 1 : 0,
	};

	return syscall(SYS_clone3, &args, sizeof(args));
}

/* Ends, but leaves a child that keeps its files open until the commanding process ends. */
static void leave(int fd)
{
	struct answer answer = { 0 };
	pid_t pid = fork();

	if (!pid) {
		alarm(120 * factor());
		while (read(fd, &answer, sizeof(answer)) > 0)
			;
	} else {
		answer.err = pid < 0;
		if (write(fd, &answer, sizeof(answer)) < 0)
			_exit(1);
	}
	_exit(0);
}

/* Waits for a connection request; ignores other events. */
static struct rdma_cm_id *requested(struct rdma_event_channel *events)
{
	struct pollfd fd = { .fd = events->fd, .events = POLLIN };
	struct rdma_cm_event *event;
	struct rdma_cm_id *id = NULL;

	while (!id) {
		if (poll(&fd, 1, WAIT_MS * factor()) != 1 || rdma_get_cm_event(events, &event))
			fail("no request came");
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
			id = event->id;
		rdma_ack_cm_event(event);
	}
	return id;
}

/* The result of rdma_accept() with the number of a queue pair; the process is its own peer. */
static int accept_as(struct rdma_event_channel *events, struct sockaddr_in at, uint32_t number)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .qp_num = number };
	struct rdma_cm_id *listener, *client, *asked;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	int err;

	at.sin_port = 0;
	listener = listen_somewhere(events, (struct sockaddr *)&at, 4);
	if (!listener)
		fail("no listener: %s", strerror(errno));
	at.sin_port = rdma_get_src_port(listener);
	client = ready_to_connect(events, &at);
	qp = lone_qp(client->verbs, &cq);
	err = connect_as(client, qp->qp_num);
	if (err)
		fail("its own queue pair does not connect: %s", strerror(err));
	asked = requested(events);
	err = rdma_accept(asked, &param) ? errno : 0;
	rdma_destroy_id(asked);
	lone_qp_end(qp, cq);
	rdma_destroy_id(client);
	rdma_destroy_id(listener);
	return err;
}

static void serve(int fd, struct sockaddr_in *silent)
{
	struct rdma_event_channel *events = rdma_create_event_channel();
	struct rdma_cm_id *own = NULL, *pending = NULL;
	struct ibv_qp *qp = NULL;
	struct ibv_cq *cq = NULL;
	struct answer answer;
	struct job job;

	while (events && read(fd, &job, sizeof(job)) == sizeof(job)) {
		answer = (struct answer){ 0 };
		/* The queue pair is destroyed first: the identifier's destruction would wait for an answer. */
		if (pending && job.what != DESTROY) {
			rdma_destroy_id(pending);
			pending = NULL;
		}
		switch (job.what) {
		case MAKE:
			own = own ? own : ready_to_connect(events, silent);
			qp = lone_qp(own->verbs, &cq);
			answer.number = qp->qp_num;
			break;
		case DESTROY:
			lone_qp_end(qp, cq);
			qp = NULL;
			break;
		case CONNECT:
			pending = ready_to_connect(events, silent);
			answer.err = connect_as(pending, job.arg);
			break;
		case ACCEPT:
			answer.err = accept_as(events, *silent, job.arg);
			break;
		case BECOME:
			become(job.arg);
			events = rdma_create_event_channel();
			break;
		case LEAVE:
			leave(fd);
		}
		if (write(fd, &answer, sizeof(answer)) != sizeof(answer))
			break;
	}
	if (qp)
		ibv_destroy_qp(qp);
	exit(!events);
}

/* Forks @w, with the process number @number, before any file of RDMA is open. @w ends with its parent. */
static void start(struct worker *w, struct sockaddr_in *silent, pid_t number)
{
	struct timeval limit = { .tv_sec = 30 * factor() };
	int ends[2], i;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		fail("socketpair: %s", strerror(errno));
	w->pid = fork_as(number);
	if (w->pid < 0)
		fail("no process %d: %s", number, strerror(errno));
	if (!w->pid) {
		close(ends[0]);
		for (i = 0; i < ROLES; i++)
			close(workers[i].fd);
		if (w == &workers[MOUNTER])
			become_mounter(w->uid);
		else
			become(w->uid);
		serve(ends[1], silent);
	}
	close(ends[1]);
	w->fd = ends[0];
	setsockopt(w->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
}

static struct answer tell(enum role who, enum request what, uint32_t arg)
{
	struct job job = { what, arg };
	struct answer answer;

	if (send(workers[who].fd, &job, sizeof(job), MSG_NOSIGNAL) != sizeof(job) ||
	    read(workers[who].fd, &answer, sizeof(answer)) != sizeof(answer))
		fail("%s: ended, or does not answer to request %d", workers[who].name, what);
	return answer;
}

/* Both calls by the process @who, with the number of a fresh queue pair of @owner each, or with @number. */
static void check(enum role owner, enum role who, int expected, uint32_t number)
{
	static const char *const call[] = { "rdma_connect()", "rdma_accept()" };
	const char *whose = number && owner == ROOT ? "the kernel" : workers[owner].name;
	int i, err;

	for (i = 0; i < 2; i++) {
		uint32_t of = number ? number : tell(owner, MAKE, 0).number;

		if (owner == FALLEN)
			tell(owner, BECOME, NOBODY);
		err = tell(who, i ? ACCEPT : CONNECT, of).err;
		printf("%s with a queue pair of %s, by %s: %s\n", call[i], whose, workers[who].name,
		       err ? strerror(err) : "taken");
		if (err != expected)
			fail("that was to be %s", expected ? strerror(expected) : "taken");
		/* The process has changed its user, and cannot change back for a second queue pair. */
		if (owner == FALLEN)
			return;
		if (!number)
			tell(owner, DESTROY, 0);
	}
}

/* Another process has the maker's number, while a child still has the queue pair open. */
static void inherit(struct sockaddr_in *silent)
{
	uint32_t of = tell(ONE, MAKE, 0).number;

	if (tell(ONE, LEAVE, 0).err || waitpid(workers[ONE].pid, NULL, 0) != workers[ONE].pid)
		fail("%s does not leave", workers[ONE].name);
	start(&workers[HEIR], silent, workers[ONE].pid);
	check(ONE, HEIR, EINVAL, of);
	if (tell(ROOT, CONNECT, of).err)
		fail("that queue pair is not there any more, or not free");
}

int main(int argc, char **argv)
{
	static const struct {
		enum role owner, who;
		int err;
	} cases[] = {
		{ ROOT, ROOT, 0 }, { ROOT, ROOT_TOO, 0 }, { ROOT, ONE, EINVAL }, { ROOT, OTHER, EINVAL },
		{ ONE, ONE, 0 }, { ONE, ONE_TOO, 0 }, { ONE, ROOT, 0 }, { ONE, OTHER, EINVAL },
		{ FALLEN, FALLEN, 0 }, { ONE, MOUNTER, 0 },
	};
	struct sockaddr_in silent;
	unsigned int i;

	if (argc < 3)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	silent = address_of(argv[1]);
	be_silent(&silent);
	if (!strcmp(argv[2], "destroy")) {
		destroy_under_fire(&silent, argc > 3 ? atoi(argv[3]) : 24);
		return 0;
	}
	for (i = 0; i < HEIR; i++)
		start(&workers[i], &silent, 0);
	if (argc > 3) {
		check(ROOT, ONE, EINVAL, strtoul(argv[3], NULL, 0));
		return 0;
	}
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		check(cases[i].owner, cases[i].who, cases[i].err, 0);
	inherit(&silent);
	return 0;
}
