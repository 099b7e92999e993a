/* SPDX-License-Identifier: GPL-2.0 */
/* The verbs objects of victim.c: one connection at a time. */
#ifndef RSIW_TEST_VICTIM_H
#define RSIW_TEST_VICTIM_H

#include "pair.h"

#define ARENA 32768
#define RECV_MAX 262144

extern struct end me;
extern uint8_t *arena, *buffers;
/* The region with all rights, and that of all receive buffers. */
extern struct ibv_mr *rw, *recv_mr;
/* Octets of a receive buffer. */
extern uint32_t recv_size;

/* Gets the memory of arena and buffers. */
void find_memory(void);

/* Makes the objects of a connection on @id and posts the receives. */
void make(struct rdma_cm_id *id, int recvs, uint32_t size);

/* Posts receive @number, into the buffer of that number. */
int post_recv(int number);

/* Prints the objects' numbers and keys. */
void print_made(void);

/* Destroys these objects as far as they exist, but not the id. */
void unmake(void);

#endif
