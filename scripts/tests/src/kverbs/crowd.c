// SPDX-License-Identifier: GPL-2.0
/*
 * Several threads post to one queue pair, each after the completion of its last request. Every
 * message is sent, by any of the threads, and arrives whole.
 */
#include "kverbs.h"

#include <linux/slab.h>
#include <linux/workqueue.h>

#define CROWD		4u
#define CROWD_SLICE	(64u << 10)		/* of one thread */
#define CROWD_SIZE	(CROWD * CROWD_SLICE)

struct crowd;

struct member {
	struct work_struct work;
	struct crowd *crowd;
	struct kv_wait *written, *read;
	unsigned int number;
	int err;
};

struct crowd {
	struct kv_end *end;
	struct member member[CROWD];
	struct ib_mr *there, *here;	/* of @target, of @back */
	u8 *source, *target, *back;
	unsigned int rounds;
};

/* Octets that differ between rounds and between threads. */
static void fill(u8 *at, u32 len, u32 number, u32 round)
{
	u32 i;

	for (i = 0; i < len; i++)
		at[i] = 0x3d * (i + round) + (i >> 8) + number;
}

/* Many lengths of one segment, some of a burst or more. */
static u32 length_of(u32 number, u32 round)
{
	return (round + number) % 5 ? 1 + (97 * round + number) % 1000 : CROWD_SLICE - (round % 7);
}

static int post(struct member *m, struct ib_rdma_wr *wr, const char *what)
{
	int err = ib_post_send(m->crowd->end->id->qp, &wr->wr, NULL);

	if (err)
		pr_err("rsiw_kverbs_test: posting %s of a crowd: %d\n", what, err);
	return err;
}

static int one_round(struct member *m, u32 round)
{
	struct crowd *c = m->crowd;
	u32 at = m->number * CROWD_SLICE, len = length_of(m->number, round);
	struct ib_sge from = { .addr = (uintptr_t)c->source + at, .length = len, .lkey = c->end->pd->local_dma_lkey };
	struct ib_sge to = { .addr = c->here->iova + at, .length = len, .lkey = c->here->lkey };
	struct ib_rdma_wr write = {
		.wr = {
			.wr_cqe = &m->written->cqe, .opcode = IB_WR_RDMA_WRITE, .send_flags = IB_SEND_SIGNALED,
			.sg_list = &from, .num_sge = 1,
		},
		.remote_addr = c->there->iova + at, .rkey = c->there->rkey,
	};
	struct ib_rdma_wr read = {
		.wr = {
			.wr_cqe = &m->read->cqe, .opcode = IB_WR_RDMA_READ, .send_flags = IB_SEND_SIGNALED,
			.sg_list = &to, .num_sge = 1,
		},
		.remote_addr = c->there->iova + at, .rkey = c->there->rkey,
	};
	int err;

	fill(c->source + at, len, m->number, round);
	reinit_completion(&m->written->done);
	reinit_completion(&m->read->done);
	err = post(m, &write, "a Write");
	/* Now and then the next post comes when no thread transmits. */
	if (!err && round & 1)
		err = kv_wait_for(m->written, "a Write of a crowd");
	err = err ?: post(m, &read, "a Read");
	err = err ?: kv_wait_for(m->read, "a Read of a crowd");
	err = err ?: kv_expect(m->read, "a Read of a crowd");
	if (err)
		return err;
	if (memcmp(c->source + at, c->back + at, len)) {
		pr_err("rsiw_kverbs_test: thread %u of a crowd, round %u: octets differ\n", m->number, round);
		return -EIO;
	}
	return 0;
}

static void member_work(struct work_struct *work)
{
	struct member *m = container_of(work, struct member, work);
	u32 round;

	for (round = 0; !m->err && round < m->crowd->rounds; round++)
		m->err = one_round(m, round);
}

static int crowd_register(struct kv_end *e, struct ib_mr **mr, u8 *at)
{
	struct ib_reg_wr reg = { .wr.opcode = IB_WR_REG_MR };
	struct scatterlist sg;
	int taken;

	*mr = ib_alloc_mr(e->pd, IB_MR_TYPE_MEM_REG, CROWD_SIZE / PAGE_SIZE);
	if (IS_ERR(*mr))
		return PTR_ERR(*mr);
	sg_init_one(&sg, at, CROWD_SIZE);
	if (ib_dma_map_sg(e->id->device, &sg, 1, DMA_BIDIRECTIONAL) != 1)
		return -ENOMEM;
	taken = ib_map_mr_sg(*mr, &sg, 1, NULL, PAGE_SIZE);
	ib_dma_unmap_sg(e->id->device, &sg, 1, DMA_BIDIRECTIONAL);
	if (taken != 1)
		return -EIO;
	reg.mr = *mr;
	reg.key = (*mr)->rkey;
	reg.access = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ;
	return kv_post_and_wait(e, &reg.wr, &reg.wr, "REG_MR for a crowd");
}

static u8 *crowd_pages(void)
{
	return (u8 *)__get_free_pages(GFP_KERNEL | __GFP_ZERO, get_order(CROWD_SIZE));
}

static int crowd_run(struct crowd *c)
{
	struct workqueue_struct *queue = alloc_workqueue("rsiw_kverbs_crowd", WQ_UNBOUND, CROWD);
	unsigned int i;
	int err = 0;

	if (!queue)
		return -ENOMEM;
	for (i = 0; i < CROWD; i++) {
		struct member *m = &c->member[i];

		m->crowd = c;
		m->number = i;
		m->written = kv_wait_new();
		m->read = kv_wait_new();
		INIT_WORK(&m->work, member_work);
	}
	for (i = 0; i < CROWD; i++)
		queue_work(queue, &c->member[i].work);
	destroy_workqueue(queue);
	for (i = 0; i < CROWD; i++)
		err = err ?: c->member[i].err;
	return err;
}

int kv_crowd(struct kv_end *a, struct kv_end *b, unsigned int rounds)
{
	struct crowd *c = kzalloc(sizeof(*c), GFP_KERNEL);
	int err = -ENOMEM;

	if (!c)
		return err;
	c->end = a;
	c->rounds = rounds;
	c->source = crowd_pages();
	c->target = crowd_pages();
	c->back = crowd_pages();
	if (!c->source || !c->target || !c->back)
		goto out;
	err = crowd_register(b, &c->there, c->target);
	err = err ?: crowd_register(a, &c->here, c->back);
	err = err ?: crowd_run(c);
	if (err) {
		/* Requests that name the memory are flushed before it is freed. */
		ib_drain_qp(a->id->qp);
		ib_drain_qp(b->id->qp);
	}
out:
	if (!IS_ERR_OR_NULL(c->there))
		ib_dereg_mr(c->there);
	if (!IS_ERR_OR_NULL(c->here))
		ib_dereg_mr(c->here);
	free_pages((unsigned long)c->source, get_order(CROWD_SIZE));
	free_pages((unsigned long)c->target, get_order(CROWD_SIZE));
	free_pages((unsigned long)c->back, get_order(CROWD_SIZE));
	kfree(c);
	return err;
}
