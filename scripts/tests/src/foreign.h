/* SPDX-License-Identifier: GPL-2.0 */
/* Shared by foreign.c and foreign_destroy.c. */
#ifndef RSIW_TEST_FOREIGN_H
#define RSIW_TEST_FOREIGN_H

#include "ask.h"

/* The factor of time limits (RSIW_TIME_FACTOR). */
int factor(void);

/* A queue pair that is not connected yet; its completion queue, at @cq, is to be destroyed after it. */
struct ibv_qp *lone_qp(struct ibv_context *context, struct ibv_cq **cq);
void lone_qp_end(struct ibv_qp *qp, struct ibv_cq *cq);

/* Queue pairs are destroyed while another process tries to connect them (foreign_destroy.c). */
void destroy_under_fire(struct sockaddr_in *silent, int threads);

#endif
