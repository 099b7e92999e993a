// SPDX-License-Identifier: GPL-2.0
/* Requests posted to a queue pair in error, as drivers post them: some with interrupts off. */
#include <linux/irqflags.h>

#include "kverbs.h"

#define LATE	8		/* requests posted in one go, to each queue */

struct late {
	struct kv_wait *sent[LATE], *received[LATE];
	struct ib_send_wr send[LATE];
	struct ib_recv_wr recv[LATE];
};

static void late_init(struct late *l)
{
	int i;

	memset(l, 0, sizeof(*l));
	for (i = 0; i < LATE; i++) {
		l->sent[i] = kv_wait_new();
		l->received[i] = kv_wait_new();
		l->send[i] = (struct ib_send_wr){
			.wr_cqe = &l->sent[i]->cqe, .opcode = IB_WR_SEND, .send_flags = IB_SEND_SIGNALED,
			.next = i + 1 < LATE ? &l->send[i + 1] : NULL,
		};
		l->recv[i] = (struct ib_recv_wr){
			.wr_cqe = &l->received[i]->cqe, .next = i + 1 < LATE ? &l->recv[i + 1] : NULL,
		};
	}
}

/* Each has been completed once. */
static int late_once(struct kv_wait *const w[LATE], const char *what)
{
	int i;

	for (i = 0; i < LATE; i++) {
		if (w[i]->times != 1) {
			pr_err("rsiw_kverbs_test: %s %d: completed %u times\n", what, i, w[i]->times);
			return -EIO;
		}
	}
	return 0;
}

/* Each has been flushed, and after the one before it. */
static int late_expect(struct kv_wait *const w[LATE], const char *what)
{
	int i, err;

	for (i = 0; i < LATE; i++) {
		err = kv_wait_for(w[i], what);
		if (err)
			return err;
		if (w[i]->wc.status != IB_WC_WR_FLUSH_ERR) {
			pr_err("rsiw_kverbs_test: %s %d: %s\n", what, i, ib_wc_status_msg(w[i]->wc.status));
			return -EIO;
		}
		if (i && w[i]->turn < w[i - 1]->turn) {
			pr_err("rsiw_kverbs_test: %s %d: before the one posted earlier\n", what, i);
			return -EIO;
		}
	}
	return 0;
}

static int late_posts(struct kv_end *e, bool irqs)
{
	unsigned long flags = 0;
	struct late l;
	bool off;
	int err;

	late_init(&l);
	if (!irqs)
		local_irq_save(flags);
	err = ib_post_recv(e->id->qp, l.recv, NULL);
	err = err ?: ib_post_send(e->id->qp, l.send, NULL);
	off = irqs_disabled();
	if (!irqs)
		local_irq_restore(flags);
	if (err) {
		pr_err("rsiw_kverbs_test: posting to a queue pair in error: %d\n", err);
		return err;
	}
	if (off == irqs) {
		pr_err("rsiw_kverbs_test: a post has turned interrupts %s\n", off ? "off" : "on");
		return -EIO;
	}
	err = late_expect(l.sent, irqs ? "late Send" : "late Send with interrupts off");
	err = err ?: late_expect(l.received, irqs ? "late receive" : "late receive with interrupts off");
	if (err)
		return err;
	/* The drain's request completes behind all earlier ones, a second completion included. */
	ib_drain_qp(e->id->qp);
	err = late_once(l.sent, "late Send");
	return err ?: late_once(l.received, "late receive");
}

/* @e has been drained, so it is in error. */
int kv_late(struct kv_end *e)
{
	int i, err = 0;

	for (i = 0; !err && i < 4; i++)
		err = late_posts(e, i & 1);
	return err;
}
