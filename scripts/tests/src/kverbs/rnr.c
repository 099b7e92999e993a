// SPDX-License-Identifier: GPL-2.0
/*
 * Receiver not ready: a Send that finds no receive is delivered when one is posted. If none is
 * posted in time, the sender's oldest incomplete Send fails with IB_WC_RNR_RETRY_EXC_ERR.
 * ib_drain_qp() ends the hold, and the connection.
 */
#include <linux/delay.h>
#include <linux/irqflags.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/slab.h>

#include "kverbs.h"

#define RNR_LEN		(256 * 1024)
#define RNR_SENDS	48		/* more than TCP's two ends take */
#define RNR_HELD_MS	100
#define RNR_DRAIN_MS	5000		/* half of the module's rnr_timeout_ms */
#define RNR_TIMER	30		/* 327.68 ms: all Sends are posted before */

static int post(struct kv_end *e, struct ib_sge *sge, struct kv_wait **w)
{
	struct ib_send_wr send = {
		.opcode = IB_WR_SEND, .send_flags = IB_SEND_SIGNALED, .sg_list = sge, .num_sge = 1,
	};

	*w = kv_wait_new();
	send.wr_cqe = &(*w)->cqe;
	return ib_post_send(e->id->qp, &send, NULL);
}

/* Every second receive is posted with interrupts off. */
static int delivered_late(struct kv_pair *p, struct ib_sge *from, struct ib_sge *to)
{
	struct kv_wait *sent, *received;
	struct ib_recv_wr recv = { .sg_list = to, .num_sge = 1 };
	unsigned long flags = 0;
	int i, err;

	for (i = 0; i < 4; i++) {
		memset((void *)(uintptr_t)to->addr, 0, to->length);
		received = kv_wait_new();
		recv.wr_cqe = &received->cqe;
		err = post(&p->a, from, &sent) ?: kv_wait_for(sent, "Send without a receive") ?:
		      kv_expect(sent, "Send without a receive");
		if (err)
			return err;
		msleep(RNR_HELD_MS);
		if (i & 1)
			local_irq_save(flags);
		err = ib_post_recv(p->b.id->qp, &recv, NULL);
		if (i & 1)
			local_irq_restore(flags);
		err = err ?: kv_wait_for(received, "late receive") ?: kv_expect(received, "late receive");
		if (err)
			return err;
		if (received->wc.byte_len != from->length) {
			pr_err("rsiw_kverbs_test: a late receive of %u octets\n", received->wc.byte_len);
			return -EIO;
		}
		if (memcmp((void *)(uintptr_t)from->addr, (void *)(uintptr_t)to->addr, from->length)) {
			pr_err("rsiw_kverbs_test: late receive %d has other octets\n", i);
			return -EIO;
		}
	}
	return 0;
}

static int ended_in_time(struct kv_pair *p, struct ib_sge *from)
{
	struct ib_qp_attr attr = { .min_rnr_timer = RNR_TIMER, .rnr_retry = 1 };
	struct kv_wait *sent[RNR_SENDS];
	enum ib_wc_status want;
	bool failed = false;
	int i, err;

	err = ib_modify_qp(p->b.id->qp, &attr, IB_QP_MIN_RNR_TIMER | IB_QP_RNR_RETRY);
	for (i = 0; !err && i < RNR_SENDS; i++)
		err = post(&p->a, from, &sent[i]);
	for (i = 0; !err && i < RNR_SENDS; i++) {
		err = kv_wait_for(sent[i], "Send without a receive in time");
		if (err || (!failed && sent[i]->wc.status == IB_WC_SUCCESS))
			continue;
		want = failed ? IB_WC_WR_FLUSH_ERR : IB_WC_RNR_RETRY_EXC_ERR;
		failed = true;
		if (sent[i]->wc.status != want) {
			pr_err("rsiw_kverbs_test: Send %d without a receive in time: %s\n", i,
			       ib_wc_status_msg(sent[i]->wc.status));
			err = -EIO;
		}
	}
	if (!err && !failed) {
		pr_err("rsiw_kverbs_test: all Sends without a receive succeeded\n");
		err = -EIO;
	}
	return err;
}

static int in_error(struct kv_end *e, const char *what)
{
	unsigned long end = jiffies + msecs_to_jiffies(RNR_DRAIN_MS);
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;
	int err;

	do {
		err = ib_query_qp(e->id->qp, &attr, IB_QP_STATE, &init);
		if (err || attr.qp_state == IB_QPS_ERR)
			return err;
		usleep_range(1000, 2000);
	} while (time_before(jiffies, end));
	pr_err("rsiw_kverbs_test: %s: state %d\n", what, attr.qp_state);
	return -ETIMEDOUT;
}

/* @holder has a Send without a receive, and drains. */
static int drained(struct kv_end *sender, struct kv_end *holder, const char *what)
{
	struct ib_sge none = { .lkey = sender->pd->local_dma_lkey };
	struct kv_wait *sent;
	ktime_t begun;
	int err;

	err = post(sender, &none, &sent) ?: kv_wait_for(sent, what) ?: kv_expect(sent, what);
	if (err)
		return err;
	msleep(RNR_HELD_MS);
	begun = ktime_get();
	ib_drain_qp(holder->id->qp);
	if (ktime_ms_delta(ktime_get(), begun) > RNR_DRAIN_MS) {
		pr_err("rsiw_kverbs_test: %s: ib_drain_qp() took %lld ms\n", what, ktime_ms_delta(ktime_get(), begun));
		return -ETIMEDOUT;
	}
	return in_error(holder, what) ?: in_error(sender, what);
}

/* With an SRQ the connecting end holds. The accepting end may send after the first message (RFC 5044 7.1.2). */
static int drained_pair(const struct sockaddr *to, enum ib_poll_context poll, bool srq)
{
	const char *what = srq ? "drain of a held Send, with an SRQ" : "drain of a held Send";
	struct kv_pair *p = kzalloc(sizeof(*p), GFP_KERNEL);
	struct kv_wait *received;
	struct ib_recv_wr recv = {};
	struct ib_send_wr send = { .opcode = IB_WR_SEND };
	int err;

	if (!p)
		return -ENOMEM;
	err = kv_connect(p, to, &(struct kv_how){ .poll = poll, .srq = srq });
	if (err)
		goto out;
	if (srq) {
		received = kv_wait_new();
		recv.wr_cqe = &received->cqe;
		err = ib_post_recv(p->b.id->qp, &recv, NULL);
		err = err ?: kv_post_and_wait(&p->a, &send, &send, what);
		err = err ?: kv_wait_for(received, what) ?: kv_expect(received, what);
		err = err ?: drained(&p->b, &p->a, what);
	} else {
		err = drained(&p->a, &p->b, what);
	}
	kv_disconnect(p);
out:
	kfree(p);
	return err;
}

int kv_rnr(const struct sockaddr *to, enum ib_poll_context poll)
{
	struct kv_pair *p = kzalloc(sizeof(*p), GFP_KERNEL);
	u8 *from = kzalloc(RNR_LEN, GFP_KERNEL), *into = kzalloc(RNR_LEN, GFP_KERNEL);
	struct ib_sge source = { .addr = (uintptr_t)from, .length = 4096 };
	struct ib_sge sink = { .addr = (uintptr_t)into, .length = RNR_LEN };
	int err = -ENOMEM;

	if (!p || !from || !into)
		goto out;
	err = kv_connect(p, to, &(struct kv_how){ .poll = poll });
	if (err)
		goto out;
	source.lkey = p->a.pd->local_dma_lkey;
	sink.lkey = p->b.pd->local_dma_lkey;
	kv_random_bytes(from, RNR_LEN);
	err = delivered_late(p, &source, &sink);
	source.length = RNR_LEN;
	err = err ?: ended_in_time(p, &source);
	kv_disconnect(p);
	err = err ?: drained_pair(to, poll, false) ?: drained_pair(to, poll, true);
out:
	kfree(into);
	kfree(from);
	kfree(p);
	return err;
}
