// SPDX-License-Identifier: GPL-2.0
/* Two connected queue pairs in one process; see pair.h. */
#include "pair.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STEP_SECONDS 15.0
#define PORTS_TRIED 20

void fail(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "FAIL: ");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

struct pair_options pair_defaults(void)
{
	return (struct pair_options){
		.send_depth = 64, .recv_depth = 64, .cq_depth = 256,
		.send_sge = 6, .recv_sge = 6, .inline_size = 80,
		.ird = 16, .ord = 16,
	};
}

static int parse(const char *text, int port, struct sockaddr_storage *out)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)out;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;

	memset(out, 0, sizeof(*out));
	if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		return 0;
	}
	if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons(port);
		return 0;
	}
	return -1;
}

static int make_end(struct end *e, struct rdma_cm_id *id, const struct pair_options *o)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = o->send_depth,
			.max_recv_wr = o->recv_depth,
			.max_send_sge = o->send_sge,
			.max_recv_sge = o->recv_sge,
			.max_inline_data = o->inline_size,
		},
	};

	e->id = id;
	e->pd = ibv_alloc_pd(id->verbs);
	if (!e->pd)
		return -1;
	if (o->events) {
		e->channel = ibv_create_comp_channel(id->verbs);
		if (!e->channel)
			return -1;
	}
	e->send_cq = ibv_create_cq(id->verbs, o->cq_depth, NULL, e->channel, 0);
	e->recv_cq = ibv_create_cq(id->verbs, o->cq_depth, NULL, e->channel, 0);
	if (!e->send_cq || !e->recv_cq)
		return -1;
	if (o->shared_recv) {
		struct ibv_srq_init_attr init = { .attr = { .max_wr = o->recv_depth, .max_sge = o->recv_sge } };

		e->srq = ibv_create_srq(e->pd, &init);
		if (!e->srq)
			return -1;
		attr.srq = e->srq;
	}
	attr.send_cq = e->send_cq;
	attr.recv_cq = e->recv_cq;
	if (rdma_create_qp(id, e->pd, &attr))
		return -1;
	e->qp = id->qp;
	return 0;
}

static void free_end(struct end *e)
{
	if (e->id && e->qp)
		rdma_destroy_qp(e->id);
	if (e->srq)
		ibv_destroy_srq(e->srq);
	if (e->send_cq)
		ibv_destroy_cq(e->send_cq);
	if (e->recv_cq)
		ibv_destroy_cq(e->recv_cq);
	if (e->channel)
		ibv_destroy_comp_channel(e->channel);
	if (e->pd)
		ibv_dealloc_pd(e->pd);
	if (e->id)
		rdma_destroy_id(e->id);
	memset(e, 0, sizeof(*e));
}

static struct rdma_cm_event *next_event(struct pair *p, double seconds)
{
	struct pollfd fd = { .fd = p->events->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	if (poll(&fd, 1, (int)(seconds * 1000)) != 1)
		return NULL;
	return rdma_get_cm_event(p->events, &event) ? NULL : event;
}

int wait_cm_event(struct pair *p, enum rdma_cm_event_type kind, double seconds)
{
	double end = now() + seconds;
	struct rdma_cm_event *event;
	int found;

	while (now() < end) {
		event = next_event(p, end - now());
		if (!event)
			break;
		found = event->event == kind;
		rdma_ack_cm_event(event);
		if (found)
			return 0;
	}
	return -1;
}

static void keep_private(const struct rdma_conn_param *param, uint8_t *to, int *len)
{
	*len = param->private_data ? param->private_data_len : 0;
	if (*len)
		memcpy(to, param->private_data, *len);
}

/* One connection-manager event; 1 = this end is done, 0 = go on, -1 = failed. */
static int step(struct pair *p, struct rdma_cm_event *event, const struct pair_options *o)
{
	struct rdma_conn_param param = {
		.responder_resources = o->ird,
		.initiator_depth = o->ord,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		return rdma_resolve_route(event->id, 5000);
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		if (make_end(&p->a, event->id, o))
			return -1;
		param.private_data = o->request_data;
		param.private_data_len = o->request_len;
		return rdma_connect(event->id, &param);
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		keep_private(&event->param.conn, p->seen_request, &p->seen_request_len);
		if (o->reject) {
			p->b.id = event->id;
			return rdma_reject(event->id, o->reply_data, o->reply_len);
		}
		if (make_end(&p->b, event->id, o))
			return -1;
		param.private_data = o->reply_data;
		param.private_data_len = o->reply_len;
		return rdma_accept(event->id, &param);
	case RDMA_CM_EVENT_ESTABLISHED:
		if (event->id == p->a.id)
			keep_private(&event->param.conn, p->seen_reply, &p->seen_reply_len);
		return 1;
	case RDMA_CM_EVENT_REJECTED:
		keep_private(&event->param.conn, p->seen_reply, &p->seen_reply_len);
		p->rejected = 1;
		return o->reject ? 2 : -1;
	default:
		return -1;
	}
}

struct rdma_cm_id *listen_somewhere(struct rdma_event_channel *events, struct sockaddr *at, int backlog)
{
	struct rdma_cm_id *id;
	int i, err = EADDRINUSE;

	for (i = 0; i < PORTS_TRIED && err == EADDRINUSE; i++) {
		if (rdma_create_id(events, &id, NULL, RDMA_PS_TCP))
			return NULL;
		if (!rdma_bind_addr(id, at) && !rdma_listen(id, backlog))
			return id;
		err = errno;
		rdma_destroy_id(id);
	}
	errno = err;
	return NULL;
}

int pair_open(struct pair *p, const char *from, const char *to, const struct pair_options *o)
{
	struct sockaddr_storage source, target;
	struct rdma_cm_event *event;
	struct rdma_cm_id *client = NULL;
	int done = 0, result;

	memset(p, 0, sizeof(*p));
	p->events = rdma_create_event_channel();
	if (!p->events || parse(to, 0, &target) || (from && parse(from, 0, &source)) ||
	    rdma_create_id(p->events, &client, NULL, RDMA_PS_TCP)) {
		fprintf(stderr, "no addresses, or no rdma_cm: %s\n", strerror(errno));
		goto failed;
	}
	p->a.id = client;
	p->listener = listen_somewhere(p->events, (struct sockaddr *)&target, 8);
	if (!p->listener) {
		fprintf(stderr, "no listener: %s\n", strerror(errno));
		goto failed;
	}
	parse(to, ntohs(rdma_get_src_port(p->listener)), &target);
	if (rdma_resolve_addr(client, from ? (struct sockaddr *)&source : NULL,
			      (struct sockaddr *)&target, 5000)) {
		fprintf(stderr, "no path: %s\n", strerror(errno));
		goto failed;
	}
	while (done < 2) {
		event = next_event(p, STEP_SECONDS);
		if (!event) {
			fprintf(stderr, "no connection event within %.0f s\n", STEP_SECONDS);
			goto failed;
		}
		result = step(p, event, o);
		if (result < 0)
			fprintf(stderr, "event %s, status %d, errno %d (%s)\n",
				rdma_event_str(event->event), event->status, errno, strerror(errno));
		rdma_ack_cm_event(event);
		if (result < 0)
			goto failed;
		done += result;
	}
	return 0;
failed:
	pair_close(p);
	return -1;
}

void pair_close(struct pair *p)
{
	if (p->a.qp)
		rdma_disconnect(p->a.id);
	if (p->b.qp)
		rdma_disconnect(p->b.id);
	free_end(&p->a);
	free_end(&p->b);
	if (p->listener)
		rdma_destroy_id(p->listener);
	if (p->events)
		rdma_destroy_event_channel(p->events);
	memset(p, 0, sizeof(*p));
}

int wait_completion(struct ibv_cq *cq, struct ibv_wc *wc, double seconds)
{
	double end = now() + seconds;
	int n;

	do {
		n = ibv_poll_cq(cq, 1, wc);
		if (n == 1)
			return 0;
		if (n < 0)
			fail("ibv_poll_cq: %d", n);
		sched_yield();
	} while (now() < end);
	return -1;
}

struct ibv_mr *must_register(struct ibv_pd *pd, void *at, size_t len, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, at, len, access);

	if (!mr)
		fail("ibv_reg_mr of %zu octets: %s", len, strerror(errno));
	return mr;
}

void must_post_recv(struct end *e, uint64_t id, struct ibv_sge *sge, int n)
{
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = sge, .num_sge = n }, *bad;
	int err = ibv_post_recv(e->qp, &wr, &bad);

	if (err)
		fail("ibv_post_recv: %s", strerror(err));
}

void must_post_send(struct end *e, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int err = ibv_post_send(e->qp, wr, &bad);

	if (err)
		fail("ibv_post_send of opcode %d, %d elements: %s", wr->opcode, wr->num_sge, strerror(err));
}
