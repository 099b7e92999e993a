// SPDX-License-Identifier: GPL-2.0
/*
 * Completion queues without ib_core's polling, whose handlers post, as those of krping do. The
 * handler sends each received message back, and posts the receive again. At the end it gets the
 * flushed completions, and posts even then. A driver that calls the handler with a lock that a
 * post takes would hang. The driver must not call it for one queue on two processors, or from
 * inside of a post (Documentation/infiniband/core_locking.rst).
 */
#include <linux/delay.h>
#include <linux/ktime.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "kverbs.h"

#define BALLS		4		/* messages on their way at a time */
#define BOUNCES		1000		/* of each */
#define RECVS		16		/* receives of an end, as many as it holds */
#define SENT		RECVS		/* the wr_id of a Send; a receive has its number */
#define REPOSTS		64		/* receives that an end posts for flushed ones */
#define LIMIT_S		30

struct ball {
	u32 number, turn;
};

struct bounce;

struct side {
	struct bounce *bounce;
	struct kv_end *end;
	struct ball in[RECVS], out[RECVS];
	bool arms_first;		/* and takes completions then, or the other way round */
	atomic_t inside;		/* handlers at work */
	atomic_t under_way;		/* requests */
	atomic_t nr_reposts;
};

struct bounce {
	struct kv_pair pair;
	struct side side[2];
	struct ball first[BALLS];
	u32 turn[BALLS];		/* changed by the end that has the ball */
	atomic_t flying;
	bool ending, overlapped;
	int err;
	/* Handlers may run in these threads: if one hangs, another thread reports it. */
	struct work_struct serve, hang_up;
};

static void fail(struct bounce *b, const char *what, int err)
{
	/* The first error is the cause of later ones. */
	if (!cmpxchg(&b->err, 0, err))
		pr_err("rsiw_kverbs_test: a handler that posts: %s: %d\n", what, err);
}

static int post_recv(struct side *s, unsigned int number)
{
	struct ib_sge sge = {
		.addr = (uintptr_t)&s->in[number], .length = sizeof(s->in[number]),
		.lkey = s->end->pd->local_dma_lkey,
	};
	struct ib_recv_wr wr = { .wr_id = number, .sg_list = &sge, .num_sge = 1 };
	int err;

	atomic_inc(&s->under_way);
	err = ib_post_recv(s->end->id->qp, &wr, NULL);
	if (err)
		atomic_dec(&s->under_way);
	return err;
}

static int post_send(struct side *s, const struct ball *ball)
{
	struct ib_sge sge = {
		.addr = (uintptr_t)ball, .length = sizeof(*ball), .lkey = s->end->pd->local_dma_lkey,
	};
	struct ib_send_wr wr = {
		.wr_id = SENT, .opcode = IB_WR_SEND, .send_flags = IB_SEND_SIGNALED,
		.sg_list = &sge, .num_sge = 1,
	};
	int err;

	atomic_inc(&s->under_way);
	err = ib_post_send(s->end->id->qp, &wr, NULL);
	if (err)
		atomic_dec(&s->under_way);
	return err;
}

static void received(struct side *s, const struct ib_wc *wc)
{
	struct bounce *b = s->bounce;
	/* The message sent from there has long been received: a later ball proves it. */
	struct ball *ball = &s->out[wc->wr_id];
	bool last;
	int err;

	*ball = s->in[wc->wr_id];
	if (wc->byte_len != sizeof(*ball) || ball->number >= BALLS || ball->turn != b->turn[ball->number]) {
		fail(b, "not what was sent", -EIO);
		return;
	}
	b->turn[ball->number] = ++ball->turn;
	last = ball->turn == BOUNCES;
	err = post_recv(s, wc->wr_id);
	if (!err && !last)
		err = post_send(s, ball);
	if (err && !READ_ONCE(b->ending))
		fail(b, "posting", err);
	/* Counted after the post: when the last ball rests, all receives are posted. */
	if (last)
		atomic_dec(&b->flying);
}

static void failed(struct side *s, const struct ib_wc *wc, bool alone)
{
	bool recv = wc->wr_id < RECVS;

	if (!READ_ONCE(s->bounce->ending))
		fail(s->bounce, ib_wc_status_msg(wc->status), -ECONNABORTED);
	else if (recv && wc->status != IB_WC_WR_FLUSH_ERR)
		fail(s->bounce, ib_wc_status_msg(wc->status), -EIO);
	/* The post may be refused, or flushed at once. A nested handler posts nothing. */
	if (recv && alone && atomic_inc_return(&s->nr_reposts) <= REPOSTS)
		post_recv(s, wc->wr_id);
}

static void on_completions(struct ib_cq *cq, void *context)
{
	struct kv_end *e = context;
	struct side *s = e->mine;
	bool alone = atomic_inc_return(&s->inside) == 1;
	struct ib_wc wc;

	if (!alone)
		WRITE_ONCE(s->bounce->overlapped, true);
	if (s->arms_first)
		ib_req_notify_cq(cq, IB_CQ_NEXT_COMP);
	do {
		while (ib_poll_cq(cq, 1, &wc) > 0) {
			if (wc.status != IB_WC_SUCCESS)
				failed(s, &wc, alone);
			else if (wc.wr_id < RECVS)
				received(s, &wc);
			/* Counted after the posts: with no request under way there is no further handler. */
			atomic_dec(&s->under_way);
		}
	} while (!s->arms_first && ib_req_notify_cq(cq, IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS) > 0);
	atomic_dec(&s->inside);
}

static bool at_rest(const struct bounce *b)
{
	return !atomic_read(&b->flying) || READ_ONCE(b->err);
}

static bool side_over(const struct side *s)
{
	return !atomic_read(&s->under_way) && !atomic_read(&s->inside);
}

static bool over(const struct bounce *b)
{
	return side_over(&b->side[0]) && side_over(&b->side[1]);
}

static void show(const struct bounce *b)
{
	unsigned int i, nr = 0;

	for (i = 0; i < BALLS; i++)
		nr += READ_ONCE(b->turn[i]);
	pr_err("rsiw_kverbs_test: %u of %u Sends received\n", nr, BALLS * BOUNCES);
	for (i = 0; i < 2; i++)
		pr_err("rsiw_kverbs_test: the %s end: %d calls of the handler have not returned, %d requests have no completion\n",
		       i ? "accepting" : "connecting", atomic_read(&b->side[i].inside),
		       atomic_read(&b->side[i].under_way));
}

/*
 * Waits in short sleeps, which interrupts end. A wait for a completion would need a softirq, and a
 * processor that hangs in a handler runs none.
 */
static int await(const struct bounce *b, bool (*done)(const struct bounce *b), const char *what)
{
	ktime_t end = ktime_add_ms(ktime_get(), LIMIT_S * MSEC_PER_SEC);

	while (!done(b)) {
		if (ktime_after(ktime_get(), end)) {
			pr_err("rsiw_kverbs_test: handlers that post: after %d s still not %s\n", LIMIT_S, what);
			show(b);
			return -ETIMEDOUT;
		}
		usleep_range(1000, 2000);
	}
	return READ_ONCE(b->err);
}

static void serve_work(struct work_struct *work)
{
	struct bounce *b = container_of(work, struct bounce, serve);
	unsigned int i;
	int err = 0;

	for (i = 0; !err && i < BALLS; i++) {
		b->first[i].number = i;
		err = post_send(&b->side[0], &b->first[i]);
	}
	if (err)
		fail(b, "the first Sends", err);
}

static void hang_up_work(struct work_struct *work)
{
	kv_hang_up(&container_of(work, struct bounce, hang_up)->pair);
}

static int play(struct bounce *b)
{
	unsigned int i, number;
	int err = 0;

	atomic_set(&b->flying, BALLS);
	for (i = 0; !err && i < 2; i++) {
		struct side *s = &b->side[i];

		s->bounce = b;
		s->end = i ? &b->pair.b : &b->pair.a;
		s->end->mine = s;
		s->arms_first = i;
		err = ib_req_notify_cq(s->end->cq, IB_CQ_NEXT_COMP);
		for (number = 0; !err && number < RECVS; number++)
			err = post_recv(s, number);
	}
	if (err) {
		pr_err("rsiw_kverbs_test: receives for a handler that posts: %d\n", err);
		return err;
	}
	queue_work(system_dfl_wq, &b->serve);
	return await(b, at_rest, "all messages sent back and forth");
}

int kv_handler(const struct sockaddr *to, bool overlap)
{
	const struct kv_how how = { .handler = on_completions };
	struct bounce *b = kzalloc(sizeof(*b), GFP_KERNEL);
	int err;

	if (!b)
		return -ENOMEM;
	INIT_WORK(&b->serve, serve_work);
	INIT_WORK(&b->hang_up, hang_up_work);
	err = kv_connect(&b->pair, to, &how);
	if (err)
		goto out;
	err = play(b);
	WRITE_ONCE(b->ending, true);
	queue_work(system_dfl_wq, &b->hang_up);
	/* Waits after a failure, too: no thread may post to objects that are destroyed next. */
	err = await(b, over, "everything flushed") ?: err;
	flush_work(&b->serve);
	flush_work(&b->hang_up);
	kv_disconnect(&b->pair);
	if (!err && !over(b)) {
		pr_err("rsiw_kverbs_test: handlers that post: more completions than requests\n");
		err = -EIO;
	}
	if (!err && b->overlapped && !overlap) {
		pr_err("rsiw_kverbs_test: a completion handler was called while it ran for the same queue\n");
		err = -EIO;
	}
out:
	kfree(b);
	return err;
}
