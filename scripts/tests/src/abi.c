// SPDX-License-Identifier: GPL-2.0
/*
 * Behaviour of libibverbs and librdmacm over this device that programs rely on.
 * The first checks are the known defects of in-tree siw. Each check runs in a
 * process of its own, and prints the observed values if it fails.
 *
 * usage: abi                  lists the checks
 *        abi address check    runs one
 */
#include "bed.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The receive for a message is posted later than it was sent. */
static void late_receive(void)
{
	struct bed bed = bed_open(NULL);
	struct ibv_sge sge = element(bed.a, memory[0], 64);
	struct ibv_wc wc;

	post(&bed.p.a, request(IBV_WR_SEND, &sge, 1));
	if (!wait_completion(bed.p.b.recv_cq, &wc, 0.1))
		fail("a completion of no receive");
	post_recv(&bed.p.b, 7, element(bed.b, memory[1], 64));
	wc = success(bed.p.b.recv_cq);
	if (wc.wr_id != 7 || wc.byte_len != 64 || memory[1][63] != 0x11)
		fail("something else arrived");
	success(bed.p.a.send_cq);
	bed_close(&bed);
}

static void solicited_only(void)
{
	struct pair_options o = pair_defaults();
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct bed bed;
	int i;

	o.events = 1;
	bed = bed_open(&o);
	for (i = 0; i < 3; i++)
		post_recv(&bed.p.b, i, element(bed.b, memory[1] + 64 * i, 64));
	if (ibv_req_notify_cq(bed.p.b.recv_cq, 1))
		fail("ibv_req_notify_cq");
	sge = element(bed.a, memory[0], 8);
	wr = request(IBV_WR_SEND, &sge, 1);
	post(&bed.p.a, wr);
	success(bed.p.b.recv_cq);
	if (event_within(bed.p.b.channel, 200))
		fail("a plain Send woke a process that waits for solicited ones");
	wr.send_flags |= IBV_SEND_SOLICITED;
	post(&bed.p.a, wr);
	if (!event_within(bed.p.b.channel, 5000))
		fail("a solicited Send did not wake");
	success(bed.p.b.recv_cq);
	/* One arming of the queue brings one event. */
	post(&bed.p.a, wr);
	success(bed.p.b.recv_cq);
	if (event_within(bed.p.b.channel, 200))
		fail("woken without having armed again");
	bed_close(&bed);
}

static void read_with_two_elements(void)
{
	struct bed bed = bed_open(NULL);
	struct ibv_sge sge[2] = { element(bed.a, memory[0], 100), element(bed.a, memory[0] + 1000, 100) };
	struct ibv_send_wr wr = request(IBV_WR_RDMA_READ, sge, 2), *bad;
	struct ibv_wc wc;
	int i;

	for (i = 0; i < 200; i++)
		memory[1][i] = i;
	wr.wr.rdma.remote_addr = (uintptr_t)memory[1];
	wr.wr.rdma.rkey = bed.b->rkey;
	if (!ibv_post_send(bed.p.a.qp, &wr, &bad)) {
		wc = completion(bed.p.a.send_cq);
		/* A refusal is allowed, a truncated Read is not. */
		if (wc.status == IBV_WC_SUCCESS &&
		    (wc.byte_len != 200 || memcmp(memory[0], memory[1], 100) || memcmp(memory[0] + 1000, memory[1] + 100, 100)))
			fail("success, byte_len %u, data %s", wc.byte_len, memory[0][1000] == 0x11 ? "missing" : "wrong");
	}
	bed_close(&bed);
}

static void iova(void)
{
	struct bed bed = bed_open(NULL);
	uint64_t at = 0x1234567000ull | ((uintptr_t)memory[1] & 4095);
	struct ibv_mr *mr = ibv_reg_mr_iova(bed.p.b.pd, memory[1], 8192, at, all_rights);
	struct ibv_sge sge = element(bed.a, memory[0], 100);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge, 1);

	if (!mr)
		fail("ibv_reg_mr_iova: %s", strerror(errno));
	wr.wr.rdma.rkey = mr->rkey;
	wr.wr.rdma.remote_addr = at + 5000;
	post(&bed.p.a, wr);
	success(bed.p.a.send_cq);
	/* The Read behind it returns what the Write placed. */
	sge.addr += 4096;
	wr = request(IBV_WR_RDMA_READ, &sge, 1);
	wr.wr.rdma.rkey = mr->rkey;
	wr.wr.rdma.remote_addr = at + 5000;
	post(&bed.p.a, wr);
	success(bed.p.a.send_cq);
	if (memcmp(memory[1] + 5000, memory[0], 100) || memcmp(memory[0] + 4096, memory[0], 100))
		fail("data is not at the I/O virtual address");
	if (ibv_dereg_mr(mr))
		fail("ibv_dereg_mr");
	bed_close(&bed);
}

/* IB_UVERBS_ACCESS_OPTIONAL_RANGE: a device ignores unknown flags of this range, and no others. */
static void optional_access(void)
{
	struct bed bed = bed_open(NULL);
	struct ibv_sge sge = element(bed.a, memory[0], 100);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge, 1);
	struct ibv_mr *mr;
	int bit;

	for (bit = 20; bit < 30; bit++) {
		mr = ibv_reg_mr_iova2(bed.p.b.pd, memory[1], 4096, (uintptr_t)memory[1], all_rights | 1u << bit);
		if (!mr)
			fail("optional access flag %d: %s", bit, strerror(errno));
		memory[0][0] = memory[1][0] + 1;
		wr.wr.rdma.rkey = mr->rkey;
		wr.wr.rdma.remote_addr = (uintptr_t)memory[1];
		post(&bed.p.a, wr);
		success(bed.p.a.send_cq);
		/* A Read completes after the messages sent before it have been placed. */
		sge = element(bed.a, memory[0] + 4096, 1);
		wr.opcode = IBV_WR_RDMA_READ;
		post(&bed.p.a, wr);
		success(bed.p.a.send_cq);
		if (memory[1][0] != memory[0][0] || memory[0][4096] != memory[0][0])
			fail("optional access flag %d: the region does not give its rights", bit);
		sge = element(bed.a, memory[0], 100);
		wr.opcode = IBV_WR_RDMA_WRITE;
		if (ibv_dereg_mr(mr))
			fail("ibv_dereg_mr");
	}
	mr = ibv_reg_mr_iova2(bed.p.b.pd, memory[1], 4096, (uintptr_t)memory[1], all_rights | 1u << 30);
	if (mr)
		fail("access flag 30, which is not optional, was taken");
	bed_close(&bed);
}

static void many_objects(void)
{
	struct bed bed = bed_open(NULL);
	struct ibv_cq *cq[200];
	int i;

	for (i = 0; i < 200; i++) {
		cq[i] = ibv_create_cq(bed.p.a.id->verbs, 8, NULL, NULL, 0);
		if (!cq[i])
			fail("completion queue %d: %s", i, strerror(errno));
	}
	for (i = 0; i < 200; i++)
		if (ibv_destroy_cq(cq[i]))
			fail("ibv_destroy_cq %d", i);
	bed_close(&bed);
}

static void private_data(void)
{
	static const int lengths[] = { 0, 1, 57, 100, 250, 251, 252, 253, 254, 255 };
	uint8_t to[255], back[255];
	struct pair_options o = pair_defaults();
	struct pair p;
	unsigned int i, reject;
	int n;

	for (n = 0; n < 255; n++) {
		to[n] = n * 3;
		back[n] = n * 5 + 1;
	}
	o.request_data = to;
	o.reply_data = back;
	for (reject = 0; reject < 2; reject++)
		for (i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
			n = lengths[i];
			o.request_len = o.reply_len = n;
			o.reject = reject;
			if (pair_open(&p, NULL, address, &o))
				fail("%d octets: no connection", n);
			if (p.seen_request_len != n || memcmp(p.seen_request, to, n))
				fail("%d octets in the request: %d arrived", n, p.seen_request_len);
			if (p.seen_reply_len != n || memcmp(p.seen_reply, back, n))
				fail("%d octets in the %s: %d arrived", n, reject ? "rejection" : "reply", p.seen_reply_len);
			pair_close(&p);
		}
}

static void srq_limit(void)
{
	struct pair_options o = pair_defaults();
	struct ibv_srq_attr attr = { .srq_limit = 8 };
	struct ibv_recv_wr wr = { .num_sge = 1 }, *bad;
	struct ibv_sge sge, from;
	struct ibv_context *context;
	struct bed bed;
	int i;

	o.shared_recv = 1;
	bed = bed_open(&o);
	context = bed.p.b.id->verbs;
	sge = element(bed.b, memory[1], 64);
	wr.sg_list = &sge;
	for (i = 0; i < 10; i++) {
		wr.wr_id = 50 + i;
		if (ibv_post_srq_recv(bed.p.b.srq, &wr, &bad))
			fail("ibv_post_srq_recv %d", i);
	}
	if (ibv_modify_srq(bed.p.b.srq, &attr, IBV_SRQ_LIMIT))
		fail("ibv_modify_srq");
	if (async_within(context, IBV_EVENT_SRQ_LIMIT_REACHED, 100))
		fail("the limit event came though 10 are there and the limit is 8");
	from = element(bed.a, memory[0], 16);
	for (i = 0; i < 4; i++) {
		post(&bed.p.a, request(IBV_WR_SEND, &from, 1));
		if (success(bed.p.b.recv_cq).wr_id != 50u + i)
			fail("order of the shared receives");
	}
	if (!async_within(context, IBV_EVENT_SRQ_LIMIT_REACHED, 5000))
		fail("no limit event though 6 are left and the limit is 8");
	bed_close(&bed);
}

static void zero_length(void)
{
	static const enum ibv_wr_opcode opcode[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND };
	struct bed bed = bed_open(NULL);
	struct ibv_send_wr wr;
	struct ibv_sge sge = element(bed.a, memory[0], 0);
	struct ibv_wc wc;
	unsigned int i;

	post_recv(&bed.p.b, 7, element(bed.b, memory[1], 64));
	for (i = 0; i < 3; i++) {
		wr = request(opcode[i], &sge, opcode[i] == IBV_WR_RDMA_READ);
		wr.wr_id = i;
		/* Keys of empty operations are not checked. */
		wr.wr.rdma.rkey = 0xdead00;
		post(&bed.p.a, wr);
	}
	for (i = 0; i < 3; i++)
		if (success(bed.p.a.send_cq).wr_id != i)
			fail("order of completions");
	wc = success(bed.p.b.recv_cq);
	if (wc.wr_id != 7 || wc.byte_len)
		fail("receive %lu of %u octets", (unsigned long)wc.wr_id, wc.byte_len);
	bed_close(&bed);
}

static void more_reads_than_ord(void)
{
	struct pair_options o = pair_defaults();
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct bed bed;
	int i;

	o.ird = o.ord = 2;
	bed = bed_open(&o);
	for (i = 0; i < 65536; i++)
		memory[1][i] = i >> 8 ^ i;
	for (i = 0; i < 32; i++) {
		sge = element(bed.a, memory[0] + 2048 * i, 2048);
		wr = request(IBV_WR_RDMA_READ, &sge, 1);
		wr.wr_id = i;
		wr.wr.rdma.remote_addr = (uintptr_t)memory[1] + 2048 * i;
		wr.wr.rdma.rkey = bed.b->rkey;
		post(&bed.p.a, wr);
	}
	for (i = 0; i < 32; i++)
		if (success(bed.p.a.send_cq).wr_id != (uint64_t)i)
			fail("order of completions");
	if (memcmp(memory[0], memory[1], 65536))
		fail("data differs");
	bed_close(&bed);
}

static const struct {
	const char *name;
	void (*run)(void);
} checks[] = {
#define CHECK(name) { #name, name }
	CHECK(solicited_only), CHECK(read_with_two_elements), CHECK(iova),
	CHECK(optional_access), CHECK(many_objects), CHECK(late_receive),
	CHECK(private_data), CHECK(wrong_posts), CHECK(bad_key_flushes_in_order), CHECK(other_domain),
	CHECK(remote_rights), CHECK(read_only_mapping), CHECK(cq_overflow), CHECK(srq_limit),
	CHECK(zero_length), CHECK(more_reads_than_ord), CHECK(wrong_modifies), CHECK(disconnect_flushes),
	CHECK(late_receives_flush), CHECK(rings_map_whole), CHECK(reset_against_posts), CHECK(flags_fields),
	CHECK(creation_flags), CHECK(srq_limit_at_creation),
};

int main(int argc, char **argv)
{
	unsigned int i;

	if (argc < 3) {
		for (i = 0; i < sizeof(checks) / sizeof(*checks); i++)
			printf("%s\n", checks[i].name);
		return argc < 2 ? 0 : 2;
	}
	address = argv[1];
	for (i = 0; i < sizeof(checks) / sizeof(*checks); i++)
		if (!strcmp(checks[i].name, argv[2])) {
			checks[i].run();
			return 0;
		}
	fail("no check %s", argv[2]);
}
