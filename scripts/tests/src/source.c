// SPDX-License-Identifier: GPL-2.0
/*
 * Connects twice from one source port to one server, as a program with several connections a path does.
 *
 *   source FROM PORT TO PORT          addresses of IPv4 or IPv6
 *
 * Prints, for each connection, the error of rdma_connect() (0: connected).
 */
#include <errno.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sockaddr_storage at(const char *ip, const char *port)
{
	const struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM };
	struct sockaddr_storage addr = { 0 };
	struct addrinfo *found;

	if (getaddrinfo(ip, port, &hints, &found))
		exit(2);
	memcpy(&addr, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	return addr;
}

/* Ends the program if the set-up of the test has failed. */
static void must(int status, const char *what)
{
	if (!status)
		return;
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

static void connect_from(struct sockaddr_storage from, struct sockaddr_storage to)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct rdma_conn_param param = { .initiator_depth = 1, .responder_resources = 1 };
	struct rdma_cm_id *id;
	int yes = 1;

	must(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
	must(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof(yes)),
	     "rdma_set_option");
	must(rdma_resolve_addr(id, (struct sockaddr *)&from, (struct sockaddr *)&to, 2000),
	     "rdma_resolve_addr");
	must(rdma_resolve_route(id, 2000), "rdma_resolve_route");
	must(rdma_create_qp(id, NULL, &attr), "rdma_create_qp");
	printf("%d\n", rdma_connect(id, &param) ? errno : 0);
}

int main(int argc, char **argv)
{
	if (argc != 5)
		return 2;
	for (int i = 0; i < 2; i++)
		connect_from(at(argv[1], argv[2]), at(argv[3], argv[4]));
	return 0;
}
