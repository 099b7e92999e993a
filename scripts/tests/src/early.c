// SPDX-License-Identifier: GPL-2.0
/*
 * Connects a queue pair that is still being made. A process knows the next number, and can stall the verb that
 * makes the queue pair: userfaultfd(2) holds back a page of the response. Until the verb returns, no call may
 * find that number: iw_cm drops its references through an object that is not filled in yet. After a lost
 * reference the destruction of the queue pair would wait for good, in a sleep without signals.
 *
 * usage: early ADDRESS made|failed
 *
 *   made    the response is written later, and the queue pair is destroyed while it connects
 *   failed  the response fails, so that the verb itself destroys the queue pair
 *
 * Status 4: this kernel has no userfaultfd. The caller has to detect a destruction that hangs, which
 * this program cannot end.
 */
#include "ask.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/siw-abi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096
/* Two calls: if the first one succeeds, the second one fails, since the queue pair is connecting. */
#define BIRDS 2

/* The verb, in a thread of its own. */
struct making {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ib_uverbs_create_qp_resp *answer;
	int err;
};

/* The next write to @page is reported, and waits for this program. */
static int watch(uint8_t *page)
{
	struct uffdio_register missing = {
		.range = { .start = (uintptr_t)page, .len = PAGE },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	struct uffdio_api api = { .api = UFFD_API };
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd < 0 && errno == ENOSYS)
		exit(4);
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &missing))
		fail("userfaultfd: %s", strerror(errno));
	return fd;
}

/* Waits until the verb is stalled. */
static void await_fault(int faults)
{
	struct pollfd fd = { .fd = faults, .events = POLLIN };
	struct uffd_msg message = { 0 };

	if (poll(&fd, 1, WAIT_MS) != 1)
		fail("create_qp does not answer into the page that is missing");
	if (read(faults, &message, sizeof(message)) != sizeof(message) || message.event != UFFD_EVENT_PAGEFAULT)
		fail("no page fault, but event %#x", message.event);
}

/* Lets the verb go on: with a page, or without any. */
static void let_go(int faults, uint8_t *page, int with_page)
{
	struct uffdio_range range = { .start = (uintptr_t)page, .len = PAGE };
	struct uffdio_zeropage zero = { .range = range };

	if (with_page ? ioctl(faults, UFFDIO_ZEROPAGE, &zero) :
			mprotect(page, PAGE, PROT_NONE) || ioctl(faults, UFFDIO_UNREGISTER, &range))
		fail("the stalled thread can not be let go: %s", strerror(errno));
}

/* Makes the queue pair as libibverbs does, with the response at the address of this program's choice. */
static void *make(void *arg)
{
	struct making *m = arg;
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_create_qp command;
	} __attribute__((packed)) message = {
		.header = {
			.command = IB_USER_VERBS_CMD_CREATE_QP,
			.in_words = sizeof(message) / 4,
			.out_words = (sizeof(*m->answer) + sizeof(struct siw_uresp_create_qp)) / 4,
		},
		.command = {
			.response = (uintptr_t)m->answer,
			.pd_handle = m->pd->handle,
			.send_cq_handle = m->cq->handle,
			.recv_cq_handle = m->cq->handle,
			.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1,
			.qp_type = IBV_QPT_RC,
		},
	};

	m->err = write(m->pd->context->cmd_fd, &message, sizeof(message)) < 0 ? errno : 0;
	return NULL;
}

static void destroy(struct ibv_context *context, uint32_t handle)
{
	struct ib_uverbs_destroy_qp_resp answer;
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_destroy_qp command;
	} __attribute__((packed)) message = {
		.header = {
			.command = IB_USER_VERBS_CMD_DESTROY_QP,
			.in_words = sizeof(message) / 4,
			.out_words = sizeof(answer) / 4,
		},
		.command = { .response = (uintptr_t)&answer, .qp_handle = handle },
	};

	if (write(context->cmd_fd, &message, sizeof(message)) < 0)
		fail("the queue pair can not be destroyed: %s", strerror(errno));
}

/* Numbers are given out in a circle of all those of 24 bits but 0, 1 and the last (qpns.py). */
static uint32_t next_number(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);
	uint32_t number = qp ? qp->qp_num : 0;

	if (!qp || ibv_destroy_qp(qp))
		fail("no ordinary queue pair: %s", strerror(errno));
	return number == 0xfffffe ? 2 : number + 1;
}

int main(int argc, char **argv)
{
	struct rdma_event_channel *events;
	struct sockaddr_in silent;
	struct rdma_cm_id *id[BIRDS];
	struct making m = { 0 };
	int i, faults, listener, early[BIRDS], late, made;
	pthread_t thread;
	uint32_t number;
	uint8_t *page;

	if (argc != 3)
		return 2;
	silent = address_of(argv[1]);
	made = !strcmp(argv[2], "made");
	setvbuf(stdout, NULL, _IOLBF, 0);
	page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	events = rdma_create_event_channel();
	if (page == MAP_FAILED || !events)
		fail("no memory, or no rdma_cm");
	/* The core's part of the response ends at the missing page, where the driver's part begins. */
	page += PAGE;
	m.answer = (struct ib_uverbs_create_qp_resp *)page - 1;
	faults = watch(page);
	listener = be_silent(&silent);
	for (i = 0; i < BIRDS; i++)
		id[i] = ready_to_connect(events, &silent);
	m.pd = ibv_alloc_pd(id[0]->verbs);
	m.cq = ibv_create_cq(id[0]->verbs, 16, NULL, NULL, 0);
	if (!m.pd || !m.cq)
		fail("no protection domain or completion queue");
	number = next_number(m.pd, m.cq);

	if (pthread_create(&thread, NULL, make, &m))
		fail("pthread_create");
	await_fault(faults);
	for (i = 0; i < BIRDS; i++) {
		early[i] = connect_as(id[i], number);
		printf("early connect: %s\n", early[i] ? strerror(early[i]) : "taken");
	}
	printf("the verb goes on\n");
	let_go(faults, page, made);
	pthread_join(thread, NULL);
	printf("create_qp: %s\n", m.err ? strerror(m.err) : "made");
	/* The control: after the verb has returned, the same call finds the queue pair. */
	late = early[0] ? connect_as(id[0], number) : 0;
	printf("late connect: %s\n", late ? strerror(late) : "taken");
	if (!m.err) {
		printf("destroying it\n");
		destroy(m.pd->context, m.answer->qp_handle);
	}
	printf("letting go of the rest\n");
	close(listener);
	for (i = 0; i < BIRDS; i++)
		rdma_destroy_id(id[i]);
	if (ibv_destroy_cq(m.cq) || ibv_dealloc_pd(m.pd))
		fail("something is left of the queue pair: %s", strerror(errno));

	if (m.err != (made ? 0 : EFAULT))
		fail("create_qp: %s", m.err ? strerror(m.err) : "succeeded without a place for its answer");
	if (made && m.answer->qpn != number)
		fail("the number is %u and not the next one, %u", m.answer->qpn, number);
	for (i = 0; i < BIRDS; i++)
		if (early[i] != EINVAL)
			fail("connect %d to what is still being made: %s", i, early[i] ? strerror(early[i]) : "taken");
	if (late != (made ? 0 : EINVAL))
		fail("connect afterwards: %s", late ? strerror(late) : "taken");
	return 0;
}
