// SPDX-License-Identifier: GPL-2.0
/*
 * The verbs end of the memory test: it accepts connections on one port, and writes to peers that
 * read nothing. One line in, one line out:
 *
 *   unread ADDRESS PORT            the program; prints "ok" when it listens
 *   accept COUNT                   -> made STAG ADDRESS      memory that all peers may read
 *   write SIZE COUNT               -> ok                     COUNT Writes on each connection
 *   leave                          -> ok                     all are disconnected, and their queue pairs destroyed
 *
 * SIZE is at most 64 KiB. The peer's STag and offset are 1 and 0, since a peer that reads nothing does
 * not check them.
 */
#include "pair.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEPTH 512
#define MOST 256

static uint8_t memory[65536];
static struct rdma_event_channel *events;
static struct rdma_cm_id *listener, *ids[MOST];
static struct ibv_mr *mr;
static struct ibv_cq *cq;
static int made;

static void accept_one(struct rdma_cm_id *id)
{
	struct rdma_conn_param param = { .responder_resources = 16, .initiator_depth = 16 };
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	if (!mr) {
		struct ibv_pd *pd = ibv_alloc_pd(id->verbs);

		if (!pd)
			fail("ibv_alloc_pd");
		mr = must_register(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
		/* No request is signaled, so the queue has completions of flushed requests only. */
		cq = ibv_create_cq(id->verbs, MOST * 16, NULL, NULL, 0);
		if (!cq)
			fail("ibv_create_cq");
	}
	init.send_cq = init.recv_cq = cq;
	if (rdma_create_qp(id, mr->pd, &init))
		fail("rdma_create_qp");
	if (rdma_accept(id, &param))
		fail("rdma_accept");
	ids[made++] = id;
}

/* Accepts so many connections; the next request may come before the last one is established. */
static void accept_all(int count)
{
	struct rdma_cm_event *event;
	int established = 0;

	while (established < count) {
		if (rdma_get_cm_event(events, &event))
			fail("rdma_get_cm_event");
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST && made < MOST)
			accept_one(event->id);
		else if (event->event == RDMA_CM_EVENT_ESTABLISHED)
			established++;
		else
			fail("event %s", rdma_event_str(event->event));
		rdma_ack_cm_event(event);
	}
}

static void write_one(struct rdma_cm_id *id, uint32_t size)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = size, .lkey = mr->lkey };
	struct ibv_send_wr *bad, wr = { .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1 };

	wr.wr.rdma.rkey = 1;
	if (ibv_post_send(id->qp, &wr, &bad))
		fail("ibv_post_send");
}

static void leave(void)
{
	int i;

	for (i = 0; i < made; i++)
		if (rdma_disconnect(ids[i]))
			fail("rdma_disconnect");
	for (i = 0; i < made; i++)
		rdma_destroy_qp(ids[i]);
}

static void listen_at(const char *address, int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };

	events = rdma_create_event_channel();
	if (!events || inet_pton(AF_INET, address, &at.sin_addr) != 1)
		fail("no event channel, or no address");
	if (rdma_create_id(events, &listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(listener, (struct sockaddr *)&at) || rdma_listen(listener, MOST))
		fail("cannot listen");
}

int main(int argc, char **argv)
{
	char line[128];
	int i, size, count;

	if (argc != 3)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	listen_at(argv[1], atoi(argv[2]));
	printf("ok\n");
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "accept %d", &count) == 1 && count <= MOST - made) {
			accept_all(count);
			printf("made %x %lx\n", mr->rkey, (unsigned long)memory);
		} else if (sscanf(line, "write %d %d", &size, &count) == 2 && size <= (int)sizeof(memory)) {
			/* The connections take turns, slowly, so that TCP sends each Write by itself. */
			while (count--) {
				for (i = 0; i < made; i++)
					write_one(ids[i], size);
				usleep(1000);
			}
			printf("ok\n");
		} else if (!strcmp(line, "leave\n")) {
			leave();
			printf("ok\n");
		} else {
			fail("what is '%s'", line);
		}
	}
	return 0;
}
