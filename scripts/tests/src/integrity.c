// SPDX-License-Identifier: GPL-2.0
/*
 * Data integrity: both ends post batches of random operations to each other at
 * the same time. Then every octet of both memories is compared with its expected
 * value, those of guard zones too.
 *
 * Random values, repeatable by a seed:
 *
 *   operation      Send, Write, Read, inline Send and Write
 *   length         0 to 300,000; small ones and page edges are more frequent
 *   memory         offset, page alignment, number and cut of the scatter/gather
 *                  elements on either side
 *   region         the whole arena or the octets of the operation; its I/O
 *                  virtual address
 *   completion     which requests ask for one
 *   batch          its size
 *
 * usage: integrity [-n batches] [-s seed] [-p] [-f from] address
 *   -p  plain, for in-tree siw at either end, without operations that siw gets wrong:
 *       - order of completions: a Write or Send completes before an earlier Read, so each Read
 *         asks for a completion
 *       - Reads with several elements: cut short
 *       - I/O virtual address: ignored
 *       - 1 to 32 octets: wrong over a page edge
 *       - empty elements: crash
 */
#include "pair.h"
#include "rng.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_LEN 300000u
#define SLOTS 8
#define SLOT_SIZE (384u * 1024)		/* > MAX_LEN + guards + largest offset */
#define ARENA_SIZE (SLOTS * SLOT_SIZE)
#define MAX_SGE 6
#define GUARD 0xa5

enum kind { SEND, WRITE, READ, INLINE_SEND, INLINE_WRITE, KINDS };

static const char *const kind_name[KINDS] = { "send", "write", "read", "inline send", "inline write" };

/* Memory one end uses in one direction. */
struct arena {
	uint8_t *at;
	uint8_t *want;		/* its expected content */
	struct ibv_mr *mr;
};

/* One operation of a batch. */
struct op {
	enum kind kind;
	uint32_t len;
	uint32_t from, to;	/* offsets of source and sink in their arenas */
	struct ibv_mr *from_mr, *to_mr;	/* exact regions, or NULL for the arena's */
	uint64_t from_iova, to_iova;
};

/* The operations of one initiator: @src and @dst name whose memory data comes from and goes to. */
struct direction {
	struct end *initiator, *target;
	struct arena local, remote;
	struct op op[SLOTS];
	int count;
	int expected_sends, expected_recvs;
	uint32_t recv_len[SLOTS + 1];
};

static int plain;
static unsigned long totals[KINDS], octets;

static uint32_t random_length(void)
{
	switch (below(8)) {
	case 0:
		return below(33);
	case 1:
		return below(256);
	case 2:
		return 4096 * below(8) + below(5);
	case 3:
		return below(3000);
	case 4:
	case 5:
		return below(MAX_LEN / 8);
	case 6:
		return 65000 + below(2000);
	default:
		return below(MAX_LEN + 1);
	}
}

/* An offset inside slot @slot that leaves room for @len and guards; often right before a page edge. */
static uint32_t random_offset(int slot, uint32_t len)
{
	uint32_t room = SLOT_SIZE - 8192 - len, at;

	at = below(2) ? 4096 * (1 + below(room / 4096)) - below(40) : below(room);
	return slot * SLOT_SIZE + 64 + at % room;
}

static void arena_open(struct arena *a, struct end *e)
{
	a->at = mmap(NULL, ARENA_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	a->want = malloc(ARENA_SIZE);
	if (a->at == MAP_FAILED || !a->want)
		fail("no memory");
	memset(a->at, GUARD, ARENA_SIZE);
	memset(a->want, GUARD, ARENA_SIZE);
	a->mr = must_register(e->pd, a->at, ARENA_SIZE,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
}

/* Half of the operations get a region of exactly their octets, a quarter with another address. */
static struct ibv_mr *maybe_region(struct end *e, uint8_t *at, uint32_t len, int access, uint64_t *iova)
{
	struct ibv_mr *mr;

	*iova = (uintptr_t)at;
	if (!len || below(2))
		return NULL;
	if (!plain && below(2)) {
		*iova = (rng() & 0x7ffffffffffff000ull) | ((uintptr_t)at & 4095);
		mr = ibv_reg_mr_iova(e->pd, at, len, *iova, access);
	} else {
		mr = ibv_reg_mr(e->pd, at, len, access);
	}
	if (!mr)
		fail("registering %u octets: %s", len, strerror(errno));
	return mr;
}

/* Cuts [at, at + len) into 1..max elements, some of them empty, but not with -p. */
static int cut(struct ibv_sge *sge, int max, uint64_t at, uint32_t len, uint32_t key)
{
	int n = 1 + below(max), i;
	uint32_t part;

	if (plain) {
		n = n > (int)len ? (len ? (int)len : 1) : n;
		for (i = 0; i < n; i++, at += part, len -= part) {
			part = i == n - 1 ? len : 1 + below(len - (n - i) + 1);
			sge[i] = (struct ibv_sge){ .addr = at, .length = part, .lkey = key };
		}
		return n;
	}
	for (i = 0; i < n; i++) {
		part = i == n - 1 ? len : below(4) ? below(len + 1) : below(len < 40 ? len + 1 : 40);
		sge[i] = (struct ibv_sge){ .addr = at, .length = part, .lkey = key };
		at += part;
		len -= part;
	}
	return n;
}

/* Chooses and prepares operation @i; a Send's receive is posted here, before any send is. */
static void prepare(struct direction *d, int i)
{
	const int remote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct op *op = &d->op[i];
	struct arena *src, *dst;
	struct ibv_sge sge[MAX_SGE];
	int n;

	op->kind = below(KINDS);
	op->len = op->kind >= INLINE_SEND ? below(81) : random_length();
	if (plain && op->kind < INLINE_SEND && op->len <= 32)
		op->len += 33;
	op->from = random_offset(i, op->len);
	op->to = random_offset(i, op->len);
	src = op->kind == READ ? &d->remote : &d->local;
	dst = op->kind == READ ? &d->local : &d->remote;
	fill(src->at + op->from, op->len);
	memcpy(src->want + op->from, src->at + op->from, op->len);
	memcpy(dst->want + op->to, src->at + op->from, op->len);

	op->from_mr = maybe_region(op->kind == READ ? d->target : d->initiator, src->at + op->from, op->len,
				   op->kind == READ ? IBV_ACCESS_REMOTE_READ : 0, &op->from_iova);
	/* An iWARP Read's sink is named on the wire, so it needs the remote right too. */
	op->to_mr = maybe_region(op->kind == READ ? d->initiator : d->target, dst->at + op->to, op->len,
				 op->kind == SEND || op->kind == INLINE_SEND ? IBV_ACCESS_LOCAL_WRITE : remote,
				 &op->to_iova);
	if (op->kind == SEND || op->kind == INLINE_SEND) {
		/* Room for more than the message, when the region allows it. */
		uint32_t slack = op->to_mr ? 0 : below(64);

		n = cut(sge, MAX_SGE, op->to_iova, op->len + slack, (op->to_mr ? op->to_mr : d->remote.mr)->lkey);
		d->recv_len[d->expected_recvs] = op->len;
		must_post_recv(d->target, d->expected_recvs++, sge, n);
	}
	totals[op->kind]++;
	octets += op->len;
}

static void post(struct direction *d, int i)
{
	static const enum ibv_wr_opcode opcode[KINDS] = {
		IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND, IBV_WR_RDMA_WRITE,
	};
	struct op *op = &d->op[i];
	struct ibv_send_wr wr = { .wr_id = i, .opcode = opcode[op->kind] };
	struct ibv_sge sge[MAX_SGE];
	struct ibv_mr *mr;

	wr.sg_list = sge;
	if (op->kind == READ) {
		mr = op->to_mr ? op->to_mr : d->local.mr;
		wr.num_sge = cut(sge, plain ? 1 : MAX_SGE, op->to_iova, op->len, mr->lkey);
		mr = op->from_mr ? op->from_mr : d->remote.mr;
		wr.wr.rdma.remote_addr = op->from_iova;
		wr.wr.rdma.rkey = mr->rkey;
	} else {
		mr = op->from_mr ? op->from_mr : d->local.mr;
		wr.num_sge = cut(sge, MAX_SGE, op->from_iova, op->len, mr->lkey);
		mr = op->to_mr ? op->to_mr : d->remote.mr;
		wr.wr.rdma.remote_addr = op->to_iova;
		wr.wr.rdma.rkey = mr->rkey;
	}
	if (op->kind >= INLINE_SEND) {
		/* Inline data is read by the library: plain addresses. */
		wr.num_sge = cut(sge, MAX_SGE, (uintptr_t)d->local.at + op->from, op->len, 0);
		wr.send_flags |= IBV_SEND_INLINE;
	}
	if (below(2) || (plain && op->kind == READ)) {
		wr.send_flags |= IBV_SEND_SIGNALED;
		d->expected_sends |= 1 << i;
	}
	must_post_send(d->initiator, &wr);
}

/* The batch's end: an empty Send, which arrives after all earlier data was placed. */
static void post_end(struct direction *d)
{
	struct ibv_send_wr wr = { .wr_id = SLOTS, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };

	d->expected_sends |= 1 << SLOTS;
	must_post_send(d->initiator, &wr);
}

static void expect(struct ibv_wc *wc, const char *what)
{
	if (wc->status != IBV_WC_SUCCESS)
		fail("%s %lu: %s", what, (unsigned long)wc->wr_id, ibv_wc_status_str(wc->status));
}

static void collect(struct direction *d)
{
	int due = d->expected_sends, i, n;
	struct ibv_wc wc;

	for (i = 0; i <= SLOTS; i++) {
		if (!(d->expected_sends & (1 << i)))
			continue;
		if (wait_completion(d->initiator->send_cq, &wc, 30))
			fail("no completion for send request %d (%s)", i, i < SLOTS ? kind_name[d->op[i].kind] : "end");
		expect(&wc, "send request");
		n = wc.wr_id;
		if (plain ? n > SLOTS || !(due & (1 << n)) : n != i)
			fail("completion of request %d where %d was due", n, i);
		due &= ~(1 << n);
		if (n < SLOTS && d->op[n].kind == READ && wc.byte_len != d->op[n].len)
			fail("read of %u octets reports %u", d->op[n].len, wc.byte_len);
	}
	for (i = 0; i < d->expected_recvs; i++) {
		if (wait_completion(d->target->recv_cq, &wc, 30))
			fail("no completion for receive %d", i);
		expect(&wc, "receive");
		if (wc.wr_id != (uint64_t)i || wc.byte_len != d->recv_len[i])
			fail("receive %lu of %u octets where %d of %u was due",
			     (unsigned long)wc.wr_id, wc.byte_len, i, d->recv_len[i]);
	}
	if (ibv_poll_cq(d->initiator->send_cq, 1, &wc) || ibv_poll_cq(d->target->recv_cq, 1, &wc))
		fail("a completion too many: request %lu", (unsigned long)wc.wr_id);
}

static void compare(struct direction *d, struct arena *a, const char *whose, int batch)
{
	uint32_t i = 0, slot;
	struct op *op;

	if (!memcmp(a->at, a->want, ARENA_SIZE))
		return;
	while (i < ARENA_SIZE && a->at[i] == a->want[i])
		i++;
	if (i == ARENA_SIZE)
		fail("batch %d: memory (%s) was wrong, and is right now: what was complete came late", batch, whose);
	slot = i / SLOT_SIZE;
	op = &d->op[slot];
	fail("batch %d: memory (%s) wrong at offset %u (has %02x, wants %02x); slot %u holds a %s of %u octets from %u to %u%s%s",
	     batch, whose, i, a->at[i], a->want[i], slot,
	     slot < (uint32_t)d->count ? kind_name[op->kind] : "leftover", op->len, op->from, op->to,
	     op->from_mr ? ", own source region" : "", op->to_mr ? ", own sink region" : "");
}

static void reset(struct direction *d)
{
	int i, slot = 0;

	for (i = 0; i < d->count; i++) {
		if (d->op[i].from_mr && ibv_dereg_mr(d->op[i].from_mr))
			fail("ibv_dereg_mr of a source");
		if (d->op[i].to_mr && ibv_dereg_mr(d->op[i].to_mr))
			fail("ibv_dereg_mr of a sink");
	}
	for (slot = 0; slot < d->count; slot++) {
		memset(d->local.at + slot * SLOT_SIZE, GUARD, SLOT_SIZE);
		memset(d->local.want + slot * SLOT_SIZE, GUARD, SLOT_SIZE);
		memset(d->remote.at + slot * SLOT_SIZE, GUARD, SLOT_SIZE);
		memset(d->remote.want + slot * SLOT_SIZE, GUARD, SLOT_SIZE);
	}
	d->expected_sends = 0;
	d->expected_recvs = 0;
}

static void batch(struct direction d[2], int number)
{
	int i, side, longest = 0;
	struct ibv_sge empty;

	for (side = 0; side < 2; side++) {
		d[side].count = 1 + below(SLOTS);
		if (d[side].count > longest)
			longest = d[side].count;
		for (i = 0; i < d[side].count; i++)
			prepare(&d[side], i);
		/* For post_end(); libsiw refuses a receive without any element. */
		empty = (struct ibv_sge){ .addr = (uintptr_t)d[side].remote.at, .lkey = d[side].remote.mr->lkey };
		d[side].recv_len[d[side].expected_recvs] = 0;
		must_post_recv(d[side].target, d[side].expected_recvs++, &empty, 1);
	}
	/* The ends post in turns, so that both directions send at the same time. */
	for (i = 0; i <= longest; i++)
		for (side = 0; side < 2; side++) {
			if (i < d[side].count)
				post(&d[side], i);
			else if (i == d[side].count)
				post_end(&d[side]);
		}
	for (side = 0; side < 2; side++)
		collect(&d[side]);
	for (side = 0; side < 2; side++) {
		compare(&d[side], &d[side].local, side ? "the server's, initiating" : "the client's, initiating", number);
		compare(&d[side], &d[side].remote, side ? "the client's" : "the server's", number);
	}
	for (side = 0; side < 2; side++)
		reset(&d[side]);
}

static volatile sig_atomic_t over;

/* SIGTERM ends the program after the batch in progress. */
static void stop(int number)
{
	(void)number;
	over = 1;
}

int main(int argc, char **argv)
{
	struct pair_options options = pair_defaults();
	struct direction d[2] = { 0 };
	const char *from = NULL;
	int batches = 100, c, i;
	uint64_t seed = 1;
	struct pair p;

	while ((c = getopt(argc, argv, "n:s:pf:")) != -1) {
		if (c == 'n')
			batches = atoi(optarg);
		else if (c == 's')
			seed = strtoull(optarg, NULL, 0);
		else if (c == 'p')
			plain = 1;
		else if (c == 'f')
			from = optarg;
		else
			return 2;
	}
	if (optind != argc - 1)
		return 2;
	signal(SIGTERM, stop);
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("seed %llu, %d batches%s\n", (unsigned long long)seed, batches, plain ? ", plain" : "");
	rng_state = seed;
	if (pair_open(&p, from, argv[optind], &options))
		fail("no connection");
	d[0].initiator = d[1].target = &p.a;
	d[1].initiator = d[0].target = &p.b;
	for (i = 0; i < 2; i++) {
		arena_open(&d[i].local, d[i].initiator);
		arena_open(&d[i].remote, d[i].target);
	}
	for (i = 0; i < batches && !over; i++)
		batch(d, i);
	for (i = 0; i < 2; i++)
		if (ibv_dereg_mr(d[i].local.mr) || ibv_dereg_mr(d[i].remote.mr))
			fail("ibv_dereg_mr");
	pair_close(&p);
	printf("compared %lu octets:", octets);
	for (i = 0; i < KINDS; i++)
		printf(" %lu %s%s", totals[i], kind_name[i], i == KINDS - 1 ? "\n" : ",");
	return 0;
}
