/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C functions for what bindgen can not see: static inlines, macros, and fields of structures
 * that are not worth binding. Rust finds them as bindings::rsiw_*.
 */
#ifndef _RSIW_HELPERS_H
#define _RSIW_HELPERS_H

#include <linux/spinlock.h>
#include <linux/types.h>

/* Locks and contexts */
void rsiw_spin_lock_bh(spinlock_t *lock);
void rsiw_spin_unlock_bh(spinlock_t *lock);
bool rsiw_spin_trylock_bh(spinlock_t *lock);
unsigned long rsiw_spin_lock_irqsave(spinlock_t *lock);
bool rsiw_spin_trylock_irqsave(spinlock_t *lock, unsigned long *flags);
void rsiw_spin_unlock_irqrestore(spinlock_t *lock, unsigned long flags);
bool rsiw_irqs_off(void);
void rsiw_local_bh_disable(void);
void rsiw_local_bh_enable(void);

#endif /* _RSIW_HELPERS_H */
