/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Two connected queue pairs inside one process, for tests that need to know
 * both ends' memory. Both rdma_cm ids share one event channel and one thread,
 * so nothing here depends on timing.
 */
#ifndef RSIW_TEST_PAIR_H
#define RSIW_TEST_PAIR_H

#include <stdint.h>
#include <rdma/rdma_cma.h>

/* One end of a connection. */
struct end {
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;		/* or NULL */
	struct ibv_qp *qp;
};

/* The attributes of a pair; zeroed fields get the defaults of pair_defaults(). */
struct pair_options {
	int send_depth, recv_depth, cq_depth;
	int send_sge, recv_sge;
	int inline_size;
	int ird, ord;
	int events;			/* give the CQs a completion channel */
	int shared_recv;		/* receive through an SRQ of recv_depth */
	const void *request_data;	/* the connecting end's private data */
	int request_len;
	const void *reply_data;		/* the accepting end's */
	int reply_len;
	int reject;			/* refuse instead, with reply_data */
};

struct pair {
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener;
	struct end a;			/* the connecting end */
	struct end b;			/* the accepting end */
	/* The other side's private data. */
	uint8_t seen_request[256], seen_reply[256];
	int seen_request_len, seen_reply_len;
	int rejected;
};

struct pair_options pair_defaults(void);

/*
 * A listener at an address with port 0. rdma_cm then chooses a port without knowing those of TCP, and the choice may be
 * in use there, also by a connection in TIME-WAIT: another one is tried. Returns NULL with errno.
 */
struct rdma_cm_id *listen_somewhere(struct rdma_event_channel *events, struct sockaddr *at, int backlog);

/*
 * Connects. @from may be NULL; @to is the address listened on (numeric).
 * Returns 0, or -1 with a message on stderr.
 */
int pair_open(struct pair *p, const char *from, const char *to, const struct pair_options *o);

/* Disconnects and frees everything. */
void pair_close(struct pair *p);

/* Polls one completion, waiting at most @seconds; 0, or -1 on time-out. */
int wait_completion(struct ibv_cq *cq, struct ibv_wc *wc, double seconds);

/* Waits for one of the two ids' events of this kind; 0, or -1 on time-out. */
int wait_cm_event(struct pair *p, enum rdma_cm_event_type kind, double seconds);

/* Registers with all remote rights; exits on failure. */
struct ibv_mr *must_register(struct ibv_pd *pd, void *at, size_t len, int access);

/* Posts; exits on failure. */
void must_post_recv(struct end *e, uint64_t id, struct ibv_sge *sge, int n);
void must_post_send(struct end *e, struct ibv_send_wr *wr);

double now(void);

/* Prints and exits with status 1. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
