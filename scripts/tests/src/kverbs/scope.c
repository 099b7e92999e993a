// SPDX-License-Identifier: GPL-2.0
/*
 * A key that a work request registers serves the stream of its queue pair (RFC 5041 sections 8.2
 * and 8.3.1). Another queue pair of the same protection domain, as a storage target has one for
 * each host, can neither access nor invalidate the region: neither its peer nor its owner. The
 * connection that tries ends, and the log has its Terminate. The connection that the key serves goes on.
 */
#include <linux/slab.h>

#include "kverbs.h"

#define USED	64u		/* octets of each access */

enum scope_use {
	SCOPE_WRITE,			/* by the peer of the other queue pair */
	SCOPE_READ,
	SCOPE_SEND_INV,
	SCOPE_SEND,			/* by its owner */
	SCOPE_LOCAL_INV,
	SCOPE_USES
};

static const struct {
	const char *name;
	u32 code;			/* of the Terminate to the peer: layer, type and code; 0: local */
	enum ib_wc_status status;	/* of the work request; IB_WC_SUCCESS: not its */
} use[SCOPE_USES] = {
	{ "Write", 0x1102, IB_WC_SUCCESS },
	{ "Read", 0x0103, IB_WC_REM_ACCESS_ERR },
	{ "Send with Invalidate", 0x0109, IB_WC_SUCCESS },
	{ "Send from the memory", 0, IB_WC_LOC_PROT_ERR },
	{ "LOCAL_INV", 0, IB_WC_LOC_QP_OP_ERR },
};

struct scope {
	struct kv_pair owner, other;
	struct kv_region region;	/* at the accepting end of one of them */
	struct kv_region sink;		/* of Reads, at the connecting end */
	u8 near[USED];			/* reached with local_dma_lkey */
};

static int reg(struct kv_region *r, struct kv_end *e)
{
	struct ib_reg_wr wr;
	int err = kv_region_wr(r, &wr);

	wr.access |= IB_ACCESS_REMOTE_READ;
	return err ?: kv_post_and_wait(e, &wr.wr, &wr.wr, "REG_MR of a key for one stream");
}

static bool holds(const struct kv_buffer *b, const u8 *octets)
{
	u32 i;

	for (i = 0; i + USED <= KV_SIZE; i++)
		if (!memcmp(b->at + i, octets, USED))
			return true;
	return false;
}

/* Access by the stream that the key serves: a Write is placed, and a Read returns its octets. */
static int serves(struct scope *s, struct kv_pair *p)
{
	struct ib_sge sge = { .addr = (uintptr_t)s->near, .length = USED, .lkey = p->a.pd->local_dma_lkey };
	struct ib_rdma_wr wr = { .wr = { .opcode = IB_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1 } };
	int err;

	wr.remote_addr = s->region.mr->iova;
	wr.rkey = s->region.mr->rkey;
	kv_random_bytes(s->near, USED);
	err = kv_post_and_wait(&p->a, &wr.wr, &wr.wr, "Write of the peer that the key serves");
	err = err ?: kv_region_open(&s->sink, &p->a);
	err = err ?: reg(&s->sink, &p->a);
	if (!err) {
		sge.addr = s->sink.mr->iova;
		sge.lkey = s->sink.mr->lkey;
		wr.wr.opcode = IB_WR_RDMA_READ;
		err = kv_post_and_wait(&p->a, &wr.wr, &wr.wr, "Read of the peer that the key serves");
	}
	if (!err && !(holds(&s->region.buffer, s->near) && holds(&s->sink.buffer, s->near))) {
		pr_err("rsiw_kverbs_test: a key for one stream: what was written or read is not there\n");
		err = -EIO;
	}
	kv_region_close(&s->sink);
	memset(&s->sink, 0, sizeof(s->sink));
	return err ?: kv_send(&p->a, &p->b, s->region.mr->rkey, true);
}

static int post(struct scope *s, enum scope_use u, struct kv_end *e, struct kv_wait *done)
{
	struct ib_mr *mr = s->region.mr;
	struct ib_sge sge = { .addr = (uintptr_t)s->near, .length = USED, .lkey = e->pd->local_dma_lkey };
	struct ib_rdma_wr wr = { .wr.send_flags = IB_SEND_SIGNALED, .remote_addr = mr->iova, .rkey = mr->rkey };

	wr.wr.wr_cqe = &done->cqe;
	wr.wr.sg_list = &sge;
	wr.wr.num_sge = 1;
	switch (u) {
	case SCOPE_WRITE:
		wr.wr.opcode = IB_WR_RDMA_WRITE;
		break;
	case SCOPE_READ:
		wr.wr.opcode = IB_WR_RDMA_READ;
		sge.addr = s->sink.mr->iova;
		sge.lkey = s->sink.mr->lkey;
		break;
	case SCOPE_SEND_INV:
		wr.wr.opcode = IB_WR_SEND_WITH_INV;
		wr.wr.num_sge = 0;
		wr.wr.ex.invalidate_rkey = mr->rkey;
		break;
	case SCOPE_SEND:
		wr.wr.opcode = IB_WR_SEND;
		sge.addr = mr->iova;
		sge.lkey = mr->lkey;
		break;
	default:
		wr.wr.opcode = IB_WR_LOCAL_INV;
		wr.wr.num_sge = 0;
		wr.wr.ex.invalidate_rkey = mr->rkey;
	}
	return ib_post_send(e->id->qp, &wr.wr, NULL);
}

/* The other queue pair or its peer uses the key: its connection ends. */
static int other_uses(struct scope *s, enum scope_use u)
{
	struct kv_pair *q = &s->other;
	struct kv_wait *done = kv_wait_new(), *received = kv_wait_new();
	struct ib_recv_wr recv = {};
	int err;

	recv.wr_cqe = &received->cqe;
	err = ib_post_recv(q->b.id->qp, &recv, NULL);
	err = err ?: kv_region_open(&s->sink, &q->a);
	err = err ?: reg(&s->sink, &q->a);
	err = err ?: post(s, u, use[u].code ? &q->a : &q->b, done);
	err = err ?: kv_wait_for(done, use[u].name);
	err = err ?: kv_wait_for(received, "the flush of a receive after the use of another stream's key");
	kv_region_close(&s->sink);
	memset(&s->sink, 0, sizeof(s->sink));
	if (err)
		return err;
	if (use[u].status != IB_WC_SUCCESS && done->wc.status != use[u].status) {
		pr_err("rsiw_kverbs_test: %s with another stream's key: %s\n", use[u].name,
		       ib_wc_status_msg(done->wc.status));
		return -EIO;
	}
	if (received->wc.status != IB_WC_WR_FLUSH_ERR) {
		pr_err("rsiw_kverbs_test: a receive after %s with another stream's key: %s\n", use[u].name,
		       ib_wc_status_msg(received->wc.status));
		return -EIO;
	}
	if (use[u].code)
		pr_info("rsiw_kverbs_test: expected: qpn=%u sent code=%#06x\n", q->b.id->qp->qp_num, use[u].code);
	return kv_buffer_check(&s->region.buffer, use[u].name);
}

static void let_go(struct kv_pair *p)
{
	if (p->a.id && p->a.id->qp)
		ib_drain_qp(p->a.id->qp);
	if (p->b.id && p->b.id->qp)
		ib_drain_qp(p->b.id->qp);
	kv_disconnect(p);
}

int kv_scope(const struct sockaddr *to, enum ib_poll_context poll)
{
	struct kv_how how = { .poll = poll };
	struct scope *s = kzalloc(sizeof(*s), GFP_KERNEL);
	enum scope_use u;
	int err;

	if (!s)
		return -ENOMEM;
	err = kv_connect(&s->owner, to, &how);
	if (err)
		goto out;
	how.pd = s->owner.b.pd;
	err = kv_region_open(&s->region, &s->owner.b);
	/* The accepting end may not send before something came (RFC 5044 7.1.2). */
	err = err ?: kv_send(&s->owner.a, &s->owner.b, 0, false);
	err = err ?: reg(&s->region, &s->owner.b);
	for (u = 0; !err && u < SCOPE_USES; u++) {
		err = kv_connect(&s->other, to, &how);
		err = err ?: kv_send(&s->other.a, &s->other.b, 0, false);
		err = err ?: other_uses(s, u);
		let_go(&s->other);
	}
	err = err ?: serves(s, &s->owner);
	/* A region that is invalid may be registered by another queue pair, as after a reconnect. */
	if (!err) {
		err = kv_connect(&s->other, to, &how);
		err = err ?: kv_send(&s->other.a, &s->other.b, 0, false);
		err = err ?: reg(&s->region, &s->other.b);
		err = err ?: serves(s, &s->other);
		let_go(&s->other);
	}
	if (s->owner.b.id && s->owner.b.id->qp)
		ib_drain_qp(s->owner.b.id->qp);
	kv_region_close(&s->region);
	let_go(&s->owner);
out:
	kfree(s);
	return err;
}
