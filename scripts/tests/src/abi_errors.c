// SPDX-License-Identifier: GPL-2.0
/*
 * Checks of abi.c: refused calls, errors that end a connection, and the objects
 * after the end.
 */
#include "bed.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void wrong_posts(void)
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
	/* The queue pair still works. */
	post_recv(&bed.p.b, 0, element(bed.b, memory[1], 64));
	sge[0].length = 8;
	post(&bed.p.a, request(IBV_WR_SEND, sge, 1));
	success(bed.p.b.recv_cq);
	bed_close(&bed);
}

void bad_key_flushes_in_order(void)
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
	if (wc.status != IBV_WC_LOC_PROT_ERR)
		fail("a Send with a bad key: %s", ibv_wc_status_str(wc.status));
	/* Requests posted after the error are flushed, once each, in order. */
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

void other_domain(void)
{
	struct bed bed = bed_open(NULL);
	struct ibv_pd *other = ibv_alloc_pd(bed.p.a.id->verbs);
	struct ibv_mr *mr = must_register(other, memory[0], 64, all_rights);
	struct ibv_sge sge = element(mr, memory[0], 8);
	struct ibv_wc wc;

	post(&bed.p.a, request(IBV_WR_SEND, &sge, 1));
	wc = completion(bed.p.a.send_cq);
	if (wc.status != IBV_WC_LOC_PROT_ERR)
		fail("a Send of another protection domain's memory: %s", ibv_wc_status_str(wc.status));
	if (ibv_dereg_mr(mr) || ibv_dealloc_pd(other))
		fail("ibv_dealloc_pd");
	bed_close(&bed);
}

void remote_rights(void)
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
		if (refused[i].opcode == IBV_WR_RDMA_READ && wc.status != IBV_WC_REM_ACCESS_ERR)
			fail("a Read without the right: %s", ibv_wc_status_str(wc.status));
		wc = completion(bed.p.b.recv_cq);
		if (wc.status != IBV_WC_WR_FLUSH_ERR)
			fail("a receive behind a refused request: %s", ibv_wc_status_str(wc.status));
		if (memory[1][8192] != 0x22 || memory[0][0] != 0x11)
			fail("case %u: data moved without the right", i);
		if (ibv_dereg_mr(mr))
			fail("ibv_dereg_mr");
		bed_close(&bed);
	}
}

void read_only_mapping(void)
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

void cq_overflow(void)
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
	/* Another queue pair still works. */
	if (pair_open(&bystander.p, NULL, address, &(struct pair_options){
			.send_depth = 4, .recv_depth = 4, .cq_depth = 8, .send_sge = 1, .recv_sge = 1 }))
		fail("no second connection");
	pair_close(&bystander.p);
	bed_close(&bed);
}

void wrong_modifies(void)
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

void disconnect_flushes(void)
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

/* libsiw posts receives without a system call, also after the connection's end. */
void late_receives_flush(void)
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
