/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Compiled into arch/um/kernel/stacktrace.c of the debug kernel for User-mode Linux (scripts/lab/uml-kernel).
 * dump_trace() asks of each word on a stack whether it is an address of code, and KASAN wants a trace
 * of each allocation. __kernel_text_address() takes RCU's read lock for the modules, which lockdep
 * checks. Here a word that is neither in the kernel nor in the modules' area is told at once.
 */
#include <linux/kernel.h>
#include <linux/pgtable.h>
#include <asm/sections.h>

static inline int rsiw_text_address(unsigned long addr)
{
	if (addr >= (unsigned long)_stext && addr < (unsigned long)_etext)
		return 1;
	if (addr < MODULES_VADDR || addr >= MODULES_END)
		return 0;
	return __kernel_text_address(addr);
}

#define __kernel_text_address rsiw_text_address
