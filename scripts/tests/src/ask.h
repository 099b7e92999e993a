/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Connecting a queue pair by its number alone: identifiers of rdma_cm without a queue pair of their own, and
 * a peer that never answers them. Every function but the call itself exits with a message if it fails.
 */
#ifndef RSIW_TEST_ASK_H
#define RSIW_TEST_ASK_H

#include <netinet/in.h>

#include "pair.h"

#define WAIT_MS 10000

/* The address in @text; exits with the status of a wrong command line if @text is none. */
struct sockaddr_in address_of(const char *text);

/* A peer that accepts TCP connections at @at, and sends nothing. Sets the port of @at. */
int be_silent(struct sockaddr_in *at);

/* An identifier that has only to connect, has no queue pair of its own, and does not wait. */
struct rdma_cm_id *ready_to_connect(struct rdma_event_channel *events, struct sockaddr_in *to);

/* Returns the error number of rdma_connect(); 0: connecting. A refused identifier can be used again. */
int connect_as(struct rdma_cm_id *id, uint32_t number);

#endif
