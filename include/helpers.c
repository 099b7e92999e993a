// SPDX-License-Identifier: GPL-2.0
/* The functions of helpers.h. */
#include <linux/bottom_half.h>
#include <linux/irqflags.h>
#include <linux/preempt.h>
#include <linux/spinlock.h>

#include "helpers.h"

void rsiw_spin_lock_bh(spinlock_t *lock)
{
	spin_lock_bh(lock);
}

void rsiw_spin_unlock_bh(spinlock_t *lock)
{
	spin_unlock_bh(lock);
}

bool rsiw_spin_trylock_bh(spinlock_t *lock)
{
	return spin_trylock_bh(lock);
}

unsigned long rsiw_spin_lock_irqsave(spinlock_t *lock)
{
	unsigned long flags;

	spin_lock_irqsave(lock, flags);
	return flags;
}

bool rsiw_spin_trylock_irqsave(spinlock_t *lock, unsigned long *flags)
{
	return spin_trylock_irqsave(lock, *flags);
}

void rsiw_spin_unlock_irqrestore(spinlock_t *lock, unsigned long flags)
{
	spin_unlock_irqrestore(lock, flags);
}

/* Whether the caller must not touch bottom halves: local_bh_enable() would warn. */
bool rsiw_irqs_off(void)
{
	return irqs_disabled() || in_hardirq();
}

void rsiw_local_bh_disable(void)
{
	local_bh_disable();
}

void rsiw_local_bh_enable(void)
{
	local_bh_enable();
}
