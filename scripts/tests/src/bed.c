// SPDX-License-Identifier: GPL-2.0
#include "bed.h"

#include <poll.h>
#include <string.h>

const char *address;
uint8_t memory[2][65536] __attribute__((aligned(4096)));
const int all_rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

struct bed bed_open(const struct pair_options *o)
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

void bed_close(struct bed *bed)
{
	if (ibv_dereg_mr(bed->a) || ibv_dereg_mr(bed->b))
		fail("ibv_dereg_mr");
	pair_close(&bed->p);
}

struct ibv_sge element(struct ibv_mr *mr, void *at, uint32_t len)
{
	return (struct ibv_sge){ .addr = (uintptr_t)at, .length = len, .lkey = mr->lkey };
}

void post_recv(struct end *e, uint64_t id, struct ibv_sge sge)
{
	must_post_recv(e, id, &sge, 1);
}

struct ibv_send_wr request(enum ibv_wr_opcode opcode, struct ibv_sge *sge, int n)
{
	return (struct ibv_send_wr){
		.opcode = opcode, .sg_list = sge, .num_sge = n, .send_flags = IBV_SEND_SIGNALED,
	};
}

void post(struct end *e, struct ibv_send_wr wr)
{
	must_post_send(e, &wr);
}

struct ibv_wc completion(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	if (wait_completion(cq, &wc, 10))
		fail("no completion within 10 s");
	return wc;
}

struct ibv_wc success(struct ibv_cq *cq)
{
	struct ibv_wc wc = completion(cq);

	if (wc.status != IBV_WC_SUCCESS)
		fail("request %lu: %s", (unsigned long)wc.wr_id, ibv_wc_status_str(wc.status));
	return wc;
}

int event_within(struct ibv_comp_channel *channel, int ms)
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

int async_within(struct ibv_context *context, enum ibv_event_type kind, int ms)
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
