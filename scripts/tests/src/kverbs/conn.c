// SPDX-License-Identifier: GPL-2.0
/* Connecting two queue pairs of this module with each other through rdma_cm. */
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/inet.h>
#include <linux/jiffies.h>
#include <linux/slab.h>
#include <net/net_namespace.h>

#include "kverbs.h"

/* Ports that are tried for a listener. */
#define PORTS_TRIED 20

static struct kv_end *end_of(struct kv_pair *p, struct rdma_cm_id *id)
{
	return id == p->a.id ? &p->a : &p->b;
}

static int on_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct kv_pair *p = id->context;

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		complete(&p->resolved);
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		p->b.id = id;
		complete(&p->requested);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		complete(&end_of(p, id)->established);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default:
		pr_err("rsiw_kverbs_test: event %s, status %d\n", rdma_event_msg(event->event), event->status);
		p->status = event->status ?: -ECONNREFUSED;
		complete(&p->resolved);
		complete(&p->requested);
		complete(&p->a.established);
		complete(&p->b.established);
	}
	return 0;
}

static int await(struct kv_pair *p, struct completion *c, const char *what)
{
	if (!wait_for_completion_timeout(c, KV_WAIT)) {
		pr_err("rsiw_kverbs_test: nothing came while waiting for: %s\n", what);
		return -ETIMEDOUT;
	}
	return p->status;
}

static void on_qp_event(struct ib_event *event, void *context)
{
	struct kv_end *e = context;

	if (event->event == IB_EVENT_QP_FATAL)
		e->fatal = true;
	if (event->event == IB_EVENT_QP_LAST_WQE_REACHED) {
		atomic_inc(&e->nr_last);
		complete_all(&e->last);
	}
}

static int make_cq(struct kv_end *e, const struct kv_how *how)
{
	struct ib_cq_init_attr attr = { .cqe = how->cqe ?: 128 };

	e->handled = how->handler;
	if (e->handled)
		e->cq = ib_create_cq(e->id->device, how->handler, NULL, e, &attr);
	else
		e->cq = ib_alloc_cq(e->id->device, NULL, attr.cqe, 0, how->poll);
	return PTR_ERR_OR_ZERO(e->cq);
}

static int make_srq(struct kv_end *e)
{
	struct ib_srq_init_attr attr = {
		.srq_type = IB_SRQT_BASIC, .attr = { .max_wr = 16, .max_sge = 1 },
	};

	e->srq = ib_create_srq(e->pd, &attr);
	return PTR_ERR_OR_ZERO(e->srq);
}

static int make_end(struct kv_end *e, const struct kv_how *how, bool srq, struct ib_pd *pd)
{
	struct ib_qp_init_attr attr = {
		.qp_type = IB_QPT_RC, .event_handler = on_qp_event, .qp_context = e,
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.cap = { .max_send_wr = 64, .max_recv_wr = 16, .max_send_sge = KV_SGE, .max_recv_sge = 2 },
	};
	int err;

	e->borrowed_pd = pd;
	e->pd = pd ?: ib_alloc_pd(e->id->device, 0);
	if (IS_ERR(e->pd))
		return PTR_ERR(e->pd);
	err = make_cq(e, how);
	if (!err && srq)
		err = make_srq(e);
	if (err)
		return err;
	attr.srq = e->srq;
	attr.send_cq = e->cq;
	attr.recv_cq = e->cq;
	return rdma_create_qp(e->id, e->pd, &attr);
}

void kv_free_end(struct kv_end *e)
{
	if (!e->id)
		return;
	if (e->id->qp) {
		/* The case's handler does not know the drain's request. */
		if (!e->srq && !e->handled)
			ib_drain_qp(e->id->qp);
		rdma_destroy_qp(e->id);
	}
	if (!IS_ERR_OR_NULL(e->srq))
		ib_destroy_srq(e->srq);
	if (!IS_ERR_OR_NULL(e->cq)) {
		if (e->handled)
			ib_destroy_cq(e->cq);
		else
			ib_free_cq(e->cq);
	}
	if (!IS_ERR_OR_NULL(e->pd) && !e->borrowed_pd)
		ib_dealloc_pd(e->pd);
	rdma_destroy_id(e->id);
	e->id = NULL;
}

static struct rdma_cm_id *make_id(struct kv_pair *p)
{
	return rdma_create_id(&init_net, on_event, p, RDMA_PS_TCP, IB_QPT_RC);
}

/* Where rdma_cm chooses the port, it may be in use by TCP, also by a connection in TIME-WAIT. */
static int listen(struct kv_pair *p, const struct sockaddr *to)
{
	int i, err = -EADDRINUSE;

	for (i = 0; i < PORTS_TRIED && err == -EADDRINUSE; i++) {
		if (p->listener)
			rdma_destroy_id(p->listener);
		p->listener = make_id(p);
		if (IS_ERR(p->listener)) {
			err = PTR_ERR(p->listener);
			p->listener = NULL;
			return err;
		}
		err = rdma_bind_addr(p->listener, (struct sockaddr *)to);
		err = err ?: rdma_listen(p->listener, 4);
	}
	return err;
}

/* All that comes before rdma_connect(). */
static int route(struct kv_pair *p, const struct sockaddr *to, const struct kv_how *how)
{
	struct sockaddr_storage target;
	int err;

	memcpy(&target, to, sizeof(struct sockaddr_in6));
	((struct sockaddr_in *)&target)->sin_port = ((struct sockaddr_in *)&p->listener->route.addr.src_addr)->sin_port;
	p->a.id = make_id(p);
	if (IS_ERR(p->a.id)) {
		err = PTR_ERR(p->a.id);
		p->a.id = NULL;
		return err;
	}
	err = rdma_resolve_addr(p->a.id, NULL, (struct sockaddr *)&target, 5000);
	err = err ?: await(p, &p->resolved, "address");
	err = err ?: rdma_resolve_route(p->a.id, 5000);
	err = err ?: await(p, &p->resolved, "route");
	return err ?: make_end(&p->a, how, how->srq, NULL);
}

static const struct rdma_conn_param params = {
	.responder_resources = 16, .initiator_depth = 16, .retry_count = 7,
};

int kv_ask(struct kv_pair *p)
{
	struct rdma_conn_param param = params;

	return rdma_connect(p->a.id, &param);
}

/* Drops the capabilities of this task, if @how asks for that. Returns the argument of become(). */
static const struct cred *become_nobody(const struct kv_how *how)
{
	struct cred *cred;

	if (!how->plain)
		return NULL;
	cred = prepare_creds();
	if (!cred)
		return NULL;
	cred->uid = cred->euid = cred->suid = cred->fsuid = KUIDT_INIT(65534);
	cap_clear(cred->cap_effective);
	cap_clear(cred->cap_permitted);
	return override_creds(cred);
}

static void become(const struct cred *old)
{
	if (old)
		put_cred(revert_creds(old));
}

static int accept(struct kv_pair *p, const struct kv_how *how)
{
	struct rdma_conn_param param = params;
	const struct cred *old = become_nobody(how);
	int err;

	rdma_lock_handler(p->b.id);
	err = rdma_accept(p->b.id, &param);
	rdma_unlock_handler(p->b.id);
	become(old);
	return err;
}

static int connect(struct kv_pair *p, const struct kv_how *how)
{
	const struct cred *old = become_nobody(how);
	int err;

	err = kv_ask(p);
	become(old);
	err = err ?: await(p, &p->requested, "connect request");
	err = err ?: make_end(&p->b, how, false, how->pd);
	if (err)
		return err;
	err = accept(p, how);
	err = err ?: await(p, &p->a.established, "connecting end established");
	return err ?: await(p, &p->b.established, "accepting end established");
}

static void init_pair(struct kv_pair *p)
{
	memset(p, 0, sizeof(*p));
	init_completion(&p->resolved);
	init_completion(&p->requested);
	init_completion(&p->a.established);
	init_completion(&p->b.established);
	init_completion(&p->a.last);
	init_completion(&p->b.last);
}

int kv_route_again(struct kv_pair *p, const struct kv_pair *first, const struct sockaddr *to,
		   const struct kv_how *how)
{
	int err;

	init_pair(p);
	p->listener = first->listener;
	err = route(p, to, how);
	p->listener = NULL;
	if (err) {
		pr_err("rsiw_kverbs_test: no way to the same peer: %d\n", err);
		kv_disconnect(p);
	}
	return err;
}

int kv_route(struct kv_pair *p, const struct sockaddr *to, const struct kv_how *how)
{
	int err;

	init_pair(p);
	err = listen(p, to);
	err = err ?: route(p, to, how);
	if (err) {
		pr_err("rsiw_kverbs_test: no way to the peer: %d\n", err);
		kv_disconnect(p);
	}
	return err;
}

int kv_connect(struct kv_pair *p, const struct sockaddr *to, const struct kv_how *how)
{
	int err = kv_route(p, to, how);

	if (err)
		return err;
	err = connect(p, how);
	if (err) {
		pr_err("rsiw_kverbs_test: cannot connect: %d\n", err);
		kv_disconnect(p);
	}
	return err;
}

int kv_plain(const struct sockaddr *to)
{
	const struct kv_how how = { .poll = IB_POLL_WORKQUEUE, .plain = true };
	struct kv_pair *p = kzalloc(sizeof(*p), GFP_KERNEL);
	int err;

	if (!p)
		return -ENOMEM;
	err = kv_connect(p, to, &how);
	if (err)
		pr_err("rsiw_kverbs_test: a kernel user in the context of a process without rights: %d\n", err);
	else
		kv_disconnect(p);
	kfree(p);
	return err;
}

void kv_hang_up(struct kv_pair *p)
{
	if (p->a.id && p->a.id->qp)
		rdma_disconnect(p->a.id);
	if (p->b.id && p->b.id->qp)
		rdma_disconnect(p->b.id);
}

void kv_disconnect(struct kv_pair *p)
{
	kv_hang_up(p);
	kv_free_end(&p->a);
	kv_free_end(&p->b);
	if (p->listener)
		rdma_destroy_id(p->listener);
	p->listener = NULL;
}

static void on_completion(struct ib_cq *cq, struct ib_wc *wc)
{
	static atomic_t turns;
	struct kv_wait *w = container_of(wc->wr_cqe, struct kv_wait, cqe);

	w->wc = *wc;
	w->times++;
	w->turn = atomic_inc_return(&turns);
	complete(&w->done);
}

struct kv_wait *kv_wait_new(void)
{
	static struct kv_wait ring[256];
	static unsigned int next;
	struct kv_wait *w = &ring[next++ % ARRAY_SIZE(ring)];

	w->cqe.done = on_completion;
	w->times = 0;
	init_completion(&w->done);
	return w;
}

int kv_wait_for(struct kv_wait *w, const char *what)
{
	if (wait_for_completion_timeout(&w->done, KV_WAIT))
		return 0;
	pr_err("rsiw_kverbs_test: no completion: %s\n", what);
	return -ETIMEDOUT;
}

int kv_expect(const struct kv_wait *w, const char *what)
{
	if (w->wc.status == IB_WC_SUCCESS)
		return 0;
	pr_err("rsiw_kverbs_test: %s: %s\n", what, ib_wc_status_msg(w->wc.status));
	return -EIO;
}

int kv_post_and_wait(struct kv_end *e, struct ib_send_wr *first, struct ib_send_wr *last, const char *what)
{
	struct kv_wait *w = kv_wait_new();
	struct ib_send_wr *wr;
	int err;

	/* Requests that ask for no completion have one if they fail. */
	for (wr = first; wr; wr = wr->next)
		wr->wr_cqe = &kv_wait_new()->cqe;
	last->wr_cqe = &w->cqe;
	last->send_flags |= IB_SEND_SIGNALED;
	err = ib_post_send(e->id->qp, first, NULL);
	if (err) {
		pr_err("rsiw_kverbs_test: posting %s: %d\n", what, err);
		return err;
	}
	return kv_wait_for(w, what) ?: kv_expect(w, what);
}
