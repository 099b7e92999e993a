/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which of its ways to copy the benchmark kernel takes, on a processor with fast short REP MOVSB
 * (FSRM); scripts/lab/uml-kernel has the assembler read it before each source.
 *
 * The x86 kernel patches REP MOVSB into memcpy() and memmove() when such a processor boots it.
 * User-mode Linux patches nothing and keeps what suits the processors without: eight octets at a
 * time, and in half of all cases from the end, which processors do not prefetch. Outside the
 * second-level cache that takes two to three times as long, for all that copies, TCP included.
 */

#ifdef __ASSEMBLER__
#include <asm/alternative.h>
#include <asm/cpufeatures.h>

/* Decides when it is assembled what the kernel decides when it boots. */
.macro rsiw_alternative old, new, feature
	.ifeq X86_FEATURE_FSRM - (\feature)
	\new
	.else
	\old
	.endif
.endm

#define ALTERNATIVE rsiw_alternative
#endif
