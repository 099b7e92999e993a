// SPDX-License-Identifier: GPL-2.0
/*
 * A completion queue with fewer entries than a queue pair has flushed work requests, as nvmet's
 * shared queues may be. Each request completes in the end, the last one too, for which a drain waits.
 * The queue pair reports the depth that was asked for, since users post as many requests as it reports.
 * Receives with a completion queue of their own complete although the Sends' queue is not polled,
 * as with srp.
 *
 * The same for requests that a connection had begun when it ended: a Read that the peer refuses,
 * and those behind it.
 */
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/jiffies.h>
#include <linux/slab.h>

#include "kverbs.h"

#define SENDS	50	/* no power of two */
#define RECVS	20
#define PLACES	16	/* of the completion queue */
#define CUT_LEN	64	/* octets of the Read that is refused */

struct full {
	struct ib_pd *pd;
	struct ib_cq *cq, *recv_cq;
	struct ib_qp *qp;
	struct kv_wait *sent[SENDS], *received[RECVS];
};

static int full_open(struct full *f, struct ib_device *dev, bool apart)
{
	struct ib_qp_init_attr attr = {
		.qp_type = IB_QPT_RC, .sq_sig_type = IB_SIGNAL_REQ_WR,
		.cap = {
			.max_send_wr = SENDS, .max_recv_wr = RECVS, .max_send_sge = 1, .max_recv_sge = 1,
		},
	};

	f->pd = ib_alloc_pd(dev, 0);
	if (IS_ERR(f->pd))
		return PTR_ERR(f->pd);
	f->cq = ib_alloc_cq(dev, NULL, PLACES, 0, IB_POLL_DIRECT);
	if (IS_ERR(f->cq))
		return PTR_ERR(f->cq);
	if (apart) {
		f->recv_cq = ib_alloc_cq(dev, NULL, 4 * RECVS, 0, IB_POLL_WORKQUEUE);
		if (IS_ERR(f->recv_cq))
			return PTR_ERR(f->recv_cq);
	}
	attr.send_cq = f->cq;
	attr.recv_cq = apart ? f->recv_cq : f->cq;
	f->qp = ib_create_qp(f->pd, &attr);
	if (IS_ERR(f->qp))
		return PTR_ERR(f->qp);
	if (attr.cap.max_send_wr == SENDS && attr.cap.max_recv_wr == RECVS)
		return 0;
	pr_err("rsiw_kverbs_test: a queue pair for %u and %u requests says %u and %u\n", SENDS, RECVS,
	       attr.cap.max_send_wr, attr.cap.max_recv_wr);
	return -EIO;
}

static void full_close(struct full *f)
{
	if (!IS_ERR_OR_NULL(f->qp))
		ib_destroy_qp(f->qp);
	if (!IS_ERR_OR_NULL(f->recv_cq))
		ib_free_cq(f->recv_cq);
	if (!IS_ERR_OR_NULL(f->cq))
		ib_free_cq(f->cq);
	if (!IS_ERR_OR_NULL(f->pd))
		ib_dealloc_pd(f->pd);
}

/* The requests are unsignaled: only the flush completes them, as nvmet's Writes. */
static int full_post(struct full *f)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };
	int err, i;

	err = ib_modify_qp(f->qp, &attr, IB_QP_STATE);
	for (i = 0; i < SENDS && !err; i++) {
		struct ib_send_wr wr = { .wr_cqe = &f->sent[i]->cqe, .opcode = IB_WR_SEND };

		err = ib_post_send(f->qp, &wr, NULL);
	}
	for (i = 0; i < RECVS && !err; i++) {
		struct ib_recv_wr wr = { .wr_cqe = &f->received[i]->cqe };

		err = ib_post_recv(f->qp, &wr, NULL);
	}
	return err;
}

static unsigned int told(struct kv_wait **waits, unsigned int count)
{
	unsigned int i, n = 0;

	for (i = 0; i < count; i++)
		n += waits[i]->times == 1 && waits[i]->wc.status == IB_WC_WR_FLUSH_ERR;
	return n;
}

/* Each completes once, and after the one posted before it. */
static int in_order(struct kv_wait **waits, unsigned int count)
{
	unsigned int i;

	for (i = 1; i < count; i++) {
		if (waits[i]->turn < waits[i - 1]->turn) {
			pr_err("rsiw_kverbs_test: request %u was flushed before the one posted earlier\n", i);
			return -EIO;
		}
	}
	return 0;
}

static unsigned int full_told(struct full *f)
{
	return told(f->sent, SENDS) + told(f->received, RECVS);
}

/* The completion queue of the Sends is not polled meanwhile. */
static int full_expect_receives(struct full *f)
{
	unsigned long end = jiffies + KV_WAIT;

	while (told(f->received, RECVS) < RECVS && time_before(jiffies, end))
		usleep_range(1000, 2000);
	if (told(f->received, RECVS) == RECVS && !told(f->sent, SENDS))
		return 0;
	pr_err("rsiw_kverbs_test: %u of %u receives and %u Sends are flushed while nobody polls the latter\n",
	       told(f->received, RECVS), RECVS, told(f->sent, SENDS));
	return -EIO;
}

/* The queue has not been polled yet, so there was no room for most of them. */
static int full_expect(struct full *f)
{
	unsigned long end = jiffies + KV_WAIT;

	while (full_told(f) < SENDS + RECVS && time_before(jiffies, end)) {
		ib_process_cq_direct(f->cq, -1);
		usleep_range(1000, 2000);
	}
	if (full_told(f) < SENDS + RECVS) {
		pr_err("rsiw_kverbs_test: of %u requests %u were flushed through a queue of %u\n",
		       SENDS + RECVS, full_told(f), PLACES);
		return -EIO;
	}
	return in_order(f->sent, SENDS);
}

static int full(struct ib_device *dev, bool apart)
{
	struct full *f = kzalloc_obj(*f);
	int err, i;

	if (!f)
		return -ENOMEM;
	for (i = 0; i < SENDS; i++)
		f->sent[i] = kv_wait_new();
	for (i = 0; i < RECVS; i++)
		f->received[i] = kv_wait_new();
	err = full_open(f, dev, apart);
	err = err ?: full_post(f);
	if (!err && apart)
		err = full_expect_receives(f);
	err = err ?: full_expect(f);
	full_close(f);
	kfree(f);
	return err;
}

int kv_full(struct ib_device *dev)
{
	return full(dev, false) ?: full(dev, true);
}

/* One post of all requests: the others are behind the Read when the peer's Terminate arrives. */
static int cut_post(struct kv_region *sink, struct kv_wait *read, struct kv_wait **held)
{
	struct ib_sge sge = { .length = CUT_LEN };
	struct ib_rdma_wr first = {
		.wr = {
			.opcode = IB_WR_RDMA_READ, .wr_cqe = &read->cqe,
			.send_flags = IB_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1,
		},
		.rkey = 0xbad00,
	};
	struct ib_rdma_wr *wrs = kcalloc(SENDS, sizeof(*wrs), GFP_KERNEL);
	struct ib_reg_wr reg;
	int err = -ENOMEM, i;

	if (wrs)
		err = kv_region_wr(sink, &reg);
	if (err)
		goto out;
	reg.wr.wr_cqe = &kv_wait_new()->cqe;
	reg.wr.next = &first.wr;
	sge.addr = sink->mr->iova;
	sge.lkey = sink->mr->rkey;
	first.wr.next = &wrs[0].wr;
	for (i = 0; i < SENDS; i++) {
		wrs[i].wr.opcode = IB_WR_RDMA_WRITE;
		wrs[i].wr.wr_cqe = &held[i]->cqe;
		wrs[i].wr.next = i + 1 < SENDS ? &wrs[i + 1].wr : NULL;
	}
	err = ib_post_send(sink->end->id->qp, &reg.wr, NULL);
out:
	kfree(wrs);
	return err;
}

static int cut_expect(struct kv_end *e, struct kv_wait *read, struct kv_wait **held)
{
	unsigned long end = jiffies + KV_WAIT;

	/* Not polled before the connection has ended. */
	while (!READ_ONCE(e->fatal) && time_before(jiffies, end))
		usleep_range(1000, 2000);
	while ((read->times != 1 || told(held, SENDS) < SENDS) && time_before(jiffies, end)) {
		ib_process_cq_direct(e->cq, -1);
		usleep_range(1000, 2000);
	}
	if (!e->fatal || read->times != 1 || told(held, SENDS) < SENDS) {
		pr_err("rsiw_kverbs_test: a connection that ended: %s, a Read told %u times, %u of %u Writes\n",
		       e->fatal ? "fatal" : "not fatal", read->times, told(held, SENDS), SENDS);
		return -EIO;
	}
	if (read->wc.status != IB_WC_REM_ACCESS_ERR || held[0]->turn < read->turn) {
		pr_err("rsiw_kverbs_test: a Read that the peer refused: %s\n", ib_wc_status_msg(read->wc.status));
		return -EIO;
	}
	return in_order(held, SENDS);
}

int kv_cut(const struct sockaddr *to)
{
	const struct kv_how how = { .poll = IB_POLL_DIRECT, .cqe = PLACES };
	struct kv_pair *p = kzalloc(sizeof(*p), GFP_KERNEL);
	struct kv_region *sink = kzalloc(sizeof(*sink), GFP_KERNEL);
	struct kv_wait *read = kv_wait_new(), *held[SENDS];
	int err = -ENOMEM, i;

	if (!p || !sink)
		goto out;
	for (i = 0; i < SENDS; i++)
		held[i] = kv_wait_new();
	err = kv_connect(p, to, &how);
	if (err)
		goto out;
	err = kv_region_open(sink, &p->a);
	err = err ?: cut_post(sink, read, held);
	err = err ?: cut_expect(&p->a, read, held);
	ib_drain_qp(p->a.id->qp);
	kv_region_close(sink);
	kv_disconnect(p);
out:
	kfree(sink);
	kfree(p);
	return err;
}
