/* SPDX-License-Identifier: GPL-2.0 */
/* Random numbers that a seed repeats. */
#ifndef RSIW_TEST_RNG_H
#define RSIW_TEST_RNG_H

#include <stdint.h>

/* The seed. */
extern uint64_t rng_state;

uint64_t rng(void);

/* A number from 0 to @n - 1; 0 if @n is 0. */
uint32_t below(uint32_t n);

void fill(uint8_t *at, uint32_t len);

#endif
