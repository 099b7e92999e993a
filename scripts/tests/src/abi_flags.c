// SPDX-License-Identifier: GPL-2.0
/* Flags fields of the user ABI: what an unknown or unsupported flag answers. */
#include "bed.h"

#include <errno.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/siw-abi.h>
#include <string.h>
#include <unistd.h>

/* A value of a flags field, and the errno that it answers; 0: it is taken. */
struct answer {
	const char *what;
	int flags, want;
};

/* Attributes that the mask of ibv_modify_qp() names, on a queue pair in INIT without a change of state. */
static const struct answer qp_masks[] = {
	{ "nothing", 0, 0 },
	{ "cur_qp_state", IBV_QP_CUR_STATE, 0 },
	{ "en_sqd_async_notify", IBV_QP_EN_SQD_ASYNC_NOTIFY, 0 },
	{ "path_mig_state", IBV_QP_PATH_MIG_STATE, 0 },
	/* The device has no automatic path migration, no resize of queues, and no datagrams (docs/requirements.md). */
	{ "alt_ah_attr", IBV_QP_ALT_PATH, EINVAL },
	{ "cap", IBV_QP_CAP, EINVAL },
	{ "qkey", IBV_QP_QKEY, EINVAL },
	{ "rate_limit", IBV_QP_RATE_LIMIT, EOPNOTSUPP },
	{ "bit 21", 1 << 21, EOPNOTSUPP },
	{ "bit 30", 1 << 30, EOPNOTSUPP },
};

static const struct answer srq_masks[] = {
	{ "nothing", 0, 0 },
	{ "srq_limit", IBV_SRQ_LIMIT, 0 },
	{ "max_wr", IBV_SRQ_MAX_WR, EOPNOTSUPP },
	{ "both", IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT, EOPNOTSUPP },
	{ "bit 2", 1 << 2, EOPNOTSUPP },
};

/* Access flags of a queue pair: rights that the device lacks, and hints, are ignored as by siw. */
static const struct answer qp_access[] = {
	{ "all rights", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, 0 },
	{ "remote atomic", IBV_ACCESS_REMOTE_ATOMIC, 0 },
	{ "relaxed ordering", IBV_ACCESS_RELAXED_ORDERING, 0 },
	{ "bit 25", 1 << 25, 0 },
	{ "bit 29", 1 << 29, 0 },
};

/* ibv_create_cq() has no flags: the extended command has. ib_uverbs passes all of them on. */
static const struct answer cq_create[] = {
	{ "nothing", 0, 0 },
	{ "timestamp completion", IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION, EOPNOTSUPP },
	{ "ignore overrun", IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN, EOPNOTSUPP },
	{ "bit 2", 1 << 2, EOPNOTSUPP },
	{ "bit 30", 1 << 30, EOPNOTSUPP },
};

/* ib_uverbs refuses flags that it does not know (EINVAL). The device has none of the others. */
static const struct answer qp_create[] = {
	{ "nothing", 0, 0 },
	{ "block multicast loopback", 1 << 1, EOPNOTSUPP },
	{ "cross channel", 1 << 2, EOPNOTSUPP },
	{ "managed send", 1 << 3, EOPNOTSUPP },
	{ "managed receive", 1 << 4, EOPNOTSUPP },
	{ "scatter FCS", IB_UVERBS_QP_CREATE_SCATTER_FCS, EOPNOTSUPP },
	{ "VLAN stripping", IB_UVERBS_QP_CREATE_CVLAN_STRIPPING, EOPNOTSUPP },
	{ "source queue pair", 1 << 10, EOPNOTSUPP },
	{ "PCI write end padding", IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING, EOPNOTSUPP },
	{ "bit 0", 1 << 0, EINVAL },
	{ "bit 30", 1 << 30, EINVAL },
};

static void expect(const char *field, const struct answer *a, int got)
{
	if (got != a->want)
		fail("%s, %s: %s, not %s", field, a->what, got ? strerror(got) : "taken",
		     a->want ? strerror(a->want) : "taken");
}

void flags_fields(void)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .cur_qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq_attr srq_attr = { .max_wr = 8, .srq_limit = 1 };
	struct bed bed = bed_open(NULL);
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	size_t i;

	init.send_cq = bed.p.a.send_cq;
	init.recv_cq = bed.p.a.recv_cq;
	qp = ibv_create_qp(bed.p.a.pd, &init);
	srq = ibv_create_srq(bed.p.a.pd, &srq_init);
	if (!qp || !srq)
		fail("cannot make a queue pair and a shared receive queue");
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		fail("to INIT");
	attr.alt_port_num = 1;
	for (i = 0; i < sizeof(qp_masks) / sizeof(*qp_masks); i++)
		expect("attr_mask of ibv_modify_qp()", &qp_masks[i], ibv_modify_qp(qp, &attr, qp_masks[i].flags));
	for (i = 0; i < sizeof(qp_access) / sizeof(*qp_access); i++) {
		attr.qp_access_flags = qp_access[i].flags;
		expect("qp_access_flags", &qp_access[i], ibv_modify_qp(qp, &attr, IBV_QP_ACCESS_FLAGS));
	}
	for (i = 0; i < sizeof(srq_masks) / sizeof(*srq_masks); i++)
		expect("srq_attr_mask", &srq_masks[i], ibv_modify_srq(srq, &srq_attr, srq_masks[i].flags));
	if (ibv_destroy_qp(qp) || ibv_destroy_srq(srq))
		fail("cannot destroy them");
	bed_close(&bed);
}

/* Writes an extended command; returns the errno, or 0. */
static int command(int fd, uint32_t number, const void *request, size_t len, void *response, size_t room, size_t driver)
{
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_ex_cmd_hdr extended;
		uint64_t request[16];
	} message;
	const size_t headers = sizeof(message.header) + sizeof(message.extended);

	memset(&message, 0, sizeof(message));
	message.header.command = number | IB_USER_VERBS_CMD_FLAG_EXTENDED;
	message.header.in_words = len / 8;
	message.header.out_words = (room - driver) / 8;
	message.extended.response = (uintptr_t)response;
	message.extended.provider_out_words = driver / 8;
	memcpy(message.request, request, len);
	return write(fd, &message, headers + len) < 0 ? errno : 0;
}

static void destroy(int fd, uint32_t number, uint32_t handle)
{
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_destroy_qp command;	/* that of a completion queue has the same layout */
	} message;
	union {
		struct ib_uverbs_destroy_cq_resp cq;
		struct ib_uverbs_destroy_qp_resp qp;
	} response;
	const size_t room = number == IB_USER_VERBS_CMD_DESTROY_CQ ? sizeof(response.cq) : sizeof(response.qp);

	memset(&message, 0, sizeof(message));
	message.header.command = number;
	message.header.in_words = sizeof(message) / 4;
	message.header.out_words = room / 4;
	message.command.response = (uintptr_t)&response;
	message.command.qp_handle = handle;
	if (write(fd, &message, sizeof(message)) < 0)
		fail("destruction by command %u: %s", number, strerror(errno));
}

/* Flags at the creation of completion queues and queue pairs, which libibverbs does not pass to this device. */
void creation_flags(void)
{
	struct bed bed = bed_open(NULL);
	struct ib_uverbs_ex_create_cq cq = { .cqe = 8, .comp_channel = -1 };
	struct ib_uverbs_ex_create_qp qp = {
		.pd_handle = bed.p.a.pd->handle,
		.send_cq_handle = bed.p.a.send_cq->handle, .recv_cq_handle = bed.p.a.recv_cq->handle,
		.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1,
		.qp_type = IBV_QPT_RC,
	};
	struct {
		struct ib_uverbs_ex_create_cq_resp base;
		struct siw_uresp_create_cq driver;
	} cq_made;
	struct {
		struct ib_uverbs_ex_create_qp_resp base;
		struct siw_uresp_create_qp driver;
	} qp_made;
	int fd = bed.p.a.pd->context->cmd_fd, err;
	size_t i;

	for (i = 0; i < sizeof(cq_create) / sizeof(*cq_create); i++) {
		cq.flags = cq_create[i].flags;
		err = command(fd, IB_USER_VERBS_CMD_CREATE_CQ, &cq, sizeof(cq), &cq_made, sizeof(cq_made),
			      sizeof(cq_made.driver));
		expect("flags of create_cq", &cq_create[i], err);
		if (!err)
			destroy(fd, IB_USER_VERBS_CMD_DESTROY_CQ, cq_made.base.base.cq_handle);
	}
	for (i = 0; i < sizeof(qp_create) / sizeof(*qp_create); i++) {
		qp.create_flags = qp_create[i].flags;
		err = command(fd, IB_USER_VERBS_CMD_CREATE_QP, &qp, sizeof(qp), &qp_made, sizeof(qp_made),
			      sizeof(qp_made.driver));
		expect("create_flags of create_qp", &qp_create[i], err);
		if (!err)
			destroy(fd, IB_USER_VERBS_CMD_DESTROY_QP, qp_made.base.base.qp_handle);
	}
	bed_close(&bed);
}

/* The limit in the attributes of ibv_create_srq() means nothing (ibv_create_srq(3)): any value is taken. */
void srq_limit_at_creation(void)
{
	static const uint32_t limits[] = { 0, 8, 1000000, UINT32_MAX };
	struct bed bed = bed_open(NULL);
	struct ibv_srq *srq;
	size_t i;

	for (i = 0; i < sizeof(limits) / sizeof(*limits); i++) {
		struct ibv_srq_init_attr init = { .attr = { .max_wr = 8, .max_sge = 1, .srq_limit = limits[i] } };
		struct ibv_srq_attr attr;

		srq = ibv_create_srq(bed.p.a.pd, &init);
		if (!srq)
			fail("srq_limit %u at creation: %s", limits[i], strerror(errno));
		if (!ibv_query_srq(srq, &attr) && attr.srq_limit)
			fail("a new queue has the limit %u", attr.srq_limit);
		if (ibv_destroy_srq(srq))
			fail("ibv_destroy_srq");
	}
	bed_close(&bed);
}
