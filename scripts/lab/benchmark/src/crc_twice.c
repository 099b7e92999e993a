// SPDX-License-Identifier: GPL-2.0
/*
 * The cost of a CRC-32C by table on a processor without an instruction for it: octets a second if
 * each is summed twice, as the two ends of a connection on one processor do.
 *
 * The table has an entry for each octet, like the kernel's (lib/crc).
 *
 * Usage: crc_twice; prints 10^6 octets a second.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#define LENGTH 65536
#define POLYNOMIAL 0x82f63b78u

static uint32_t table[256];
static uint8_t octets[LENGTH];

static void fill(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t crc = i;

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
		table[i] = crc;
	}
	for (size_t i = 0; i < LENGTH; i++)
		octets[i] = i * 31;
}

static uint32_t sum(uint32_t crc, const uint8_t *at, size_t len)
{
	while (len--)
		crc = crc >> 8 ^ table[(crc ^ *at++) & 0xff];
	return crc;
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

int main(void)
{
	static const uint8_t check[] = "123456789";
	uint64_t done = 0;
	uint32_t crc = ~0u;
	double begun, now;

	fill();
	// The check value of CRC-32C.
	if (~sum(~0u, check, 9) != 0xe3069283u) {
		fprintf(stderr, "crc_twice: the table is wrong\n");
		return 1;
	}
	begun = seconds();
	do {
		crc = sum(sum(crc, octets, LENGTH), octets, LENGTH);
		done += LENGTH;
		now = seconds();
	} while (now - begun < 0.5);
	// The last sum is printed, so that the compiler removes none.
	printf("%.1f\n", done / (now - begun) / 1e6 + (crc == 1 ? 1e-9 : 0));
	return 0;
}
