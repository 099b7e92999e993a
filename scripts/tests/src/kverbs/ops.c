// SPDX-License-Identifier: GPL-2.0
/*
 * The operations that only kernel users have: REG_MR, LOCAL_INV, Read with
 * Invalidate, Send with Invalidate, local_dma_lkey, fenced invalidation, on
 * page lists and (where the device has it) on lists with gaps. After each
 * operation every octet of the buffers is compared. At the end, no key that was
 * invalidated, in whichever way, gives the peer access.
 *
 * Loading the module runs the test; loading fails if the test fails.
 */
#include <linux/inet.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "kverbs.h"

static char *addr = "10.99.0.1";
module_param(addr, charp, 0444);
MODULE_PARM_DESC(addr, "IPv4 address of the device under test");
static uint rounds = 200;
module_param(rounds, uint, 0444);
MODULE_PARM_DESC(rounds, "operations per connection");
static bool gaps = true;
module_param(gaps, bool, 0444);
MODULE_PARM_DESC(gaps, "use lists with gaps where the device has them");
static ulong seed = 1;
module_param(seed, ulong, 0444);
MODULE_PARM_DESC(seed, "seed of the random choices");
static bool plain;
module_param(plain, bool, 0444);
MODULE_PARM_DESC(plain, "for siw: no last receive is told of, handlers of one queue may overlap");
static uint factor = 1;
module_param(factor, uint, 0444);
MODULE_PARM_DESC(factor, "of time limits below a second");
static bool leave;
module_param(leave, bool, 0444);
MODULE_PARM_DESC(leave, "instead of the rest: a client that connects on a device that goes");
static uint revoke;
module_param(revoke, uint, 0444);
MODULE_PARM_DESC(revoke, "instead of the rest: so many regions are deregistered during a copy");

static u64 octets;
static unsigned int operations;

/* One end of an operation. */
struct side {
	struct kv_end *end;
	struct kv_buffer buffer;
	struct kv_layout layout;
	struct ib_mr *mr, *mr_gaps, *in_use;
	u8 *linear;			/* contiguous memory, reached with local_dma_lkey */
};

static bool has_gaps(struct ib_device *dev)
{
	return gaps && dev->attrs.kernel_cap_flags & IBK_SG_GAPS_REG;
}

static int side_open(struct side *s, struct kv_end *end)
{
	int err;

	memset(s, 0, sizeof(*s));
	s->end = end;
	err = kv_buffer_alloc(&s->buffer);
	if (err)
		return err;
	s->linear = kvmalloc(KV_MAX_LEN, GFP_KERNEL);
	s->linear = is_vmalloc_addr(s->linear) ? NULL : s->linear;
	if (!s->linear)
		return -ENOMEM;
	s->mr = ib_alloc_mr(end->pd, IB_MR_TYPE_MEM_REG, KV_MAX_SG);
	if (IS_ERR(s->mr)) {
		err = PTR_ERR(s->mr);
		s->mr = NULL;
		return err;
	}
	if (!has_gaps(end->id->device))
		return 0;
	s->mr_gaps = ib_alloc_mr(end->pd, IB_MR_TYPE_SG_GAPS, KV_MAX_SG);
	if (IS_ERR(s->mr_gaps)) {
		err = PTR_ERR(s->mr_gaps);
		s->mr_gaps = NULL;
		return err;
	}
	return 0;
}

static void side_close(struct side *s)
{
	if (s->mr)
		ib_dereg_mr(s->mr);
	if (s->mr_gaps)
		ib_dereg_mr(s->mr_gaps);
	kfree(s->linear);
	kv_buffer_free(&s->buffer);
	memset(s, 0, sizeof(*s));
}

static u32 random_length(void)
{
	switch (kv_below(4)) {
	case 0:
		return 1 + kv_below(64);
	case 1:
		return PAGE_SIZE * (1 + kv_below(4)) - 2 + kv_below(5);
	case 2:
		return 1 + kv_below(20000);
	default:
		return 1 + kv_below(KV_MAX_LEN);
	}
}

/* Chooses octets of the side's buffer, maps them, and prepares the REG_MR. */
static int choose(struct side *s, u32 len, int access, struct ib_reg_wr *wr)
{
	struct ib_device *dev = s->end->id->device;
	int n;

	if (s->mr_gaps && kv_below(2)) {
		kv_layout_gaps(&s->layout, &s->buffer, len);
		s->in_use = s->mr_gaps;
	} else {
		kv_layout_pages(&s->layout, &s->buffer, len);
		s->in_use = s->mr;
	}
	if (ib_dma_map_sg(dev, s->layout.sg, s->layout.count, DMA_BIDIRECTIONAL) != s->layout.count)
		return -ENOMEM;
	n = ib_map_mr_sg(s->in_use, s->layout.sg, s->layout.count, NULL, PAGE_SIZE);
	if (n != s->layout.count || s->in_use->length != s->layout.len) {
		pr_err("rsiw_kverbs_test: ib_map_mr_sg took %d of %d elements, %llu of %u octets\n",
		       n, s->layout.count, (u64)s->in_use->length, s->layout.len);
		return -EIO;
	}
	ib_update_fast_reg_key(s->in_use, ib_inc_rkey(s->in_use->rkey));
	*wr = (struct ib_reg_wr){
		.wr.opcode = IB_WR_REG_MR, .mr = s->in_use, .key = s->in_use->rkey, .access = access,
	};
	return 0;
}

static void unmap(struct side *s)
{
	ib_dma_unmap_sg(s->end->id->device, s->layout.sg, s->layout.count, DMA_BIDIRECTIONAL);
}

static int local_inv(struct side *s)
{
	struct ib_send_wr wr = { .opcode = IB_WR_LOCAL_INV, .ex.invalidate_rkey = s->in_use->rkey };

	return kv_post_and_wait(s->end, &wr, &wr, "LOCAL_INV");
}

/* Cuts contiguous memory into up to KV_SGE elements under local_dma_lkey. */
static int cut(struct kv_end *e, struct ib_sge *sge, u8 *at, u32 len)
{
	int n = 1 + kv_below(KV_SGE), i;
	u32 part;

	for (i = 0; i < n; i++) {
		part = i == n - 1 ? len : kv_below(len + 1);
		sge[i] = (struct ib_sge){
			.addr = (uintptr_t)at, .length = part, .lkey = e->pd->local_dma_lkey,
		};
		at += part;
		len -= part;
	}
	return n;
}

/* Write into fast-registered memory, then a Send that invalidates it. */
static int write_and_invalidate(struct side *from, struct side *to, u32 len)
{
	struct ib_sge write_sge[KV_SGE], send_sge, recv_sge;
	struct ib_rdma_wr write = { .wr.opcode = IB_WR_RDMA_WRITE };
	struct ib_send_wr send = { .opcode = IB_WR_SEND_WITH_INV };
	struct ib_recv_wr recv = { .num_sge = 1, .sg_list = &recv_sge };
	struct ib_reg_wr reg;
	struct kv_wait *received = kv_wait_new();
	u32 key;
	int err;

	err = choose(to, len, IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE, &reg);
	if (err)
		return err;
	len = to->layout.len;
	key = to->in_use->rkey;
	kv_random_bytes(from->linear, len);
	kv_layout_put(&to->layout, to->buffer.want, from->linear);

	recv_sge = (struct ib_sge){ .addr = (uintptr_t)to->linear, .length = 64, .lkey = to->end->pd->local_dma_lkey };
	recv.wr_cqe = &received->cqe;
	err = kv_post_and_wait(to->end, &reg.wr, &reg.wr, "REG_MR");
	err = err ?: ib_post_recv(to->end->id->qp, &recv, NULL);
	if (err)
		return err;

	write.wr.num_sge = cut(from->end, write_sge, from->linear, len);
	write.wr.sg_list = write_sge;
	write.remote_addr = to->in_use->iova;
	write.rkey = key;
	write.wr.next = &send;
	send_sge = (struct ib_sge){
		.addr = (uintptr_t)from->linear, .length = min(len, 64u), .lkey = from->end->pd->local_dma_lkey,
	};
	send.sg_list = &send_sge;
	send.num_sge = 1;
	send.ex.invalidate_rkey = key;
	err = kv_post_and_wait(from->end, &write.wr, &send, "Write and Send with Invalidate");
	err = kv_wait_for(received, "receive") ?: err;
	err = err ?: kv_expect(received, "receive");
	if (err)
		return err;
	if (!(received->wc.wc_flags & IB_WC_WITH_INVALIDATE) || received->wc.ex.invalidate_rkey != key) {
		pr_err("rsiw_kverbs_test: receive flags %x, key %x, expected %x invalidated\n",
		       received->wc.wc_flags, received->wc.ex.invalidate_rkey, key);
		return -EIO;
	}
	if (received->wc.byte_len != send_sge.length || memcmp(to->linear, from->linear, send_sge.length)) {
		pr_err("rsiw_kverbs_test: the Send's own octets differ\n");
		return -EIO;
	}
	unmap(to);
	return 0;
}

/* Read between two fast-registered layouts; the sink is invalidated by the Read or by a fenced LOCAL_INV behind it. */
static int read_and_invalidate(struct side *to, struct side *from, u32 len, bool with_inv)
{
	struct ib_reg_wr source, sink;
	struct ib_send_wr inv = { .opcode = IB_WR_LOCAL_INV, .send_flags = IB_SEND_FENCE };
	struct ib_rdma_wr read = { .wr.opcode = with_inv ? IB_WR_RDMA_READ_WITH_INV : IB_WR_RDMA_READ };
	struct ib_sge sge;
	int err;

	err = choose(from, len, IB_ACCESS_REMOTE_READ, &source);
	err = err ?: choose(to, from->layout.len, IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE, &sink);
	if (err)
		return err;
	len = min(from->layout.len, to->layout.len);
	kv_random_bytes(from->linear, from->layout.len);
	kv_layout_put(&from->layout, from->buffer.at, from->linear);
	kv_layout_put(&from->layout, from->buffer.want, from->linear);
	if (len < to->layout.len)	/* the sink keeps what the Read does not reach */
		memset(from->linear + len, KV_GUARD, to->layout.len - len);
	kv_layout_put(&to->layout, to->buffer.want, from->linear);
	err = kv_post_and_wait(from->end, &source.wr, &source.wr, "REG_MR of the source");
	if (err)
		return err;

	sge = (struct ib_sge){ .addr = to->in_use->iova, .length = len, .lkey = to->in_use->lkey };
	read.wr.sg_list = &sge;
	read.wr.num_sge = 1;
	read.remote_addr = from->in_use->iova;
	read.rkey = from->in_use->rkey;
	sink.wr.next = &read.wr;
	if (with_inv) {
		read.wr.ex.invalidate_rkey = to->in_use->lkey;
		err = kv_post_and_wait(to->end, &sink.wr, &read.wr, "REG_MR and Read with Invalidate");
	} else {
		inv.ex.invalidate_rkey = to->in_use->rkey;
		read.wr.next = &inv;
		err = kv_post_and_wait(to->end, &sink.wr, &inv, "REG_MR, Read and fenced LOCAL_INV");
	}
	err = err ?: local_inv(from);
	unmap(to);
	unmap(from);
	return err;
}

/* The connecting end begins: the accepting one may not send before something came (RFC 5044 7.1.2). */
static int one_operation(struct side s[2], bool first)
{
	struct side *mine = &s[first ? 0 : kv_below(2)], *other = mine == s ? s + 1 : s;
	u32 len = random_length(), kind = kv_below(3);
	static const char *const name[] = { "write", "read with invalidate", "read, local invalidate" };
	int err;

	kv_buffer_reset(&mine->buffer);
	kv_buffer_reset(&other->buffer);
	if (kind == 0)
		err = write_and_invalidate(mine, other, len);
	else
		err = read_and_invalidate(mine, other, len, kind == 1);
	err = err ?: kv_buffer_check(&mine->buffer, name[kind]);
	err = err ?: kv_buffer_check(&other->buffer, name[kind]);
	if (err)
		pr_err("rsiw_kverbs_test: operation %u, %s of %u octets, layouts of %d and %d elements%s\n",
		       operations, name[kind], len, mine->layout.count, other->layout.count,
		       other->in_use == other->mr_gaps ? ", with gaps" : "");
	operations++;
	octets += len;
	return err;
}

/* A Write to a key that is no longer valid: nothing may be placed, and the connection must end. */
static int stale_key_is_dead(struct side s[2])
{
	struct side *from = &s[0], *to = &s[1];
	struct ib_sge sge = { .addr = (uintptr_t)from->linear, .length = 4096, .lkey = from->end->pd->local_dma_lkey };
	struct ib_rdma_wr write = { .wr = { .opcode = IB_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1 } };
	struct ib_recv_wr recv = {};
	struct kv_wait *flushed = kv_wait_new(), *posted = kv_wait_new();
	int err;

	recv.wr_cqe = &flushed->cqe;
	kv_buffer_reset(&to->buffer);
	write.wr.wr_cqe = &posted->cqe;
	write.wr.send_flags = IB_SEND_SIGNALED;
	write.remote_addr = to->in_use->iova;
	write.rkey = to->in_use->rkey;
	err = ib_post_recv(to->end->id->qp, &recv, NULL);
	err = err ?: ib_post_send(from->end->id->qp, &write.wr, NULL);
	err = err ?: kv_wait_for(posted, "the Write with a stale key");
	err = err ?: kv_wait_for(flushed, "the flush after a stale key");
	if (!err && flushed->wc.status != IB_WC_WR_FLUSH_ERR) {
		pr_err("rsiw_kverbs_test: a receive after a Write with a stale key: %s\n",
		       ib_wc_status_msg(flushed->wc.status));
		err = -EIO;
	}
	return err ?: kv_buffer_check(&to->buffer, "Write with a stale key");
}

static int stale_keys(struct side s[2], int kind)
{
	int err;

	kv_buffer_reset(&s[0].buffer);
	kv_buffer_reset(&s[1].buffer);
	if (kind == 0)		/* invalidated by the peer's Send */
		err = write_and_invalidate(&s[0], &s[1], 4096);
	else			/* by its own Read, or by LOCAL_INV */
		err = read_and_invalidate(&s[1], &s[0], 4096, kind == 1);
	return err ?: stale_key_is_dead(s);
}

static int one_connection(int number, const struct sockaddr *to)
{
	static const enum ib_poll_context contexts[] = {
		IB_POLL_SOFTIRQ, IB_POLL_WORKQUEUE, IB_POLL_UNBOUND_WORKQUEUE,
	};
	struct kv_pair *p = kzalloc(sizeof(*p), GFP_KERNEL);
	struct side *s = kvcalloc(2, sizeof(*s), GFP_KERNEL);
	int err = -ENOMEM;
	uint i;

	if (!p || !s)
		goto out;
	err = kv_connect(p, to, &(struct kv_how){ .poll = contexts[number] });
	if (err)
		goto out;
	err = side_open(&s[0], &p->a) ?: side_open(&s[1], &p->b);
	for (i = 0; !err && i < rounds; i++)
		err = one_operation(s, i == 0);
	err = err ?: kv_longest(&p->a, &p->b);
	err = err ?: kv_crowd(&p->a, &p->b, rounds);
	err = err ?: stale_keys(s, number);
	/* Requests are flushed before the memory they name goes away. */
	ib_drain_qp(p->a.id->qp);
	ib_drain_qp(p->b.id->qp);
	err = err ?: kv_late(&p->a) ?: kv_late(&p->b);
	if (!plain)
		err = err ?: kv_full(p->a.id->device);
	side_close(&s[0]);
	side_close(&s[1]);
	kv_disconnect(p);
	err = err ?: kv_invalid(to, contexts[number]) ?: kv_downed(to, contexts[number], 20);
	if (!plain)
		err = err ?: kv_srq(to, contexts[number]) ?: kv_cut(to) ?: kv_scope(to, contexts[number]);
	if (!plain)
		err = err ?: kv_unreadable(to, contexts[number]) ?: kv_rnr(to, contexts[number], factor);
out:
	kvfree(s);
	kfree(p);
	return err;
}

static int __init kverbs_init(void)
{
	struct sockaddr_storage target = {};
	struct sockaddr *to = (struct sockaddr *)&target;
	int i, err = 0;

	*(struct sockaddr_in *)to = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = in_aton(addr) };
	if (leave)
		return kv_leave(to);
	if (revoke)
		return kv_revoke(to, revoke);
	kv_seed(seed);
	for (i = 0; i < 3 && !err; i++)
		err = one_connection(i, to);
	err = err ?: kv_plain(to) ?: kv_handler(to, plain) ?: (plain ? 0 : kv_held(to));
	if (err) {
		pr_err("rsiw_kverbs_test: failed (%d), seed %lu\n", err, seed);
		return err;
	}
	pr_info("rsiw_kverbs_test: passed: %u operations, %llu octets, seed %lu\n", operations, octets, seed);
	return 0;
}

static void __exit kverbs_exit(void)
{
	if (leave)
		kv_leave_end();
}

module_init(kverbs_init);
module_exit(kverbs_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Kernel-verbs data integrity test");
