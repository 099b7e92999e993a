// SPDX-License-Identifier: GPL-2.0
/*
 * The longest page list a device promises: at least KV_LONGEST scattered pages are registered,
 * written and read as one region. One page more is refused.
 */
#include "kverbs.h"

#include <linux/slab.h>
#include <linux/vmalloc.h>

#define KV_LONGEST	512u

struct list {
	struct ib_mr *mr, *sink;	/* of the pages; of @back, as an iWARP Read needs it */
	struct page **pages;
	struct scatterlist *sg;
	u8 *out, *back;			/* contiguous, of the peer */
	unsigned int count;
	size_t size;
};

static int list_alloc(struct list *l, struct kv_end *owner, struct kv_end *peer)
{
	unsigned int i;

	l->size = l->count * PAGE_SIZE;
	l->pages = kvcalloc(l->count, sizeof(*l->pages), GFP_KERNEL);
	l->sg = kvcalloc(l->count, sizeof(*l->sg), GFP_KERNEL);
	l->out = (u8 *)__get_free_pages(GFP_KERNEL, get_order(l->size));
	l->back = (u8 *)__get_free_pages(GFP_KERNEL | __GFP_ZERO, get_order(l->size));
	if (!l->pages || !l->sg || !l->out || !l->back)
		return -ENOMEM;
	for (i = 0; i < l->count; i++) {
		l->pages[i] = alloc_page(GFP_KERNEL | __GFP_ZERO);
		if (!l->pages[i])
			return -ENOMEM;
	}
	/* In descending order, so that no two neighbours of the list are adjacent in memory. */
	sg_init_table(l->sg, l->count);
	for (i = 0; i < l->count; i++)
		sg_set_page(&l->sg[i], l->pages[l->count - 1 - i], PAGE_SIZE, 0);
	l->mr = ib_alloc_mr(owner->pd, IB_MR_TYPE_MEM_REG, l->count);
	if (IS_ERR(l->mr))
		return PTR_ERR(l->mr);
	l->sink = ib_alloc_mr(peer->pd, IB_MR_TYPE_MEM_REG, l->count);
	return PTR_ERR_OR_ZERO(l->sink);
}

static void list_free(struct list *l)
{
	unsigned int i;

	if (!IS_ERR_OR_NULL(l->mr))
		ib_dereg_mr(l->mr);
	if (!IS_ERR_OR_NULL(l->sink))
		ib_dereg_mr(l->sink);
	for (i = 0; l->pages && i < l->count; i++)
		if (l->pages[i])
			__free_page(l->pages[i]);
	free_pages((unsigned long)l->out, get_order(l->size));
	free_pages((unsigned long)l->back, get_order(l->size));
	kvfree(l->sg);
	kvfree(l->pages);
}

/* Registers @n elements, of @size octets in all; they stay mapped, which costs nothing without DMA. */
static int list_register(struct kv_end *e, struct ib_mr *mr, struct scatterlist *sg, unsigned int n, size_t size)
{
	struct ib_reg_wr reg = { .wr.opcode = IB_WR_REG_MR, .mr = mr };
	int taken;

	if (ib_dma_map_sg(e->id->device, sg, n, DMA_BIDIRECTIONAL) != n)
		return -ENOMEM;
	taken = ib_map_mr_sg(mr, sg, n, NULL, PAGE_SIZE);
	ib_dma_unmap_sg(e->id->device, sg, n, DMA_BIDIRECTIONAL);
	if (taken != n || mr->length != size) {
		pr_err("rsiw_kverbs_test: ib_map_mr_sg took %d of %u elements, %llu of %zu octets\n",
		       taken, n, (u64)mr->length, size);
		return -EIO;
	}
	ib_update_fast_reg_key(mr, ib_inc_rkey(mr->rkey));
	reg.key = mr->rkey;
	reg.access = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ;
	return kv_post_and_wait(e, &reg.wr, &reg.wr, "REG_MR of the longest list");
}

/* A Write to the whole region, then a Read, which returns the octets of the Write. */
static int write_and_read(struct list *l, struct kv_end *from)
{
	struct ib_sge out = { .addr = (uintptr_t)l->out, .length = l->size, .lkey = from->pd->local_dma_lkey };
	struct ib_sge back = { .addr = l->sink->iova, .length = l->size, .lkey = l->sink->lkey };
	struct ib_rdma_wr read = {
		.wr = { .opcode = IB_WR_RDMA_READ, .sg_list = &back, .num_sge = 1 },
		.remote_addr = l->mr->iova, .rkey = l->mr->rkey,
	};
	struct ib_rdma_wr write = {
		.wr = { .opcode = IB_WR_RDMA_WRITE, .sg_list = &out, .num_sge = 1, .next = &read.wr },
		.remote_addr = l->mr->iova, .rkey = l->mr->rkey,
	};

	kv_random_bytes(l->out, l->size);
	return kv_post_and_wait(from, &write.wr, &read.wr, "Write and Read of the longest list");
}

static int compare(const struct list *l)
{
	unsigned int i;

	for (i = 0; i < l->count; i++) {
		const u8 *want = l->out + i * PAGE_SIZE;

		if (memcmp(page_address(l->pages[l->count - 1 - i]), want, PAGE_SIZE) ||
		    memcmp(l->back + i * PAGE_SIZE, want, PAGE_SIZE)) {
			pr_err("rsiw_kverbs_test: page %u of %u differs\n", i, l->count);
			return -EIO;
		}
	}
	return 0;
}

static int too_long_is_refused(struct kv_end *e, unsigned int most)
{
	struct ib_mr *mr = ib_alloc_mr(e->pd, IB_MR_TYPE_MEM_REG, most + 1);

	if (IS_ERR(mr))
		return 0;
	ib_dereg_mr(mr);
	pr_err("rsiw_kverbs_test: a list of %u pages was allowed, %u are promised\n", most + 1, most);
	return -EIO;
}

int kv_longest(struct kv_end *a, struct kv_end *b)
{
	struct list l = { .count = b->id->device->attrs.max_fast_reg_page_list_len };
	struct ib_send_wr inv = { .opcode = IB_WR_LOCAL_INV };
	struct scatterlist back;
	int err;

	if (l.count < KV_LONGEST) {
		pr_err("rsiw_kverbs_test: page lists of %u at most\n", l.count);
		return -EIO;
	}
	err = too_long_is_refused(b, l.count);
	err = err ?: list_alloc(&l, b, a);
	err = err ?: list_register(b, l.mr, l.sg, l.count, l.size);
	if (!err) {
		sg_init_one(&back, l.back, l.size);
		err = list_register(a, l.sink, &back, 1, l.size);
	}
	err = err ?: write_and_read(&l, a);
	err = err ?: compare(&l);
	if (!err) {
		inv.ex.invalidate_rkey = l.mr->rkey;
		err = kv_post_and_wait(b, &inv, &inv, "LOCAL_INV of the longest list");
	}
	if (err) {
		/* Requests that name the memory are flushed before it is freed. */
		ib_drain_qp(a->id->qp);
		ib_drain_qp(b->id->qp);
	}
	list_free(&l);
	return err;
}
