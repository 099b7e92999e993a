// SPDX-License-Identifier: GPL-2.0
/*
 * IB_EVENT_QP_LAST_WQE_REACHED: a queue pair takes nothing more from its shared receive queue. Its
 * owner gets the event once, whichever end closes the connection, and also without a connection.
 * ib_drain_qp() waits up to a minute for the event, and delays the end of a transport meanwhile.
 */
#include <linux/delay.h>
#include <linux/ktime.h>
#include <linux/slab.h>

#include "kverbs.h"

#define SRQ_POSTED	8		/* receives, */
#define SRQ_TAKEN	4		/* so many of which find a message */
#define SRQ_SOON_MS	5000
#define SRQ_AGAIN_MS	50		/* in which a second event would come */

enum srq_life {
	SRQ_NEVER_CONNECTED,
	SRQ_DRAINED,			/* while connected */
	SRQ_LEFT,			/* by the peer, and drained then */
	SRQ_LIVES
};

static const char *const name[SRQ_LIVES] = { "never connected", "connected", "left by its peer" };

static int supply(struct kv_end *e, struct kv_wait *received[SRQ_POSTED])
{
	struct ib_recv_wr recv = {};
	int i, err = 0;

	for (i = 0; !err && i < SRQ_POSTED; i++) {
		received[i] = kv_wait_new();
		recv.wr_cqe = &received[i]->cqe;
		err = ib_post_srq_recv(e->srq, &recv, NULL);
	}
	if (err)
		pr_err("rsiw_kverbs_test: posting to a shared receive queue: %d\n", err);
	return err;
}

/* The accepting end may not send before something came (RFC 5044 7.1.2). */
static int talk(struct kv_pair *p, struct kv_wait *const received[SRQ_POSTED])
{
	struct kv_wait *asked = kv_wait_new();
	struct ib_recv_wr recv = {};
	struct ib_send_wr send = { .opcode = IB_WR_SEND };
	int i, err;

	recv.wr_cqe = &asked->cqe;
	err = ib_post_recv(p->b.id->qp, &recv, NULL);
	err = err ?: kv_post_and_wait(&p->a, &send, &send, "Send of an end with a shared receive queue");
	err = err ?: kv_wait_for(asked, "its receive");
	err = err ?: kv_expect(asked, "its receive");
	for (i = 0; !err && i < SRQ_TAKEN; i++) {
		err = kv_post_and_wait(&p->b, &send, &send, "Send to a shared receive queue");
		err = err ?: kv_wait_for(received[i], "shared receive");
		err = err ?: kv_expect(received[i], "shared receive");
	}
	return err;
}

static int is_told(struct kv_end *e, enum srq_life life)
{
	if (wait_for_completion_timeout(&e->last, msecs_to_jiffies(SRQ_SOON_MS)))
		return 0;
	pr_err("rsiw_kverbs_test: shared receive queue, %s: the owner was not told of the last receive\n",
	       name[life]);
	return -ETIMEDOUT;
}

static int drain_is_short(struct kv_end *e, enum srq_life life)
{
	ktime_t begun = ktime_get();
	s64 ms;

	ib_drain_qp(e->id->qp);
	ms = ktime_ms_delta(ktime_get(), begun);
	if (ms <= SRQ_SOON_MS)
		return 0;
	pr_err("rsiw_kverbs_test: shared receive queue, %s: ib_drain_qp() took %lld ms, more than %d\n",
	       name[life], ms, SRQ_SOON_MS);
	return -ETIMEDOUT;
}

static int one_life(const struct sockaddr *to, enum ib_poll_context poll, enum srq_life life)
{
	const struct kv_how how = { .poll = poll, .srq = true };
	struct ib_qp_attr down = { .qp_state = IB_QPS_ERR };
	struct kv_wait *received[SRQ_POSTED];
	struct kv_pair *p = kzalloc(sizeof(*p), GFP_KERNEL);
	int err;

	if (!p)
		return -ENOMEM;
	err = life == SRQ_NEVER_CONNECTED ? kv_route(p, to, &how) : kv_connect(p, to, &how);
	if (err)
		goto out;
	err = supply(&p->a, received);
	if (!err && life != SRQ_NEVER_CONNECTED)
		err = talk(p, received);
	if (!err && life == SRQ_LEFT) {
		rdma_disconnect(p->b.id);
		err = is_told(&p->a, life);
	}
	err = err ?: drain_is_short(&p->a, life);
	/* The drain is notified before the owner. */
	err = err ?: is_told(&p->a, life);
	/* A second change to the error state, and the destruction, bring no second event. */
	err = err ?: ib_modify_qp(p->a.id->qp, &down, IB_QP_STATE);
	msleep(SRQ_AGAIN_MS);
	kv_disconnect(p);
	if (!err && atomic_read(&p->a.nr_last) != 1) {
		pr_err("rsiw_kverbs_test: shared receive queue, %s: the owner was told %d times of the last receive\n",
		       name[life], atomic_read(&p->a.nr_last));
		err = -EIO;
	}
out:
	kfree(p);
	return err;
}

int kv_srq(const struct sockaddr *to, enum ib_poll_context poll)
{
	enum srq_life life;
	int err = 0;

	for (life = 0; !err && life < SRQ_LIVES; life++)
		err = one_life(to, poll, life);
	return err;
}
