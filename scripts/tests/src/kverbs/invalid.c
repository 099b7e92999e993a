// SPDX-License-Identifier: GPL-2.0
/*
 * LOCAL_INV of a region that is invalid already. A user cannot know the region's state: the peer's
 * Send may have invalidated the region, or its registration was never carried out. The request
 * succeeds, and the connection goes on. A key other than the one under which the region is valid is
 * an error.
 *
 * A Send that invalidates an invalid region, or one that is valid under another key, is received.
 * Its completion reports no invalidation: the registration of its key may be posted by then. With
 * a report the user would take the memory for its own while the peer can access it.
 */
#include <linux/slab.h>

#include "kverbs.h"

#define LEN	(2 * PAGE_SIZE)

int kv_region_open(struct kv_region *r, struct kv_end *e)
{
	int err;

	r->end = e;
	err = kv_buffer_alloc(&r->buffer);
	if (err)
		return err;
	r->mr = ib_alloc_mr(e->pd, IB_MR_TYPE_MEM_REG, KV_MAX_SG);
	if (!IS_ERR(r->mr))
		return 0;
	err = PTR_ERR(r->mr);
	r->mr = NULL;
	return err;
}

void kv_region_close(struct kv_region *r)
{
	if (r->mr)
		ib_dereg_mr(r->mr);
	if (r->end)
		kv_buffer_free(&r->buffer);
}

int kv_region_wr(struct kv_region *r, struct ib_reg_wr *wr)
{
	struct ib_device *dev = r->end->id->device;
	struct kv_layout *l = kzalloc(sizeof(*l), GFP_KERNEL);
	int err = -EIO;

	if (!l)
		return -ENOMEM;
	kv_layout_pages(l, &r->buffer, LEN);
	if (ib_dma_map_sg(dev, l->sg, l->count, DMA_BIDIRECTIONAL) == l->count) {
		if (ib_map_mr_sg(r->mr, l->sg, l->count, NULL, PAGE_SIZE) == l->count)
			err = 0;
		/* The region's pages stay mapped, which costs nothing without DMA. */
		ib_dma_unmap_sg(dev, l->sg, l->count, DMA_BIDIRECTIONAL);
	}
	kfree(l);
	if (err) {
		pr_err("rsiw_kverbs_test: a region can not be mapped\n");
		return err;
	}
	ib_update_fast_reg_key(r->mr, ib_inc_rkey(r->mr->rkey));
	*wr = (struct ib_reg_wr){
		.wr.opcode = IB_WR_REG_MR, .mr = r->mr, .key = r->mr->rkey,
		.access = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE,
	};
	return 0;
}

static int reg(struct kv_region *r)
{
	struct ib_reg_wr wr;
	int err = kv_region_wr(r, &wr);

	return err ?: kv_post_and_wait(r->end, &wr.wr, &wr.wr, "REG_MR of a region to be invalidated");
}

static int local_inv(struct kv_region *r, const char *what)
{
	struct ib_send_wr wr = { .opcode = IB_WR_LOCAL_INV, .ex.invalidate_rkey = r->mr->rkey };

	return kv_post_and_wait(r->end, &wr, &wr, what);
}

int kv_send(struct kv_end *from, struct kv_end *to, u32 key, bool valid)
{
	struct ib_send_wr send = { .opcode = IB_WR_SEND };
	struct kv_wait *received = kv_wait_new();
	struct ib_recv_wr recv = {};
	int err;

	if (key) {
		send.opcode = IB_WR_SEND_WITH_INV;
		send.ex.invalidate_rkey = key;
	}
	recv.wr_cqe = &received->cqe;
	err = ib_post_recv(to->id->qp, &recv, NULL);
	err = err ?: kv_post_and_wait(from, &send, &send, "Send");
	err = err ?: kv_wait_for(received, "receive");
	err = err ?: kv_expect(received, "receive");
	if (err || !(received->wc.wc_flags & IB_WC_WITH_INVALIDATE) == !valid)
		return err;
	pr_err("rsiw_kverbs_test: a Send is reported to have invalidated %s\n",
	       valid ? "nothing, and has" : "what it has not");
	return -EIO;
}

/* The connecting end begins: the accepting one may not send before something came (RFC 5044 7.1.2). */
static int goes_on(struct kv_pair *p, const char *after)
{
	int err = kv_send(&p->a, &p->b, 0, false) ?: kv_send(&p->b, &p->a, 0, false);

	if (err)
		pr_err("rsiw_kverbs_test: the connection does not go on after LOCAL_INV of a region %s\n", after);
	return err;
}

static int what_is_invalid(struct kv_pair *p, struct kv_region *r)
{
	int err;

	err = local_inv(r, "LOCAL_INV of a region that was never registered");
	err = err ?: goes_on(p, "that was never registered");
	err = err ?: reg(r);
	err = err ?: local_inv(r, "LOCAL_INV");
	err = err ?: local_inv(r, "LOCAL_INV of a region after LOCAL_INV");
	err = err ?: goes_on(p, "after LOCAL_INV");
	err = err ?: reg(r);
	err = err ?: kv_send(&p->a, &p->b, ib_inc_rkey(r->mr->rkey), false);
	err = err ?: kv_send(&p->a, &p->b, r->mr->rkey, true);
	err = err ?: kv_send(&p->a, &p->b, r->mr->rkey, false);
	err = err ?: local_inv(r, "LOCAL_INV of a region that the peer's Send has invalidated");
	err = err ?: goes_on(p, "that the peer's Send has invalidated");
	/* The region can be registered again. */
	err = err ?: reg(r);
	return err ?: local_inv(r, "LOCAL_INV at last");
}

/* The end of the connection. */
static int another_key(struct kv_region *r)
{
	struct ib_send_wr wr = { .opcode = IB_WR_LOCAL_INV, .send_flags = IB_SEND_SIGNALED };
	struct kv_wait *done = kv_wait_new();
	int err;

	err = reg(r);
	if (err)
		return err;
	wr.wr_cqe = &done->cqe;
	wr.ex.invalidate_rkey = ib_inc_rkey(r->mr->rkey);
	err = ib_post_send(r->end->id->qp, &wr, NULL);
	err = err ?: kv_wait_for(done, "LOCAL_INV of a region that is valid under another key");
	if (err || done->wc.status == IB_WC_LOC_QP_OP_ERR)
		return err;
	pr_err("rsiw_kverbs_test: LOCAL_INV of a region that is valid under another key: %s\n",
	       ib_wc_status_msg(done->wc.status));
	return -EIO;
}

int kv_invalid(const struct sockaddr *to, enum ib_poll_context poll)
{
	const struct kv_how how = { .poll = poll };
	struct kv_pair *p = kzalloc(sizeof(*p), GFP_KERNEL);
	struct kv_region *r = kzalloc(sizeof(*r), GFP_KERNEL);
	int err = -ENOMEM;

	if (!p || !r)
		goto out;
	err = kv_connect(p, to, &how);
	if (err)
		goto out;
	err = kv_region_open(r, &p->b);
	err = err ?: what_is_invalid(p, r);
	err = err ?: another_key(r);
	/* Requests are flushed before the memory they name goes away. */
	ib_drain_qp(p->a.id->qp);
	ib_drain_qp(p->b.id->qp);
	kv_region_close(r);
	kv_disconnect(p);
out:
	kfree(r);
	kfree(p);
	return err;
}
