// SPDX-License-Identifier: GPL-2.0
/*
 * An owner puts its queue pair into the error state while the peer sends. Requests posted from
 * then on are flushed, and never carried out (RDMAP-65, RPC-14). Unsignaled requests complete too,
 * since ib_drain_sq() waits for one. The peer sees the end of the connection only, even if its
 * last Sends found no receive.
 */
#include <linux/slab.h>

#include "kverbs.h"

#define FLOOD		8		/* requests under way */
#define FLOOD_BEGUN	64		/* completions after which the peer is busy */
#define DOWNED		4		/* requests posted in error, to each queue */

/*
 * Requests without payload, one callback of TCP each, until the connection ends: Writes, each
 * posted when another one is done, or Sends, when another one is done and has been received.
 */
struct flood {
	struct ib_cqe cqe, taken;
	struct ib_rdma_wr wr;
	struct ib_recv_wr recv;
	struct ib_qp *from, *to;
	spinlock_t lock;		/* of the three counts */
	unsigned int nr_posted, nr_done, nr_taken;
	atomic_t under_way;
	enum ib_wc_status end;		/* of a request that did not succeed */
	struct completion begun, over;
};

static void flood_less(struct flood *f)
{
	if (atomic_dec_and_test(&f->under_way))
		complete(&f->over);
}

static void flood_more(struct flood *f)
{
	atomic_inc(&f->under_way);
	if (ib_post_send(f->from, &f->wr.wr, NULL))
		flood_less(f);
}

/* Counts a request that is done, or received, in @nr. Posts the next one when both counts allow that. */
static void flood_on(struct flood *f, unsigned int *nr)
{
	bool begun, more;
	unsigned long flags;

	spin_lock_irqsave(&f->lock, flags);
	++*nr;
	begun = f->nr_done == FLOOD_BEGUN;
	more = f->nr_posted < FLOOD + min(f->nr_done, f->nr_taken);
	f->nr_posted += more;
	spin_unlock_irqrestore(&f->lock, flags);
	if (begun)
		complete(&f->begun);
	if (more)
		flood_more(f);
}

static void flood_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct flood *f = container_of(wc->wr_cqe, struct flood, cqe);

	if (wc->status == IB_WC_SUCCESS) {
		flood_on(f, &f->nr_done);
	} else {
		/* The status of the first request that was not flushed. */
		if (f->end == IB_WC_SUCCESS || f->end == IB_WC_WR_FLUSH_ERR)
			f->end = wc->status;
		complete(&f->begun);
	}
	flood_less(f);
}

static void flood_taken(struct ib_cq *cq, struct ib_wc *wc)
{
	struct flood *f = container_of(wc->wr_cqe, struct flood, taken);

	if (wc->status != IB_WC_SUCCESS)
		flood_more(f);		/* for which nothing is posted */
	else if (!ib_post_recv(f->to, &f->recv, NULL))
		flood_on(f, &f->nr_taken);
}

static int flood_start(struct flood *f, struct kv_pair *p, enum ib_wr_opcode opcode)
{
	int i, err = 0;

	*f = (struct flood){
		.cqe.done = flood_done, .taken.done = flood_taken, .from = p->a.id->qp, .to = p->b.id->qp,
		.wr.wr = { .wr_cqe = &f->cqe, .opcode = opcode, .send_flags = IB_SEND_SIGNALED },
		.recv.wr_cqe = &f->taken, .nr_posted = FLOOD, .under_way = ATOMIC_INIT(1),
		/* Writes take no receives. */
		.nr_taken = opcode == IB_WR_SEND ? 0 : UINT_MAX,
	};
	spin_lock_init(&f->lock);
	init_completion(&f->begun);
	init_completion(&f->over);
	for (i = 0; !err && i < FLOOD; i++)
		err = ib_post_recv(f->to, &f->recv, NULL);
	for (i = 0; !err && i < FLOOD; i++)
		flood_more(f);
	return err;
}

static int flood_wait(struct completion *c, const char *what)
{
	if (wait_for_completion_timeout(c, KV_WAIT))
		return 0;
	pr_err("rsiw_kverbs_test: a flood of requests has not %s\n", what);
	return -ETIMEDOUT;
}

/* Both queues are drained. */
static int flood_end(struct flood *f)
{
	flood_less(f);
	/* The last Sends may all have arrived. */
	if (f->end == IB_WC_WR_FLUSH_ERR || (f->end == IB_WC_SUCCESS && f->wr.wr.opcode == IB_WR_SEND))
		return flood_wait(&f->over, "ended");
	pr_err("rsiw_kverbs_test: the peer of an end put into error: %s\n", ib_wc_status_msg(f->end));
	return -EIO;
}

static int flushed(struct kv_wait *w, const char *what)
{
	int err = kv_wait_for(w, what);

	if (!err && w->wc.status != IB_WC_WR_FLUSH_ERR) {
		pr_err("rsiw_kverbs_test: %s: %s\n", what, ib_wc_status_msg(w->wc.status));
		err = -EIO;
	}
	return err;
}

static int put_down(struct kv_end *e)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };
	struct kv_wait *sent[DOWNED], *received[DOWNED];
	struct ib_rdma_wr wr[DOWNED];
	struct ib_recv_wr recv[DOWNED];
	int i, err;

	for (i = 0; i < DOWNED; i++) {
		bool last = i + 1 == DOWNED;

		sent[i] = kv_wait_new();
		received[i] = kv_wait_new();
		wr[i] = (struct ib_rdma_wr){
			.wr = {
				.wr_cqe = &sent[i]->cqe, .opcode = IB_WR_RDMA_WRITE,
				.next = last ? NULL : &wr[i + 1].wr,
			},
		};
		recv[i] = (struct ib_recv_wr){
			.wr_cqe = &received[i]->cqe, .next = last ? NULL : &recv[i + 1],
		};
	}
	err = ib_modify_qp(e->id->qp, &attr, IB_QP_STATE);
	err = err ?: ib_post_recv(e->id->qp, recv, NULL);
	err = err ?: ib_post_send(e->id->qp, &wr[0].wr, NULL);
	if (err)
		pr_err("rsiw_kverbs_test: into the error state, and posting then: %d\n", err);
	for (i = 0; !err && i < DOWNED; i++) {
		err = flushed(sent[i], "a Write posted in error, unsignalled");
		err = err ?: flushed(received[i], "a receive posted in error");
	}
	return err;
}

static int one_end(struct flood *f, const struct sockaddr *to, enum ib_poll_context poll,
		   enum ib_wr_opcode opcode)
{
	struct kv_pair *p = kzalloc(sizeof(*p), GFP_KERNEL);
	int err;

	if (!p)
		return -ENOMEM;
	err = kv_connect(p, to, &(struct kv_how){ .poll = poll });
	if (err)
		goto out;
	err = flood_start(f, p, opcode);
	err = err ?: flood_wait(&f->begun, "begun");
	err = err ?: put_down(&p->b);
	/* After this no receive completion posts, and the other end may be destroyed. */
	ib_drain_qp(p->b.id->qp);
	kv_disconnect(p);
	err = err ?: flood_end(f);
	if (!err && p->a.fatal) {
		pr_err("rsiw_kverbs_test: the peer of an end put into error was told of a failure\n");
		err = -EIO;
	}
out:
	kfree(p);
	return err;
}

int kv_downed(const struct sockaddr *to, enum ib_poll_context poll, unsigned int ends)
{
	struct flood *f = kzalloc(sizeof(*f), GFP_KERNEL);
	unsigned int i;
	int err = f ? 0 : -ENOMEM;

	for (i = 0; !err && i < ends; i++)
		err = one_end(f, to, poll, i & 1 ? IB_WR_SEND : IB_WR_RDMA_WRITE);
	if (err)
		pr_err("rsiw_kverbs_test: end %u of %u put into error: %d\n", i, ends, err);
	kfree(f);
	return err;
}
