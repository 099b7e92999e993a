/* SPDX-License-Identifier: GPL-2.0 */
/*
 * CRC-32C with the processor's instruction for the benchmark kernel; lib/crc/crc32-main.c includes
 * it in the place of an architecture's own (scripts/lab/uml-kernel).
 *
 * User-mode Linux has none and sums by table, thirty times slower than the x86 kernel does on the
 * same processor. A process may use the instruction, and it needs no state but ordinary registers.
 * Each one waits three cycles for the one before, so long pieces are summed as three blocks side
 * by side; a sum is then moved on over the block behind it by a table.
 *
 * /sys/module/crc32/parameters/table: 1 sums by the kernel's own table.
 */

#include <linux/init.h>
#include <linux/unaligned.h>

/* Octets of a block: of the payload of a segment at an MTU of 1500, and of what is left. */
#define RSIW_LONG 448
#define RSIW_SHORT 64

/* What a sum becomes by a block of zeros, for each octet of the sum. */
struct rsiw_crc_zeros {
	u32 of[4][256];
};

static struct rsiw_crc_zeros rsiw_long, rsiw_short;
static bool rsiw_have_crc32c;
static bool rsiw_by_table;
module_param_named(table, rsiw_by_table, bool, 0644);

static inline u64 rsiw_crc32c_u64(u64 crc, const u8 *p)
{
	asm("crc32q %1, %0" : "+r" (crc) : "rm" (get_unaligned((const u64 *)p)));
	return crc;
}

static inline u32 rsiw_crc32c_u8(u32 crc, u8 octet)
{
	asm("crc32b %1, %0" : "+r" (crc) : "rm" (octet));
	return crc;
}

static inline u32 rsiw_over_zeros(const struct rsiw_crc_zeros *zeros, u32 crc)
{
	return zeros->of[0][crc & 255] ^ zeros->of[1][crc >> 8 & 255] ^
	       zeros->of[2][crc >> 16 & 255] ^ zeros->of[3][crc >> 24];
}

static inline u32 rsiw_crc32c_blocks(const struct rsiw_crc_zeros *zeros, u32 crc, const u8 *p,
				     size_t block)
{
	u64 a = crc, b = 0, c = 0;
	size_t i;

	for (i = 0; i < block; i += 8) {
		a = rsiw_crc32c_u64(a, p + i);
		b = rsiw_crc32c_u64(b, p + block + i);
		c = rsiw_crc32c_u64(c, p + 2 * block + i);
	}
	return rsiw_over_zeros(zeros, rsiw_over_zeros(zeros, a) ^ b) ^ c;
}

static inline u32 crc32c_arch(u32 crc, const u8 *p, size_t len)
{
	u64 sum;

	if (!READ_ONCE(rsiw_have_crc32c) || READ_ONCE(rsiw_by_table))
		return crc32c_base(crc, p, len);
	for (; len >= 3 * RSIW_LONG; p += 3 * RSIW_LONG, len -= 3 * RSIW_LONG)
		crc = rsiw_crc32c_blocks(&rsiw_long, crc, p, RSIW_LONG);
	for (; len >= 3 * RSIW_SHORT; p += 3 * RSIW_SHORT, len -= 3 * RSIW_SHORT)
		crc = rsiw_crc32c_blocks(&rsiw_short, crc, p, RSIW_SHORT);
	for (sum = crc; len >= 8; p += 8, len -= 8)
		sum = rsiw_crc32c_u64(sum, p);
	for (crc = sum; len; p++, len--)
		crc = rsiw_crc32c_u8(crc, *p);
	return crc;
}

static void __init rsiw_fill(struct rsiw_crc_zeros *zeros, size_t block)
{
	static const u8 nothing[RSIW_LONG];
	u32 octet, i;

	for (i = 0; i < 4; i++)
		for (octet = 0; octet < 256; octet++)
			zeros->of[i][octet] = crc32c_base(octet << 8 * i, nothing, block);
}

/* Nothing is taken on trust: the sums of every length up to two segments have to be the same. */
static bool __init rsiw_crc32c_is_right(void)
{
	static u8 octets[3000] __initdata;
	size_t len;

	for (len = 0; len < sizeof(octets); len++)
		octets[len] = len * 31 + len / 256;
	for (len = 0; len < sizeof(octets); len++)
		if (crc32c_arch(~0u, octets, len) != crc32c_base(~0u, octets, len))
			return false;
	return true;
}

static void __init rsiw_crc32c_begin(void)
{
	u32 a = 1, b, c = 0, d;

	asm("cpuid" : "+a" (a), "=b" (b), "+c" (c), "=d" (d));
	if (!(c & BIT(20)))	/* SSE4.2 */
		return;
	rsiw_fill(&rsiw_long, RSIW_LONG);
	rsiw_fill(&rsiw_short, RSIW_SHORT);
	rsiw_have_crc32c = true;
	rsiw_have_crc32c = rsiw_crc32c_is_right();
	pr_info("CRC-32C by %s\n", rsiw_have_crc32c ? "instruction" : "table: sums differ");
}

#define crc32_mod_init_arch rsiw_crc32c_begin

static inline u32 crc32_optimizations_arch(void)
{
	return rsiw_have_crc32c ? CRC32C_OPTIMIZATION : 0;
}

#define crc32_le_arch crc32_le_base
#define crc32_be_arch crc32_be_base
