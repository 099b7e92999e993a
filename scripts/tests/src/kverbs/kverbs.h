/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Kernel-verbs test: two connected queue pairs inside this module, as a storage
 * or NFS transport would make them, and memory that is fast-registered.
 */
#ifndef RSIW_KVERBS_H
#define RSIW_KVERBS_H

#include <linux/completion.h>
#include <linux/scatterlist.h>
#include <linux/types.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

#define KV_WAIT		(30 * HZ)
#define KV_PAGES	128		/* of one buffer */
#define KV_SIZE		(KV_PAGES * PAGE_SIZE)
#define KV_MAX_LEN	300000u
#define KV_MAX_SG	120		/* elements of one fast registration */
#define KV_SGE		6
#define KV_GUARD	0xa5

/* One end of a connection. */
struct kv_end {
	struct rdma_cm_id *id;
	struct ib_pd *pd;
	bool borrowed_pd;		/* of another end, which outlives this one */
	struct ib_cq *cq;
	struct ib_srq *srq;		/* the case drains it: a second drain waits for a second event */
	struct completion established;
	bool fatal;			/* IB_EVENT_QP_FATAL came: a Terminate, or trouble with TCP */
	struct completion last;		/* IB_EVENT_QP_LAST_WQE_REACHED came */
	atomic_t nr_last;		/* so often */
	bool handled;			/* its completions come to a handler of the case */
	void *mine;			/* of that handler */
};

/* How the ends are made. */
struct kv_how {
	enum ib_poll_context poll;
	ib_comp_handler handler;	/* instead of ib_core's; its context is the end */
	bool srq;			/* the connecting end has a shared receive queue */
	struct ib_pd *pd;		/* of the accepting end, instead of one of its own */
	bool plain;			/* rdma_connect() and rdma_accept() by a user without rights */
	unsigned int cqe;		/* entries of each completion queue; 0: enough */
};

struct kv_pair {
	struct rdma_cm_id *listener;
	struct kv_end a, b;		/* connecting, accepting */
	struct completion resolved, requested;
	int status;
};

int kv_connect(struct kv_pair *p, const struct sockaddr *to, const struct kv_how *how);
/* The same in two steps: up to the connecting queue pair, and the result of rdma_connect(). */
int kv_route(struct kv_pair *p, const struct sockaddr *to, const struct kv_how *how);
int kv_ask(struct kv_pair *p);
/* As kv_route(), to the listener of @first: @first gets the request. */
int kv_route_again(struct kv_pair *p, const struct kv_pair *first, const struct sockaddr *to,
		   const struct kv_how *how);
/* Both ends end the connection; kv_disconnect() does that, and frees everything. */
void kv_hang_up(struct kv_pair *p);
void kv_disconnect(struct kv_pair *p);
void kv_free_end(struct kv_end *e);

/*
 * A request and the wait for its completion, in a ring that outlives
 * connections: after a failed check, requests are flushed late.
 */
struct kv_wait {
	struct ib_cqe cqe;
	struct completion done;
	struct ib_wc wc;
	unsigned int times;		/* completions of it */
	unsigned int turn;		/* the last one's place among all */
};

struct kv_wait *kv_wait_new(void);
int kv_wait_for(struct kv_wait *w, const char *what);	/* 0 if it came; look at wc.status */

int kv_expect(const struct kv_wait *w, const char *what);	/* that it succeeded */
/* Posts the requests from @first on, and waits until @last has succeeded. */
int kv_post_and_wait(struct kv_end *e, struct ib_send_wr *first, struct ib_send_wr *last, const char *what);

/* Scattered pages with one kernel mapping, and their expected content. */
struct kv_buffer {
	struct page *pages[KV_PAGES];
	u8 *at;				/* the pages, in order */
	u8 *want;
};

int kv_buffer_alloc(struct kv_buffer *b);
void kv_buffer_free(struct kv_buffer *b);
void kv_buffer_reset(struct kv_buffer *b);
int kv_buffer_check(const struct kv_buffer *b, const char *what);

/* A choice of octets of a buffer, in the form that is registered. */
struct kv_layout {
	struct scatterlist sg[KV_MAX_SG];
	u32 offset[KV_MAX_SG];		/* of each element in the buffer */
	int count;
	u32 len;
};

void kv_layout_pages(struct kv_layout *l, struct kv_buffer *b, u32 len);
void kv_layout_gaps(struct kv_layout *l, struct kv_buffer *b, u32 len);
/* Puts @data into @to (the buffer itself or its "want") at the layout's places. */
void kv_layout_put(const struct kv_layout *l, u8 *to, const u8 *data);

/* Memory that can be fast-registered. */
struct kv_region {
	struct kv_end *end;
	struct kv_buffer buffer;
	struct ib_mr *mr;
};

int kv_region_open(struct kv_region *r, struct kv_end *e);
void kv_region_close(struct kv_region *r);
/* A Send that names @key if that is not 0; the receive reports an invalidation if @valid. */
int kv_send(struct kv_end *from, struct kv_end *to, u32 key, bool valid);
/* The request that registers two pages of it, under its next key, for the peer to write. */
int kv_region_wr(struct kv_region *r, struct ib_reg_wr *wr);

/* The longest page list, of memory of @b, written and read by @a. */
int kv_longest(struct kv_end *a, struct kv_end *b);

/* A region that is invalid already may be invalidated; one that is valid under another key not. */
int kv_invalid(const struct sockaddr *to, enum ib_poll_context poll);

/* A kernel user connects in the context of a process without rights. */
int kv_plain(const struct sockaddr *to);

/* Data in memory of a device ends the connection. */
int kv_unreadable(const struct sockaddr *to, enum ib_poll_context poll);

/* A key that one queue pair has registered serves no other one of its protection domain. */
int kv_scope(const struct sockaddr *to, enum ib_poll_context poll);

/* Several threads post Writes and Reads to the queue pair of @a, @rounds of each. */
int kv_crowd(struct kv_end *a, struct kv_end *b, unsigned int rounds);

/* Requests posted to @e, which is in error, are flushed in whatever context they were posted. */
int kv_late(struct kv_end *e);

/* Several ends are put into error while the peer sends: requests posted from then on are flushed. */
int kv_downed(const struct sockaddr *to, enum ib_poll_context poll, unsigned int ends);

/* The drain of an end with a shared receive queue is short, and its event comes once. */
int kv_srq(const struct sockaddr *to, enum ib_poll_context poll);

/* A Send that finds no receive posted: held, then delivered or failed. */
int kv_rnr(const struct sockaddr *to, enum ib_poll_context poll, unsigned int factor);

/* Every flushed request completes, also through a completion queue with too few entries. */
int kv_full(struct ib_device *dev);
int kv_cut(const struct sockaddr *to);

/* Completion handlers that post; with @overlap there may be two of one queue at a time. */
int kv_handler(const struct sockaddr *to, bool overlap);

/* A listener gets no request while its user destroys a closed connection. */
int kv_held(const struct sockaddr *to);

/*
 * When the device of @to goes, the client that is notified first asks for a connection once more.
 * If the device does not go, the client asks at the end of the module. The log has the outcome.
 */
int kv_leave(const struct sockaddr *to);
void kv_leave_end(void);

/* Instead of the rest: a CPU deregisters regions while another one copies to them. */
int kv_revoke(const struct sockaddr *to, unsigned int rounds);

u32 kv_below(u32 n);
void kv_random_bytes(void *to, size_t len);
void kv_seed(u64 seed);

#endif
