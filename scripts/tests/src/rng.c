// SPDX-License-Identifier: GPL-2.0
#include "rng.h"

#include <string.h>

uint64_t rng_state;

uint64_t rng(void)
{
	/* splitmix64 */
	uint64_t z = rng_state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

uint32_t below(uint32_t n)
{
	return n ? rng() % n : 0;
}

void fill(uint8_t *at, uint32_t len)
{
	uint64_t word;

	for (; len >= 8; len -= 8, at += 8) {
		word = rng();
		memcpy(at, &word, 8);
	}
	for (; len; len--)
		*at++ = rng();
}
