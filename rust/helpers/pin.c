// SPDX-License-Identifier: GPL-2.0
/*
 * Sections for the pins of rust/sys/rdma/pin.rs. Bottom halves are off while a context holds pins,
 * and while it changes a pinned value.
 *
 * With PREEMPT_RT such a context can be preempted. A waiting thread must sleep, and the context
 * must inherit its priority, so both sections have locks there. Lock order: change, section.
 */
#include <linux/bits.h>
#include <linux/bottom_half.h>
#include <linux/cpumask.h>
#include <linux/hash.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/spinlock.h>

#include "helpers.h"

#ifdef CONFIG_PREEMPT_RT

/* The context that holds pins on a CPU. The context does not migrate: bottom halves are off. */
struct rsiw_pin_section {
	spinlock_t lock;		/* held by the owner */
	struct task_struct *owner;
	unsigned int nested;		/* sections inside the outermost one */
};

static DEFINE_PER_CPU(struct rsiw_pin_section, rsiw_pin_sections) = {
	.lock = __SPIN_LOCK_UNLOCKED(rsiw_pin_sections.lock),
};

void rsiw_pin_begin(void)
{
	struct rsiw_pin_section *section;

	local_bh_disable();
	section = this_cpu_ptr(&rsiw_pin_sections);
	/* Only the current task stores itself as the owner. */
	if (READ_ONCE(section->owner) == current) {
		section->nested++;
		return;
	}
	spin_lock(&section->lock);
	WRITE_ONCE(section->owner, current);
}

void rsiw_pin_end(void)
{
	struct rsiw_pin_section *section = this_cpu_ptr(&rsiw_pin_sections);

	if (section->nested) {
		section->nested--;
	} else {
		WRITE_ONCE(section->owner, NULL);
		spin_unlock(&section->lock);
	}
	local_bh_enable();
}

/* Waits for all sections that have begun. The caller is in none. */
void rsiw_pin_wait(void)
{
	int cpu;

	for_each_possible_cpu(cpu) {
		struct rsiw_pin_section *section = per_cpu_ptr(&rsiw_pin_sections, cpu);

		spin_lock(&section->lock);
		spin_unlock(&section->lock);
	}
}

#define RSIW_PIN_CHANGES_BITS	6
#define RSIW_PIN_CHANGES	BIT(RSIW_PIN_CHANGES_BITS)

/* Cells share locks; no context changes two cells at a time. */
static struct {
	spinlock_t lock;		/* held by the context that changes a cell */
} rsiw_pin_changes[RSIW_PIN_CHANGES] = {
	[0 ... RSIW_PIN_CHANGES - 1] = { .lock = __SPIN_LOCK_UNLOCKED(rsiw_pin_changes.lock) },
};

void rsiw_pin_change_begin(const void *cell)
{
	local_bh_disable();
	spin_lock(&rsiw_pin_changes[hash_ptr(cell, RSIW_PIN_CHANGES_BITS)].lock);
}

void rsiw_pin_change_end(const void *cell)
{
	spin_unlock(&rsiw_pin_changes[hash_ptr(cell, RSIW_PIN_CHANGES_BITS)].lock);
	local_bh_enable();
}

#else

void rsiw_pin_begin(void)
{
	local_bh_disable();
}

void rsiw_pin_end(void)
{
	local_bh_enable();
}

/* The holders of pins run on other CPUs, and drop the pins after a bounded time. */
void rsiw_pin_wait(void)
{
	cpu_relax();
}

void rsiw_pin_change_begin(const void *cell)
{
	local_bh_disable();
}

void rsiw_pin_change_end(const void *cell)
{
	local_bh_enable();
}

#endif
