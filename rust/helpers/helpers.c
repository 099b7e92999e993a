// SPDX-License-Identifier: GPL-2.0
/* The functions of helpers.h. */
#include <linux/bottom_half.h>
#include <linux/cred.h>
#include <linux/irqflags.h>
#include <linux/mm.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/sched/stat.h>
#include <linux/smp.h>
#include <linux/spinlock.h>
#include <linux/xarray.h>
#include <net/net_namespace.h>

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

s32 rsiw_caller_process(void)
{
	return task_tgid_nr(current);
}

/* A process ID may be reused, but not with the same start time. */
u64 rsiw_caller_started(void)
{
	return current->group_leader->start_boottime;
}

u32 rsiw_caller_user(void)
{
	return __kuid_val(current_euid());
}

/* A kernel thread, root, or a process with CAP_SYS_ADMIN, which may mount by RDMA. */
bool rsiw_caller_is_trusted(void)
{
	return (current->flags & PF_KTHREAD) || uid_eq(current_euid(), GLOBAL_ROOT_UID) ||
	       ns_capable_noaudit(&init_user_ns, CAP_SYS_ADMIN);
}

unsigned int rsiw_noio_save(void)
{
	return memalloc_noio_save();
}

void rsiw_noio_restore(unsigned int flags)
{
	memalloc_noio_restore(flags);
}

/* Whether the caller must not disable bottom halves: local_bh_enable() would warn. */
bool rsiw_irqs_off(void)
{
	return irqs_disabled() || in_hardirq();
}

/* Whether this is a softirq in a kernel thread, and another thread is runnable on the CPU. */
bool rsiw_in_shared_thread(void)
{
	return in_serving_softirq() && (current->flags & PF_KTHREAD) && !is_idle_task(current) &&
	       task_nice(current) >= 0 && !single_task_running();
}

/* Whether a thread is runnable on this CPU: an interrupted thread, or one on the run queue. */
bool rsiw_processor_is_wanted(void)
{
	if (!in_serving_softirq())
		return true;
	if (is_idle_task(current))
		return false;
	return !(current->flags & PF_KTHREAD) || !single_task_running();
}

/* Whether a reschedule is pending for the caller. */
bool rsiw_need_resched(void)
{
	return IS_ENABLED(CONFIG_PREEMPTION) && !in_serving_softirq() && need_resched();
}

/* The number of this CPU. It may be stale, unless the caller cannot migrate. */
unsigned int rsiw_cpu(void)
{
	return raw_smp_processor_id();
}

void rsiw_local_bh_disable(void)
{
	local_bh_disable();
}

void rsiw_local_bh_enable(void)
{
	local_bh_enable();
}

/* No effect with PREEMPT_RT, where the code of the section may sleep. */
void rsiw_preempt_disable(void)
{
	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		preempt_disable();
}

void rsiw_preempt_enable(void)
{
	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		preempt_enable();
}

void rsiw_xa_init(struct xarray *xa)
{
	xa_init_flags(xa, XA_FLAGS_ALLOC | XA_FLAGS_LOCK_IRQ);
}

int rsiw_xa_insert(struct xarray *xa, unsigned long index, void *entry, gfp_t gfp)
{
	return xa_insert_irq(xa, index, entry, gfp);
}

/* Reserves a free index of min to max, from *next on; loads of the index return NULL. */
int rsiw_xa_reserve(struct xarray *xa, u32 *id, u32 min, u32 max, u32 *next, gfp_t gfp)
{
	int err = xa_alloc_cyclic_irq(xa, id, NULL, XA_LIMIT(min, max), next, gfp);

	return min(err, 0);
}

/* Stores an entry at a reserved index, which needs no allocation. */
int rsiw_xa_store(struct xarray *xa, unsigned long index, void *entry)
{
	return xa_err(xa_store_irq(xa, index, entry, GFP_NOWAIT));
}

void *rsiw_xa_erase(struct xarray *xa, unsigned long index)
{
	unsigned long flags;
	void *entry;

	xa_lock_irqsave(xa, flags);
	entry = __xa_erase(xa, index);
	xa_unlock_irqrestore(xa, flags);
	return entry;
}

struct page *rsiw_alloc_block(gfp_t gfp, unsigned int order)
{
	if (order)
		gfp |= __GFP_COMP | __GFP_NORETRY;
	return alloc_pages(gfp, order);
}

void *rsiw_page_address(struct page *page)
{
	return page_address(page);
}

/* Whether @page has one reference; if so, accesses of earlier holders precede later writes. */
bool rsiw_page_is_exclusive(struct page *page)
{
	if (page_ref_count(page) != 1)
		return false;
	smp_acquire__after_ctrl_dep();
	return true;
}

void rsiw_put_page(struct page *page)
{
	put_page(page);
}

struct rsiw_cache {
	size_t (*count)(void);
	size_t (*shrink)(size_t pages);
};

static unsigned long rsiw_cache_count(struct shrinker *shrinker, struct shrink_control *sc)
{
	const struct rsiw_cache *cache = shrinker->private_data;

	return cache->count();
}

static unsigned long rsiw_cache_scan(struct shrinker *shrinker, struct shrink_control *sc)
{
	const struct rsiw_cache *cache = shrinker->private_data;

	return cache->shrink(sc->nr_to_scan) ?: SHRINK_STOP;
}

struct shrinker *rsiw_shrinker_new(size_t (*count)(void), size_t (*shrink)(size_t pages))
{
	struct shrinker *shrinker = shrinker_alloc(0, "rsiw");
	struct rsiw_cache *cache = kmalloc_obj(*cache);

	if (!shrinker || !cache) {
		if (shrinker)
			shrinker_free(shrinker);
		kfree(cache);
		return NULL;
	}
	cache->count = count;
	cache->shrink = shrink;
	shrinker->private_data = cache;
	shrinker->count_objects = rsiw_cache_count;
	shrinker->scan_objects = rsiw_cache_scan;
	shrinker_register(shrinker);
	return shrinker;
}

/* Frees the shrinker; no function of it runs after the return. */
void rsiw_shrinker_free(struct shrinker *shrinker)
{
	struct rsiw_cache *cache = shrinker->private_data;

	shrinker_free(shrinker);
	kfree(cache);
}

enum hrtimer_restart rsiw_hrtimer_norestart(void)
{
	return HRTIMER_NORESTART;
}

struct net *rsiw_net_get(struct net *net)
{
	return maybe_get_net(net);
}

void rsiw_net_hold(struct net *net)
{
	get_net(net);
}

void rsiw_net_put(struct net *net)
{
	put_net(net);
}

#if IS_BUILTIN(CONFIG_KUNIT)
void rsiw_test_get_page(struct page *page)
{
	get_page(page);
}
#endif
