/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Compiled into arch/um/os-Linux/smp.c of the debug kernel for User-mode Linux (scripts/lab/uml-kernel).
 * local_irq_disable() and local_irq_enable() of an SMP kernel change the host's signal mask, against interrupts by
 * other processors. These system calls took half of the time of the tests. With one processor there is no such
 * interrupt. kernel/smp.c and arch/um/kernel/smp.c get this header as well, but not __UM_HOST__.
 */
#ifdef __UM_HOST__
#include <signal.h>
#include <stddef.h>

extern int uml_ncpus;

static inline int rsiw_sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	return uml_ncpus == 1 ? 0 : sigprocmask(how, set, old);
}

#define sigprocmask rsiw_sigprocmask
#endif
