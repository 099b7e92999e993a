// SPDX-License-Identifier: GPL-2.0
/*
 * The verbs end of the wire peer's connections (scripts/tests/peer). Executes
 * commands from standard input, one line in, one line out. The answers show the
 * effect of the peer's octets on memory, completions and events.
 *
 *   listen ADDRESS PORT            -> ok
 *   connect ADDRESS PORT IRD ORD RECVS SIZE DATA  -> made QPN ARENA RW WO RO LOCAL FOREIGN
 *   event MS                       -> event NAME STATUS IRD ORD DATA | none
 *   accept IRD ORD RECVS SIZE DATA -> made ... | error ERRNO
 *   reject DATA                    -> ok | error ERRNO
 *   send ID LEN FLAGS              -> ok | error ERRNO      (FLAGS: f = fence, s = solicited, b = a bad local key, - = none)
 *   write|read ID STAG TO LEN      -> ok | error ERRNO      (local memory: the rw region; if longer, receive buffers)
 *   poll MS                        -> wc send|recv ID STATUS LEN | none
 *   arm all|solicited              -> ok                    (the receive CQ)
 *   notified MS                    -> yes | none
 *   mem OFFSET LEN, buffer N LEN   -> hexadecimal octets of the arena, of receive buffer N
 *   fill OCTET                     -> ok                    (the whole arena)
 *   state                          -> QP state
 *   async MS                       -> async NAME | none
 *   dereg                          -> ok | error ERRNO      (deregisters the rw region)
 *   disconnect                     -> ok
 *   close                          -> ok                    (destroys the connection's objects)
 *
 * DATA is hexadecimal, "-" for none; keys and addresses are hexadecimal.
 * The arena is 32 KiB of 0xa5. Its regions:
 *
 *   name      offset   length   remote rights
 *   rw          4099     5000   all
 *   wo         16384     4096   write
 *   ro         20480     4096   read
 *   local      24576     4096   none
 *   foreign    28672     4096   all, in another PD
 */
#include "victim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct rdma_event_channel *events;
static struct rdma_cm_id *listener;
static struct rdma_cm_id *pending;	/* a request not answered yet */

static int wait_fd(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, ms) == 1;
}

static int answer_errno(int err)
{
	if (err)
		printf("error %d\n", err > 0 ? err : errno);
	else
		printf("ok\n");
	return 0;
}

static int unhex(const char *text, uint8_t *out)
{
	unsigned int octet;
	int n = 0;

	if (!strcmp(text, "-"))
		return 0;
	while (n < 512 && sscanf(text + 2 * n, "%2x", &octet) == 1)
		out[n++] = octet;
	return n;
}

static void print_hex(const uint8_t *at, int len)
{
	while (len--)
		printf("%02x", *at++);
	printf("\n");
}

static void address(const char *text, int port, struct sockaddr_in *out)
{
	memset(out, 0, sizeof(*out));
	out->sin_family = AF_INET;
	out->sin_port = htons(port);
	if (inet_pton(AF_INET, text, &out->sin_addr) != 1)
		fail("address %s", text);
}

static int do_listen(const char *to, int port)
{
	struct sockaddr_in at;

	address(to, port, &at);
	return answer_errno(rdma_create_id(events, &listener, NULL, RDMA_PS_TCP) ||
			    rdma_bind_addr(listener, (struct sockaddr *)&at) || rdma_listen(listener, 64));
}

static void expect_event(enum rdma_cm_event_type kind)
{
	struct rdma_cm_event *event;

	if (!wait_fd(events->fd, 10000) || rdma_get_cm_event(events, &event))
		fail("no connection event");
	if (event->event != kind)
		fail("%s instead of %s", rdma_event_str(event->event), rdma_event_str(kind));
	rdma_ack_cm_event(event);
}

static void parameters(struct rdma_conn_param *param, int ird, int ord, const char *data)
{
	static uint8_t octets[512];

	memset(param, 0, sizeof(*param));
	param->responder_resources = ird;
	param->initiator_depth = ord;
	param->private_data_len = unhex(data, octets);
	param->private_data = octets;
}

static int do_connect(const char *to, int port, int ird, int ord, int recvs, int size, const char *data)
{
	struct rdma_conn_param param;
	struct rdma_cm_id *id;
	struct sockaddr_in at;

	address(to, port, &at);
	if (rdma_create_id(events, &id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(id, NULL, (struct sockaddr *)&at, 5000))
		return answer_errno(errno);
	expect_event(RDMA_CM_EVENT_ADDR_RESOLVED);
	if (rdma_resolve_route(id, 5000))
		return answer_errno(errno);
	expect_event(RDMA_CM_EVENT_ROUTE_RESOLVED);
	make(id, recvs, size);
	parameters(&param, ird, ord, data);
	if (rdma_connect(id, &param))
		return answer_errno(errno);
	print_made();
	return 0;
}

static int do_event(int ms)
{
	struct rdma_cm_event *event;

	if (!wait_fd(events->fd, ms) || rdma_get_cm_event(events, &event)) {
		printf("none\n");
		return 0;
	}
	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		if (pending)
			rdma_reject(pending, NULL, 0);
		pending = event->id;
	}
	printf("event %s %d %d %d ", rdma_event_str(event->event), event->status,
	       event->param.conn.responder_resources, event->param.conn.initiator_depth);
	if (event->param.conn.private_data && event->param.conn.private_data_len)
		print_hex(event->param.conn.private_data, event->param.conn.private_data_len);
	else
		printf("-\n");
	rdma_ack_cm_event(event);
	return 0;
}

static int do_accept(int ird, int ord, int recvs, int size, const char *data)
{
	struct rdma_conn_param param;
	struct rdma_cm_id *id = pending;

	if (!id)
		return answer_errno(ENOTCONN);
	pending = NULL;
	make(id, recvs, size);
	parameters(&param, ird, ord, data);
	if (rdma_accept(id, &param))
		return answer_errno(errno);
	print_made();
	return 0;
}

static int do_reject(const char *data)
{
	struct rdma_conn_param param;
	int err;

	if (!pending)
		return answer_errno(ENOTCONN);
	parameters(&param, 0, 0, data);
	err = rdma_reject(pending, param.private_data, param.private_data_len);
	rdma_destroy_id(pending);
	pending = NULL;
	return answer_errno(err);
}

static int do_post(enum ibv_wr_opcode opcode, int id, uint32_t stag, uint64_t to, uint32_t len, const char *flags)
{
	struct ibv_sge sge = { .addr = (uintptr_t)arena + 4099, .length = len, .lkey = rw->lkey };
	struct ibv_send_wr wr = {
		.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	if (len > rw->length) {
		sge.addr = (uintptr_t)buffers;
		sge.lkey = recv_mr->lkey;
	}
	if (strchr(flags, 'b'))
		sge.lkey ^= 0x100;
	wr.wr.rdma.remote_addr = to;
	wr.wr.rdma.rkey = stag;
	if (strchr(flags, 'f'))
		wr.send_flags |= IBV_SEND_FENCE;
	if (strchr(flags, 's'))
		wr.send_flags |= IBV_SEND_SOLICITED;
	return answer_errno(ibv_post_send(me.qp, &wr, &bad));
}

static int do_poll(int ms)
{
	double end = now() + ms / 1000.0;
	struct ibv_wc wc;

	do {
		if (ibv_poll_cq(me.recv_cq, 1, &wc) == 1) {
			printf("wc recv %d %d %d\n", (int)wc.wr_id, wc.status, wc.status ? 0 : (int)wc.byte_len);
			return 0;
		}
		if (ibv_poll_cq(me.send_cq, 1, &wc) == 1) {
			printf("wc send %d %d %d\n", (int)wc.wr_id, wc.status, wc.status ? 0 : (int)wc.byte_len);
			return 0;
		}
		usleep(1000);
	} while (now() < end);
	printf("none\n");
	return 0;
}

static int do_notified(int ms)
{
	struct ibv_cq *cq;
	void *context;

	if (!wait_fd(me.channel->fd, ms) || ibv_get_cq_event(me.channel, &cq, &context)) {
		printf("none\n");
		return 0;
	}
	ibv_ack_cq_events(cq, 1);
	printf("yes\n");
	return 0;
}

static int do_state(void)
{
	static const char *const names[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	if (ibv_query_qp(me.qp, &attr, IBV_QP_STATE, &init))
		return answer_errno(errno);
	printf("%s\n", attr.qp_state <= IBV_QPS_ERR ? names[attr.qp_state] : "?");
	return 0;
}

static int do_async(int ms)
{
	struct ibv_async_event event;

	if (!me.id || !wait_fd(me.id->verbs->async_fd, ms) || ibv_get_async_event(me.id->verbs, &event)) {
		printf("none\n");
		return 0;
	}
	printf("async %s\n", ibv_event_type_str(event.event_type));
	ibv_ack_async_event(&event);
	return 0;
}

static int do_dereg(void)
{
	int err = ibv_dereg_mr(rw);

	if (!err)
		rw = NULL;
	return answer_errno(err);
}

static int do_close(void)
{
	struct rdma_cm_event *event;

	unmake();
	/* An event of this id that is not acknowledged would block its destruction. */
	while (wait_fd(events->fd, 0) && !rdma_get_cm_event(events, &event)) {
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
			rdma_reject(event->id, NULL, 0);
		rdma_ack_cm_event(event);
	}
	if (me.id)
		rdma_destroy_id(me.id);
	memset(&me, 0, sizeof(me));
	return answer_errno(0);
}

static int serve(char *line)
{
	char text[64], data[1100];
	int a, b, c, d, e;
	unsigned long to;
	unsigned int key;

	if (sscanf(line, "listen %63s %d", text, &a) == 2)
		return do_listen(text, a);
	if (sscanf(line, "connect %63s %d %d %d %d %d %1099s", text, &a, &b, &c, &d, &e, data) == 7)
		return do_connect(text, a, b, c, d, e, data);
	if (sscanf(line, "event %d", &a) == 1)
		return do_event(a);
	if (sscanf(line, "accept %d %d %d %d %1099s", &a, &b, &c, &d, data) == 5)
		return do_accept(a, b, c, d, data);
	if (sscanf(line, "reject %1099s", data) == 1)
		return do_reject(data);
	if (sscanf(line, "send %d %d %63s", &a, &b, text) == 3)
		return do_post(IBV_WR_SEND, a, 0, 0, b, text);
	if (sscanf(line, "recv %d", &a) == 1 && a >= 0 && (size_t)(a + 1) * recv_size <= RECV_MAX)
		return answer_errno(post_recv(a));
	if (sscanf(line, "write %d %x %lx %d", &a, &key, &to, &b) == 4)
		return do_post(IBV_WR_RDMA_WRITE, a, key, to, b, "-");
	if (sscanf(line, "read %d %x %lx %d", &a, &key, &to, &b) == 4)
		return do_post(IBV_WR_RDMA_READ, a, key, to, b, "-");
	if (sscanf(line, "poll %d", &a) == 1)
		return do_poll(a);
	if (sscanf(line, "arm %63s", text) == 1)
		return answer_errno(ibv_req_notify_cq(me.recv_cq, !strcmp(text, "solicited")));
	if (sscanf(line, "notified %d", &a) == 1)
		return do_notified(a);
	if (sscanf(line, "mem %d %d", &a, &b) == 2 && a >= 0 && b >= 0 && a + b <= ARENA) {
		print_hex(arena + a, b);
		return 0;
	}
	if (sscanf(line, "buffer %d %d", &a, &b) == 2) {
		print_hex(buffers + (size_t)a * recv_size, b);
		return 0;
	}
	if (sscanf(line, "fill %d", &a) == 1) {
		memset(arena, a, ARENA);
		return answer_errno(0);
	}
	if (!strncmp(line, "state", 5))
		return do_state();
	if (sscanf(line, "async %d", &a) == 1)
		return do_async(a);
	if (!strncmp(line, "dereg", 5))
		return do_dereg();
	if (!strncmp(line, "disconnect", 10))
		return answer_errno(rdma_disconnect(me.id));
	if (!strncmp(line, "close", 5))
		return do_close();
	fail("cannot understand '%s'", line);
}

int main(void)
{
	char line[2048];

	setvbuf(stdout, NULL, _IOLBF, 0);
	events = rdma_create_event_channel();
	if (!events)
		fail("no rdma_cm");
	find_memory();
	while (fgets(line, sizeof(line), stdin))
		serve(line);
	do_close();
	if (listener)
		rdma_destroy_id(listener);
	return 0;
}
