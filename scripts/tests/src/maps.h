/* SPDX-License-Identifier: GPL-2.0 */
/* The rings a process shares with the module, from /proc/self/maps. */
#ifndef RSIW_TEST_MAPS_H
#define RSIW_TEST_MAPS_H

#include <stddef.h>
#include <stdint.h>

#define MAX_RINGS 64

/* A shared mapping of a verbs device. */
struct ring {
	uint8_t *at;
	size_t size;
	uint64_t offset;		/* the key it was mapped by */
};

/* Finds all rings, at most MAX_RINGS; returns their number. */
int find_rings(struct ring *out);

#endif
