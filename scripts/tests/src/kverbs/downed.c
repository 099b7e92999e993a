// SPDX-License-Identifier: GPL-2.0
/*
 * An end is put into the error state by its owner while the peer keeps it busy: what is posted to it
 * from then on is flushed, and never carried out (RDMAP-65, RPC-14). What asks for no completion
 * would not get one then, and ib_drain_sq() posts just that and waits for it.
 */
#include <linux/slab.h>

#include "kverbs.h"

#define FLOOD		8		/* Writes under way */
#define FLOOD_BEGUN	64		/* completions after which the peer is busy */
#define DOWNED		4		/* requests posted in error */

/* Writes without payload, posted anew until the connection ends; one callback of TCP each. */
struct flood {
	struct ib_cqe cqe;
	struct ib_rdma_wr wr;
	struct ib_qp *qp;
	atomic_t under_way, to_begin;
	struct completion begun, over;
};

static void flood_less(struct flood *f)
{
	if (!atomic_dec_and_test(&f->under_way))
		return;
	complete(&f->begun);
	complete(&f->over);
}

static void flood_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct flood *f = container_of(wc->wr_cqe, struct flood, cqe);

	if (atomic_dec_and_test(&f->to_begin))
		complete(&f->begun);
	if (wc->status != IB_WC_SUCCESS || ib_post_send(f->qp, &f->wr.wr, NULL))
		flood_less(f);
}

static void flood_start(struct flood *f, struct kv_end *e)
{
	int i;

	*f = (struct flood){
		.cqe.done = flood_done, .qp = e->id->qp,
		.wr.wr = { .wr_cqe = &f->cqe, .opcode = IB_WR_RDMA_WRITE, .send_flags = IB_SEND_SIGNALED },
		.under_way = ATOMIC_INIT(FLOOD), .to_begin = ATOMIC_INIT(FLOOD_BEGUN),
	};
	init_completion(&f->begun);
	init_completion(&f->over);
	for (i = 0; i < FLOOD; i++)
		if (ib_post_send(f->qp, &f->wr.wr, NULL))
			flood_less(f);
}

static int flood_wait(struct completion *c, const char *what)
{
	if (wait_for_completion_timeout(c, KV_WAIT))
		return 0;
	pr_err("rsiw_kverbs_test: a flood of Writes has not %s\n", what);
	return -ETIMEDOUT;
}

static int put_down(struct kv_end *e)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };
	struct kv_wait *w[DOWNED];
	struct ib_rdma_wr wr[DOWNED];
	int i, err;

	for (i = 0; i < DOWNED; i++) {
		w[i] = kv_wait_new();
		wr[i] = (struct ib_rdma_wr){
			.wr = {
				.wr_cqe = &w[i]->cqe, .opcode = IB_WR_RDMA_WRITE,
				.next = i + 1 < DOWNED ? &wr[i + 1].wr : NULL,
			},
		};
	}
	err = ib_modify_qp(e->id->qp, &attr, IB_QP_STATE);
	err = err ?: ib_post_send(e->id->qp, &wr[0].wr, NULL);
	if (err)
		pr_err("rsiw_kverbs_test: into the error state, and posting then: %d\n", err);
	for (i = 0; !err && i < DOWNED; i++) {
		err = kv_wait_for(w[i], "a Write posted in error, unsignalled");
		if (!err && w[i]->wc.status != IB_WC_WR_FLUSH_ERR) {
			pr_err("rsiw_kverbs_test: a Write posted in error: %s\n", ib_wc_status_msg(w[i]->wc.status));
			err = -EIO;
		}
	}
	return err;
}

static int one_end(struct flood *f, const struct sockaddr *to, enum ib_poll_context poll)
{
	struct kv_pair *p = kzalloc(sizeof(*p), GFP_KERNEL);
	int err;

	if (!p)
		return -ENOMEM;
	err = kv_connect(p, to, poll);
	if (err)
		goto out;
	flood_start(f, &p->a);
	err = flood_wait(&f->begun, "begun");
	err = err ?: put_down(&p->b);
	/* Its requests are flushed when the connection goes, which the other end has made by now. */
	kv_disconnect(p);
	err = err ?: flood_wait(&f->over, "ended");
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
		err = one_end(f, to, poll);
	if (err)
		pr_err("rsiw_kverbs_test: end %u of %u put into error: %d\n", i, ends, err);
	kfree(f);
	return err;
}
