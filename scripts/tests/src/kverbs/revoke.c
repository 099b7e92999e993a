// SPDX-License-Identifier: GPL-2.0
/*
 * After ib_dereg_mr() has returned, nothing is written to the memory of a region (DDP-83). A Write is
 * received on one CPU. Another CPU interrupts the copy, and deregisters the region meanwhile. The interrupt
 * ends when ib_dereg_mr() has returned, or after a time: ib_dereg_mr() has to wait for the copy.
 *
 * Every other piece of the region is an address of the virtual machine without memory. Each store there is
 * emulated, so that the interrupt comes in time. Octets stored there are lost. The pieces between have memory:
 * the first one shows that the copy has begun, the others what is written too late.
 */
#include <linux/cpumask.h>
#include <linux/io.h>
#include <linux/ioport.h>
#include <linux/ktime.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/workqueue.h>

#include "kverbs.h"

#define PAIRS	60u			/* of a slow piece and a piece of memory */
#define PIECE	512u
#define LEN	(2 * PAIRS * PIECE)
#define FREEZE	(10 * NSEC_PER_MSEC)	/* at most */
#define OLD	0x00
#define NEW	0x5a
#define MARK	0xa5

#ifdef CONFIG_X86

struct revoke {
	struct kv_pair pair;
	struct ib_mr *mr;
	u64 iova;
	u32 rkey;
	u8 *source, *memory;
	struct scatterlist sg[2 * PAIRS];
	void __iomem *slow;
	struct kv_wait *written;
};

static int reg(struct revoke *r)
{
	struct kv_end *e = &r->pair.b;
	struct ib_reg_wr wr = { .wr.opcode = IB_WR_REG_MR };
	struct scatterlist *sg = r->sg;
	unsigned int i;

	r->mr = ib_alloc_mr(e->pd, IB_MR_TYPE_MEM_REG, 2 * PAIRS);
	if (IS_ERR(r->mr))
		return PTR_ERR(r->mr);
	sg_init_table(sg, 2 * PAIRS);
	for (i = 0; i < 2 * PAIRS; i++) {
		u8 *memory = r->memory + i / 2 * PIECE;

		sg_set_buf(&sg[i], memory, PIECE);
		/* What ib_dma_map_sg() does for a device without DMA. */
		sg_dma_address(&sg[i]) = i % 2 ? (uintptr_t)memory : (uintptr_t)r->slow;
		sg_dma_len(&sg[i]) = PIECE;
	}
	if (ib_map_mr_sg(r->mr, sg, 2 * PAIRS, NULL, PAGE_SIZE) != 2 * PAIRS)
		return -EIO;
	wr.mr = r->mr;
	wr.key = r->mr->rkey;
	wr.access = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE;
	r->iova = r->mr->iova;
	r->rkey = r->mr->rkey;
	return kv_post_and_wait(e, &wr.wr, &wr.wr, "REG_MR of a region to be revoked");
}

/* On the CPU that receives: that of the sender, since both ends are on this machine. */
static long post_write(void *arg)
{
	struct revoke *r = arg;
	struct kv_end *e = &r->pair.a;
	struct ib_sge sge = { .addr = (uintptr_t)r->source, .length = LEN, .lkey = e->pd->local_dma_lkey };
	struct ib_rdma_wr wr = {
		.wr = {
			.wr_cqe = &r->written->cqe, .opcode = IB_WR_RDMA_WRITE, .send_flags = IB_SEND_SIGNALED,
			.sg_list = &sge, .num_sge = 1,
		},
		.remote_addr = r->iova, .rkey = r->rkey,
	};

	return ib_post_send(e->id->qp, &wr.wr, NULL);
}

struct revoker {
	struct work_struct work;
	struct revoke *revoke;
	struct completion ready, frozen, returned, thawed;
	unsigned int writer;		/* the CPU that copies */
	int err;
};

/* On the CPU that copies, with interrupts off. */
static void freeze(void *arg)
{
	struct revoker *v = arg;
	u64 end = ktime_get_ns() + FREEZE;

	complete(&v->frozen);
	while (!completion_done(&v->returned) && ktime_get_ns() < end)
		cpu_relax();
	complete(&v->thawed);
}

static void revoke_work(struct work_struct *work)
{
	struct revoker *v = container_of(work, struct revoker, work);
	struct revoke *r = v->revoke;
	unsigned long end = jiffies + KV_WAIT;
	struct ib_mr *mr = r->mr;

	complete(&v->ready);
	while (READ_ONCE(r->memory[0]) == OLD) {
		if (time_after(jiffies, end)) {
			v->err = -ETIMEDOUT;
			return;
		}
		cpu_relax();
	}
	smp_call_function_single(v->writer, freeze, v, false);
	while (!completion_done(&v->frozen))
		cpu_relax();
	r->mr = NULL;
	v->err = ib_dereg_mr(mr);
	memset(r->memory, MARK, PAIRS * PIECE);
	complete(&v->returned);
	while (!completion_done(&v->thawed))
		cpu_relax();
}

static int one_round(struct revoke *r, const struct sockaddr *to, unsigned int writer, unsigned int other)
{
	struct revoker v = { .revoke = r, .writer = writer };
	void *changed;
	int err;

	memset(r->memory, OLD, PAIRS * PIECE);
	r->written = kv_wait_new();
	err = kv_connect(&r->pair, to, &(struct kv_how){ .poll = IB_POLL_WORKQUEUE });
	if (err)
		return err;
	/* The accepting end may not send before something came (RFC 5044 7.1.2). */
	err = kv_send(&r->pair.a, &r->pair.b, 0, false);
	err = err ?: reg(r);
	if (!err) {
		init_completion(&v.ready);
		init_completion(&v.frozen);
		init_completion(&v.returned);
		init_completion(&v.thawed);
		INIT_WORK_ONSTACK(&v.work, revoke_work);
		queue_work_on(other, system_highpri_wq, &v.work);
		wait_for_completion(&v.ready);
		err = work_on_cpu(writer, post_write, r);
		flush_work(&v.work);
		destroy_work_on_stack(&v.work);
		err = err ?: v.err;
		err = err ?: kv_wait_for(r->written, "a Write to a region that is revoked");
	}
	ib_drain_qp(r->pair.a.id->qp);
	ib_drain_qp(r->pair.b.id->qp);
	if (!IS_ERR_OR_NULL(r->mr))
		ib_dereg_mr(r->mr);
	r->mr = NULL;
	kv_disconnect(&r->pair);
	if (err)
		return err;
	changed = memchr_inv(r->memory, MARK, PAIRS * PIECE);
	if (!changed)
		return 0;
	pr_err("rsiw_kverbs_test: octet %td was written after ib_dereg_mr()\n", (u8 *)changed - r->memory);
	return -EIO;
}

int kv_revoke(const struct sockaddr *to, unsigned int rounds)
{
	struct revoke *r = kzalloc(sizeof(*r), GFP_KERNEL);
	struct resource nowhere = { .name = "rsiw_kverbs_test", .flags = IORESOURCE_MEM };
	unsigned int i, first = cpumask_first(cpu_online_mask), second = cpumask_next(first, cpu_online_mask);
	int err = -ENOMEM;

	if (!r)
		return -ENOMEM;
	/* On a real machine such an address may belong to a device that has no driver. */
	if (!boot_cpu_has(X86_FEATURE_HYPERVISOR) || second >= nr_cpu_ids) {
		err = -EOPNOTSUPP;
		goto out;
	}
	r->source = kmalloc(LEN, GFP_KERNEL);
	r->memory = kmalloc(PAIRS * PIECE, GFP_KERNEL);
	if (!r->source || !r->memory)
		goto out;
	memset(r->source, NEW, LEN);
	err = allocate_resource(&iomem_resource, &nowhere, PAGE_SIZE, SZ_4G, iomem_resource.end, PAGE_SIZE, NULL, NULL);
	if (err)
		goto out;
	r->slow = ioremap(nowhere.start, PAGE_SIZE);
	for (i = 0, err = r->slow ? 0 : -ENOMEM; !err && i < rounds; i++)
		err = i % 2 ? one_round(r, to, first, second) : one_round(r, to, second, first);
	if (r->slow)
		iounmap(r->slow);
	release_resource(&nowhere);
out:
	kfree(r->memory);
	kfree(r->source);
	kfree(r);
	return err;
}

#else

int kv_revoke(const struct sockaddr *to, unsigned int rounds)
{
	return -EOPNOTSUPP;
}

#endif
