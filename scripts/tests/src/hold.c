// SPDX-License-Identifier: GPL-2.0
/*
 * Holds a device: context, PD, CQ, QP, SRQ, registered memory and a listening
 * id. Prints "ready", waits for the device's fatal event, prints "fatal", and
 * keeps the objects until it is killed or its standard input ends.
 *
 * usage: hold device [address]
 */
#include "pair.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct ibv_context *open_device(const char *name)
{
	struct ibv_context *context = NULL;
	struct ibv_device **list;
	int i;

	list = ibv_get_device_list(NULL);
	for (i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	if (!context)
		fail("no device %s", name);
	return context;
}

static void listen_at(const char *address)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(7999) };
	struct rdma_event_channel *events = rdma_create_event_channel();
	struct rdma_cm_id *id;

	if (inet_pton(AF_INET, address, &at.sin_addr) != 1)
		fail("address %s", address);
	if (!events || rdma_create_id(events, &id, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(id, (struct sockaddr *)&at) || rdma_listen(id, 4))
		fail("cannot listen at %s", address);
}

int main(int argc, char **argv)
{
	struct ibv_qp_init_attr qp_attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_async_event event;
	struct ibv_context *context;
	static char memory[8192];
	struct pollfd fd[2];
	struct ibv_pd *pd;

	if (argc < 2)
		return 2;
	context = open_device(argv[1]);
	pd = ibv_alloc_pd(context);
	if (!pd)
		fail("ibv_alloc_pd");
	must_register(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	qp_attr.send_cq = qp_attr.recv_cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	if (!qp_attr.send_cq || !ibv_create_qp(pd, &qp_attr) || !ibv_create_srq(pd, &srq_attr))
		fail("cannot make CQ, QP or SRQ");
	if (argc > 2)
		listen_at(argv[2]);
	printf("ready\n");
	fflush(stdout);

	fd[0] = (struct pollfd){ .fd = context->async_fd, .events = POLLIN };
	fd[1] = (struct pollfd){ .fd = STDIN_FILENO, .events = POLLIN };
	for (;;) {
		if (poll(fd, 2, -1) < 0)
			fail("poll");
		if (fd[1].revents && read(STDIN_FILENO, memory, 1) == 0)
			return 0;
		if (fd[0].revents) {
			if (ibv_get_async_event(context, &event))
				fail("ibv_get_async_event");
			printf("%s\n", event.event_type == IBV_EVENT_DEVICE_FATAL ? "fatal" : "other event");
			fflush(stdout);
			ibv_ack_async_event(&event);
		}
	}
}
