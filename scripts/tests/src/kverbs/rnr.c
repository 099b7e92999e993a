// SPDX-License-Identifier: GPL-2.0
/*
 * Receiver not ready: a Send that finds no receive is delivered when one is posted. If none is
 * posted in time, the sender's oldest incomplete Send fails with IB_WC_RNR_RETRY_EXC_ERR.
 * ib_drain_qp() ends the hold, and the connection.
 *
 * A post starts a look for receives. Without it the timer's look, after up to 32 ms once a hold is 2 s
 * old, finds the receive.
 */
#include <linux/delay.h>
#include <linux/irqflags.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/slab.h>
#include <linux/sort.h>

#include "kverbs.h"

#define RNR_LEN		(256 * 1024)
#define RNR_SENDS	48		/* more than TCP's two ends take */
#define RNR_HELD_MS	100
#define RNR_DRAIN_MS	5000		/* half of the module's rnr_timeout_ms */
#define RNR_OLD_MS	2100
#define RNR_PAIRS	7		/* with a hold of that age */
#define RNR_SOON_US	5000		/* the median of the timer alone is 16 ms */
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

static int compare(const void *a, const void *b)
{
	s64 x = *(const s64 *)a, y = *(const s64 *)b;

	return (x > y) - (x < y);
}

/*
 * The receive of a hold of RNR_OLD_MS completes soon after its post. On a busy machine the message itself is late:
 * the limit is beyond twice the median of messages whose receives are posted.
 */
static int found_at_once(const struct sockaddr *to, enum ib_poll_context poll, unsigned int factor)
{
	struct kv_pair *p = kvcalloc(RNR_PAIRS, sizeof(*p), GFP_KERNEL);
	struct ib_qp_attr for_ever = { .min_rnr_timer = RNR_TIMER, .rnr_retry = 7 };
	struct ib_recv_wr recv = {};
	s64 took[RNR_PAIRS] = {}, usual[RNR_PAIRS] = {}, late, at_ease;
	struct kv_wait *w, *sent;
	int i, err = 0, open = 0;
	ktime_t begun;

	if (!p)
		return -ENOMEM;
	while (!err && open < RNR_PAIRS) {
		err = kv_connect(&p[open], to, &(struct kv_how){ .poll = poll });
		open += !err;
	}
	for (i = 0; !err && i < RNR_PAIRS; i++) {
		struct ib_sge none = { .lkey = p[i].a.pd->local_dma_lkey };

		err = ib_modify_qp(p[i].b.id->qp, &for_ever, IB_QP_MIN_RNR_TIMER | IB_QP_RNR_RETRY);
		err = err ?: post(&p[i].a, &none, &w) ?: kv_wait_for(w, "Send of an old hold");
	}
	msleep(RNR_OLD_MS);
	for (i = 0; !err && i < RNR_PAIRS; i++) {
		w = kv_wait_new();
		recv.wr_cqe = &w->cqe;
		begun = ktime_get();
		err = ib_post_recv(p[i].b.id->qp, &recv, NULL) ?: kv_wait_for(w, "receive of an old hold") ?:
		      kv_expect(w, "receive of an old hold");
		took[i] = ktime_us_delta(ktime_get(), begun);
	}
	for (i = 0; !err && i < RNR_PAIRS; i++) {
		struct ib_sge none = { .lkey = p[i].a.pd->local_dma_lkey };

		w = kv_wait_new();
		recv.wr_cqe = &w->cqe;
		err = ib_post_recv(p[i].b.id->qp, &recv, NULL);
		begun = ktime_get();
		err = err ?: post(&p[i].a, &none, &sent) ?: kv_wait_for(w, "message") ?: kv_expect(w, "message");
		usual[i] = ktime_us_delta(ktime_get(), begun);
	}
	sort(took, RNR_PAIRS, sizeof(*took), compare, NULL);
	sort(usual, RNR_PAIRS, sizeof(*usual), compare, NULL);
	late = took[RNR_PAIRS / 2];
	at_ease = usual[RNR_PAIRS / 2];
	if (!err) {
		pr_info("rsiw_kverbs_test: receives %d ms late are found in %lld us, messages take %lld us\n",
			RNR_OLD_MS, late, at_ease);
		if (late > RNR_SOON_US * factor + 2 * at_ease) {
			pr_err("rsiw_kverbs_test: that is late\n");
			err = -ETIMEDOUT;
		}
	}
	while (open--)
		kv_disconnect(&p[open]);
	kvfree(p);
	return err;
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

int kv_rnr(const struct sockaddr *to, enum ib_poll_context poll, unsigned int factor)
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
	err = err ?: found_at_once(to, poll, factor);
out:
	kfree(into);
	kfree(from);
	kfree(p);
	return err;
}
