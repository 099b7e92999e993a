// SPDX-License-Identifier: GPL-2.0
/*
 * What a program may expect of libibverbs and librdmacm over this device,
 * beginning with everything in-tree siw is known to get wrong. Each check runs
 * in a process of its own; a failing one says what it saw.
 *
 * usage: abi                  lists the checks
 *        abi address check    runs one
 */
#include "pair.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *address;
static uint8_t memory[2][65536] __attribute__((aligned(4096)));
static const int all_rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

/* A connection with both arenas registered. */
struct bed {
	struct pair p;
	struct ibv_mr *a, *b;
};

static struct bed bed_open(const struct pair_options *o)
{
	struct pair_options defaults = pair_defaults();
	struct bed bed;

	if (pair_open(&bed.p, NULL, address, o ? o : &defaults))
		fail("no connection");
	memset(memory[0], 0x11, sizeof(memory[0]));
	memset(memory[1], 0x22, sizeof(memory[1]));
	bed.a = must_register(bed.p.a.pd, memory[0], sizeof(memory[0]), all_rights);
	bed.b = must_register(bed.p.b.pd, memory[1], sizeof(memory[1]), all_rights);
	return bed;
}

static void bed_close(struct bed *bed)
{
	if (ibv_dereg_mr(bed->a) || ibv_dereg_mr(bed->b))
		fail("ibv_dereg_mr");
	pair_close(&bed->p);
}

static struct ibv_sge element(struct ibv_mr *mr, void *at, uint32_t len)
{
	return (struct ibv_sge){ .addr = (uintptr_t)at, .length = len, .lkey = mr->lkey };
}

static void post_recv(struct end *e, uint64_t id, struct ibv_sge sge)
{
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;
	int err = ibv_post_recv(e->qp, &wr, &bad);

	if (err)
		fail("ibv_post_recv: %s", strerror(err));
}

static struct ibv_send_wr request(enum ibv_wr_opcode opcode, struct ibv_sge *sge, int n)
{
	return (struct ibv_send_wr){
		.opcode = opcode, .sg_list = sge, .num_sge = n, .send_flags = IBV_SEND_SIGNALED,
	};
}

static void post(struct end *e, struct ibv_send_wr wr)
{
	struct ibv_send_wr *bad;
	int err = ibv_post_send(e->qp, &wr, &bad);

	if (err)
		fail("ibv_post_send of opcode %d: %s", wr.opcode, strerror(err));
}

static struct ibv_wc completion(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	if (wait_completion(cq, &wc, 10))
		fail("no completion within 10 s");
	return wc;
}

static struct ibv_wc success(struct ibv_cq *cq)
{
	struct ibv_wc wc = completion(cq);

	if (wc.status != IBV_WC_SUCCESS)
		fail("request %lu: %s", (unsigned long)wc.wr_id, ibv_wc_status_str(wc.status));
	return wc;
}

static int event_within(struct ibv_comp_channel *channel, int ms)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	if (poll(&fd, 1, ms) != 1)
		return 0;
	if (ibv_get_cq_event(channel, &cq, &context))
		fail("ibv_get_cq_event");
	ibv_ack_cq_events(cq, 1);
	return 1;
}

static int async_within(struct ibv_context *context, enum ibv_event_type kind, int ms)
{
	struct pollfd fd = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_async_event event;
	int seen = 0;

	while (!seen && poll(&fd, 1, ms) == 1) {
		if (ibv_get_async_event(context, &event))
			fail("ibv_get_async_event");
		seen = event.event_type == kind;
		ibv_ack_async_event(&event);
	}
	return seen;
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
		fail("a plain Send woke who waits for solicited ones");
	wr.send_flags |= IBV_SEND_SOLICITED;
	post(&bed.p.a, wr);
	if (!event_within(bed.p.b.channel, 5000))
		fail("a solicited Send did not wake");
	success(bed.p.b.recv_cq);
	/* Armed once, woken once. */
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
		/* Refusing is allowed, cutting short is not. */
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

static void wrong_posts(void)
{
	static const enum ibv_wr_opcode unknown[] = {
		IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_LOCAL_INV,
	};
	struct bed bed = bed_open(NULL);
	struct ibv_sge sge[8];
	struct ibv_send_wr wr, *bad;
	unsigned int i;

	for (i = 0; i < 8; i++)
		sge[i] = element(bed.a, memory[0], 8);
	for (i = 0; i < sizeof(unknown) / sizeof(*unknown); i++) {
		wr = request(unknown[i], sge, 1);
		if (!ibv_post_send(bed.p.a.qp, &wr, &bad))
			fail("opcode %d was taken", unknown[i]);
	}
	wr = request(IBV_WR_SEND, sge, 8);
	if (!ibv_post_send(bed.p.a.qp, &wr, &bad))
		fail("8 elements were taken");
	sge[0].length = 81;
	wr = request(IBV_WR_SEND, sge, 1);
	wr.send_flags |= IBV_SEND_INLINE;
	if (!ibv_post_send(bed.p.a.qp, &wr, &bad))
		fail("81 octets inline were taken");
	/* And the queue pair still works. */
	post_recv(&bed.p.b, 0, element(bed.b, memory[1], 64));
	sge[0].length = 8;
	post(&bed.p.a, request(IBV_WR_SEND, sge, 1));
	success(bed.p.b.recv_cq);
	bed_close(&bed);
}

static void bad_key_flushes_in_order(void)
{
	struct bed bed = bed_open(NULL);
	struct ibv_sge good = element(bed.a, memory[0], 8), wrong = good;
	struct ibv_send_wr wr = request(IBV_WR_SEND, &wrong, 1);
	struct ibv_wc wc;
	int i;

	wrong.lkey ^= 0x5a5a5a00;
	for (i = 0; i < 4; i++)
		post_recv(&bed.p.a, 100 + i, element(bed.a, memory[0] + 4096, 64));
	post(&bed.p.a, wr);
	wc = completion(bed.p.a.send_cq);
	if (wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_WR_FLUSH_ERR)
		fail("a Send with a bad key: %s", ibv_wc_status_str(wc.status));
	/* Posted after the error: flushed, once each, in order. */
	for (i = 0; i < 4; i++) {
		wr = request(IBV_WR_SEND, &good, 1);
		wr.wr_id = 10 + i;
		wr.send_flags = 0;
		post(&bed.p.a, wr);
	}
	for (i = 0; i < 4; i++) {
		wc = completion(bed.p.a.send_cq);
		if (wc.wr_id != 10u + i || wc.status != IBV_WC_WR_FLUSH_ERR)
			fail("send request %lu, %s, where %d was to be flushed",
			     (unsigned long)wc.wr_id, ibv_wc_status_str(wc.status), 10 + i);
	}
	for (i = 0; i < 4; i++) {
		wc = completion(bed.p.a.recv_cq);
		if (wc.wr_id != 100u + i || wc.status != IBV_WC_WR_FLUSH_ERR)
			fail("receive %lu, %s, where %d was to be flushed",
			     (unsigned long)wc.wr_id, ibv_wc_status_str(wc.status), 100 + i);
	}
	if (ibv_poll_cq(bed.p.a.send_cq, 1, &wc) || ibv_poll_cq(bed.p.a.recv_cq, 1, &wc))
		fail("a completion too many: %lu", (unsigned long)wc.wr_id);
	bed_close(&bed);
}

static void other_domain(void)
{
	struct bed bed = bed_open(NULL);
	struct ibv_pd *other = ibv_alloc_pd(bed.p.a.id->verbs);
	struct ibv_mr *mr = must_register(other, memory[0], 64, all_rights);
	struct ibv_sge sge = element(mr, memory[0], 8);
	struct ibv_wc wc;

	post(&bed.p.a, request(IBV_WR_SEND, &sge, 1));
	wc = completion(bed.p.a.send_cq);
	if (wc.status == IBV_WC_SUCCESS)
		fail("memory of another protection domain was sent");
	if (ibv_dereg_mr(mr) || ibv_dealloc_pd(other))
		fail("ibv_dealloc_pd");
	bed_close(&bed);
}

static void remote_rights(void)
{
	static const struct {
		int rights;
		enum ibv_wr_opcode opcode;
	} refused[] = {
		{ IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_WRITE },
		{ IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, IBV_WR_RDMA_READ },
		{ IBV_ACCESS_LOCAL_WRITE, IBV_WR_RDMA_READ },
	};
	unsigned int i;

	for (i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		struct bed bed = bed_open(NULL);
		struct ibv_mr *mr = must_register(bed.p.b.pd, memory[1] + 8192, 4096, refused[i].rights);
		struct ibv_sge sge = element(bed.a, memory[0], 100);
		struct ibv_send_wr wr = request(refused[i].opcode, &sge, 1);
		struct ibv_wc wc;

		post_recv(&bed.p.b, 0, element(bed.b, memory[1], 64));
		wr.wr.rdma.remote_addr = (uintptr_t)memory[1] + 8192;
		wr.wr.rdma.rkey = mr->rkey;
		post(&bed.p.a, wr);
		wc = completion(bed.p.a.send_cq);
		if (refused[i].opcode == IBV_WR_RDMA_READ && wc.status == IBV_WC_SUCCESS)
			fail("a Read without the right succeeded");
		wc = completion(bed.p.b.recv_cq);
		if (wc.status == IBV_WC_SUCCESS)
			fail("a receive succeeded");
		if (memory[1][8192] != 0x22 || memory[0][0] != 0x11)
			fail("case %u: data moved without the right", i);
		if (ibv_dereg_mr(mr))
			fail("ibv_dereg_mr");
		bed_close(&bed);
	}
}

static void read_only_mapping(void)
{
	struct bed bed = bed_open(NULL);
	void *at = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(bed.p.a.pd, at, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	if (mr)
		fail("a read-only mapping was registered for writing");
	mr = ibv_reg_mr(bed.p.a.pd, (void *)0x1000, 4096, IBV_ACCESS_LOCAL_WRITE);
	if (mr)
		fail("an address without memory was registered");
	munmap(at, 4096);
	bed_close(&bed);
}

static void cq_overflow(void)
{
	struct pair_options o = pair_defaults();
	struct ibv_sge sge;
	struct ibv_context *context;
	struct bed bed, bystander = { 0 };
	int i;

	o.cq_depth = 4;
	bed = bed_open(&o);
	context = bed.p.b.id->verbs;
	for (i = 0; i < 32; i++)
		post_recv(&bed.p.b, i, element(bed.b, memory[1], 64));
	sge = element(bed.a, memory[0], 8);
	for (i = 0; i < 32; i++) {
		struct ibv_send_wr wr = request(IBV_WR_SEND, &sge, 1), *bad;

		wr.send_flags = 0;
		if (ibv_post_send(bed.p.a.qp, &wr, &bad))
			break;
	}
	if (!async_within(context, IBV_EVENT_CQ_ERR, 5000))
		fail("no event though the completion queue overflowed");
	/* Nobody else is hurt. */
	if (pair_open(&bystander.p, NULL, address, &(struct pair_options){
			.send_depth = 4, .recv_depth = 4, .cq_depth = 8, .send_sge = 1, .recv_sge = 1 }))
		fail("no second connection");
	pair_close(&bystander.p);
	bed_close(&bed);
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
		/* Keys of empty operations are not looked at. */
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

static void wrong_modifies(void)
{
	struct pair_options o = pair_defaults();
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS }, seen;
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct bed bed = bed_open(&o);
	struct ibv_qp *qp;

	init.send_cq = bed.p.a.send_cq;
	init.recv_cq = bed.p.a.recv_cq;
	qp = ibv_create_qp(bed.p.a.pd, &init);
	if (!qp)
		fail("ibv_create_qp");
	if (!ibv_modify_qp(qp, &attr, IBV_QP_STATE))
		fail("a queue pair without connection went to RTS");
	attr.qp_state = IBV_QPS_ERR;
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE))
		fail("to ERR");
	if (ibv_query_qp(qp, &seen, IBV_QP_STATE, &init) || seen.qp_state != IBV_QPS_ERR)
		fail("state %d after going to ERR", seen.qp_state);
	if (ibv_destroy_qp(qp))
		fail("ibv_destroy_qp");
	if (ibv_query_qp(bed.p.a.qp, &seen, IBV_QP_STATE, &init) || seen.qp_state != IBV_QPS_RTS)
		fail("state %d of a connected queue pair", seen.qp_state);
	init.qp_type = IBV_QPT_UD;
	if (ibv_create_qp(bed.p.a.pd, &init))
		fail("a UD queue pair was made");
	bed_close(&bed);
}

static void disconnect_flushes(void)
{
	struct bed bed = bed_open(NULL);
	struct ibv_wc wc;
	int i;

	for (i = 0; i < 8; i++)
		post_recv(&bed.p.b, i, element(bed.b, memory[1], 64));
	if (rdma_disconnect(bed.p.a.id))
		fail("rdma_disconnect");
	if (wait_cm_event(&bed.p, RDMA_CM_EVENT_DISCONNECTED, 10))
		fail("no disconnected event");
	for (i = 0; i < 8; i++) {
		wc = completion(bed.p.b.recv_cq);
		if (wc.wr_id != (uint64_t)i || wc.status != IBV_WC_WR_FLUSH_ERR)
			fail("receive %lu: %s", (unsigned long)wc.wr_id, ibv_wc_status_str(wc.status));
	}
	bed_close(&bed);
}

/* libsiw posts receives without a word to the kernel, also after the connection's end. */
static void late_receives_flush(void)
{
	struct pair_options o = pair_defaults();
	struct bed bed;
	struct ibv_wc wc;
	int i;

	o.events = 1;
	bed = bed_open(&o);
	post_recv(&bed.p.b, 0, element(bed.b, memory[1], 64));
	if (rdma_disconnect(bed.p.a.id))
		fail("rdma_disconnect");
	if (wait_cm_event(&bed.p, RDMA_CM_EVENT_DISCONNECTED, 10))
		fail("no disconnected event");
	for (i = 0; i < 4; i++) {
		if (i)
			usleep(30000 << i);
		wc = completion(bed.p.b.recv_cq);
		if (wc.wr_id != (uint64_t)i || wc.status != IBV_WC_WR_FLUSH_ERR)
			fail("receive %lu: %s", (unsigned long)wc.wr_id, ibv_wc_status_str(wc.status));
		if (ibv_req_notify_cq(bed.p.b.recv_cq, 0))
			fail("ibv_req_notify_cq");
		event_within(bed.p.b.channel, 0);
		if (ibv_req_notify_cq(bed.p.b.recv_cq, 0))
			fail("ibv_req_notify_cq");
		post_recv(&bed.p.b, i + 1, element(bed.b, memory[1], 64));
		if (!event_within(bed.p.b.channel, 5000))
			fail("receive %d, posted after the end, is not flushed", i + 1);
	}
	bed_close(&bed);
}

static const struct {
	const char *name;
	void (*run)(void);
} checks[] = {
#define CHECK(name) { #name, name }
	CHECK(solicited_only), CHECK(read_with_two_elements), CHECK(iova), CHECK(many_objects),
	CHECK(private_data), CHECK(wrong_posts), CHECK(bad_key_flushes_in_order), CHECK(other_domain),
	CHECK(remote_rights), CHECK(read_only_mapping), CHECK(cq_overflow), CHECK(srq_limit),
	CHECK(zero_length), CHECK(more_reads_than_ord), CHECK(wrong_modifies), CHECK(disconnect_flushes),
	CHECK(late_receives_flush),
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
