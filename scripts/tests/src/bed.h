/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Shared by the checks of abi.c: a connection inside the process with memory
 * registered at both ends, and short forms of the operations on it. Every
 * function here exits with a message if it fails.
 */
#ifndef RSIW_TEST_BED_H
#define RSIW_TEST_BED_H

#include "pair.h"

/* Where the device listens. */
extern const char *address;

/* The memory of either end: 0x11 at the connecting one, 0x22 at the other. */
extern uint8_t memory[2][65536];

extern const int all_rights;

/* A connection with both arenas registered. */
struct bed {
	struct pair p;
	struct ibv_mr *a, *b;
};

/* Connects; @o may be NULL. */
struct bed bed_open(const struct pair_options *o);
void bed_close(struct bed *bed);

struct ibv_sge element(struct ibv_mr *mr, void *at, uint32_t len);
void post_recv(struct end *e, uint64_t id, struct ibv_sge sge);

/* A work request with a completion of its own. */
struct ibv_send_wr request(enum ibv_wr_opcode opcode, struct ibv_sge *sge, int n);
void post(struct end *e, struct ibv_send_wr wr);

/* The next completion, waiting at most 10 seconds; success() fails unless its status is success. */
struct ibv_wc completion(struct ibv_cq *cq);
struct ibv_wc success(struct ibv_cq *cq);

/* Whether an event comes in so many milliseconds. */
int event_within(struct ibv_comp_channel *channel, int ms);
int async_within(struct ibv_context *context, enum ibv_event_type kind, int ms);

/* The checks of abi_errors.c. */
void wrong_posts(void);
void bad_key_flushes_in_order(void);
void other_domain(void);
void remote_rights(void);
void read_only_mapping(void);
void cq_overflow(void);
void wrong_modifies(void);
void disconnect_flushes(void);
void late_receives_flush(void);

/* The checks of abi_flags.c. */
void flags_fields(void);
void creation_flags(void);
void srq_limit_at_creation(void);

/* The checks of abi_rings.c. */
void rings_map_whole(void);
void reset_against_posts(void);

#endif
