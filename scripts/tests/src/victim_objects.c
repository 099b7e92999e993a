// SPDX-License-Identifier: GPL-2.0
#include "victim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct end me;
uint8_t *arena, *buffers;
struct ibv_mr *rw, *recv_mr;
uint32_t recv_size;

static struct ibv_pd *other_pd;
static struct ibv_mr *wo, *ro, *local, *foreign;

void find_memory(void)
{
	arena = aligned_alloc(4096, ARENA);
	buffers = aligned_alloc(4096, RECV_MAX);
	if (!arena || !buffers)
		fail("no memory");
}

int post_recv(int number)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)buffers + (size_t)number * recv_size, .length = recv_size, .lkey = recv_mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = number, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(me.qp, &wr, &bad);
}

static void post_recvs(int count)
{
	int i;

	for (i = 0; i < count; i++)
		if (post_recv(i))
			fail("ibv_post_recv");
}

static struct ibv_mr *part(struct ibv_pd *pd, int offset, int len, int access)
{
	return must_register(pd, arena + offset, len, access);
}

void make(struct rdma_cm_id *id, int recvs, uint32_t size)
{
	const int remote_write = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 2, .max_recv_sge = 2, },
	};

	if ((size_t)recvs * size > RECV_MAX)
		fail("%d receives of %u octets", recvs, size);
	me.id = id;
	me.pd = ibv_alloc_pd(id->verbs);
	other_pd = ibv_alloc_pd(id->verbs);
	me.channel = ibv_create_comp_channel(id->verbs);
	if (!me.pd || !other_pd || !me.channel)
		fail("cannot make protection domains or the channel");
	fcntl(id->verbs->async_fd, F_SETFL, O_NONBLOCK);
	me.send_cq = ibv_create_cq(id->verbs, 128, NULL, NULL, 0);
	me.recv_cq = ibv_create_cq(id->verbs, 128, NULL, me.channel, 0);
	attr.send_cq = me.send_cq;
	attr.recv_cq = me.recv_cq;
	if (!me.send_cq || !me.recv_cq || rdma_create_qp(id, me.pd, &attr))
		fail("cannot make the queue pair: %s", strerror(errno));
	me.qp = id->qp;
	memset(arena, 0xa5, ARENA);
	memset(buffers, 0xa5, RECV_MAX);
	rw = part(me.pd, 4099, 5000, remote_write | IBV_ACCESS_REMOTE_READ);
	wo = part(me.pd, 16384, 4096, remote_write);
	ro = part(me.pd, 20480, 4096, IBV_ACCESS_REMOTE_READ);
	local = part(me.pd, 24576, 4096, IBV_ACCESS_LOCAL_WRITE);
	foreign = part(other_pd, 28672, 4096, remote_write | IBV_ACCESS_REMOTE_READ);
	recv_mr = must_register(me.pd, buffers, RECV_MAX, IBV_ACCESS_LOCAL_WRITE);
	recv_size = size;
	post_recvs(recvs);
}

void print_made(void)
{
	printf("made %x %lx %x %x %x %x %x\n", me.qp->qp_num, (unsigned long)arena,
	       rw->rkey, wo->rkey, ro->rkey, local->rkey, foreign->rkey);
}

static void drop(struct ibv_mr **mr)
{
	if (*mr && ibv_dereg_mr(*mr))
		fail("ibv_dereg_mr: %s", strerror(errno));
	*mr = NULL;
}

void unmake(void)
{
	if (me.qp)
		rdma_destroy_qp(me.id);
	drop(&rw);
	drop(&wo);
	drop(&ro);
	drop(&local);
	drop(&foreign);
	drop(&recv_mr);
	if (me.send_cq)
		ibv_destroy_cq(me.send_cq);
	if (me.recv_cq)
		ibv_destroy_cq(me.recv_cq);
	if (me.channel)
		ibv_destroy_comp_channel(me.channel);
	if (other_pd && ibv_dealloc_pd(other_pd))
		fail("ibv_dealloc_pd: %s", strerror(errno));
	other_pd = NULL;
	if (me.pd && ibv_dealloc_pd(me.pd))
		fail("ibv_dealloc_pd: %s", strerror(errno));
}
