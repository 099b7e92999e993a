// SPDX-License-Identifier: GPL-2.0
/* Connecting a queue pair by its number alone; see ask.h. */
#include "ask.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct sockaddr_in address_of(const char *text)
{
	struct sockaddr_in at = { .sin_family = AF_INET };

	if (inet_pton(AF_INET, text, &at.sin_addr) != 1)
		exit(2);
	return at;
}

int be_silent(struct sockaddr_in *at)
{
	socklen_t len = sizeof(*at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)at, len) || listen(fd, 8) ||
	    getsockname(fd, (struct sockaddr *)at, &len))
		fail("no TCP listener: %s", strerror(errno));
	return fd;
}

struct rdma_cm_id *ready_to_connect(struct rdma_event_channel *events, struct sockaddr_in *to)
{
	struct rdma_cm_id *id;

	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(id, NULL, (struct sockaddr *)to, WAIT_MS) || rdma_resolve_route(id, WAIT_MS) ||
	    rdma_migrate_id(id, events))
		fail("no way to the address: %s", strerror(errno));
	return id;
}

int connect_as(struct rdma_cm_id *id, uint32_t number)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .qp_num = number };

	return rdma_connect(id, &param) ? errno : 0;
}
