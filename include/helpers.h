/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C functions for interfaces that bindgen does not translate: static inlines, macros, and fields of
 * structures without bindings. Rust calls them as bindings::rsiw_*.
 */
#ifndef _RSIW_HELPERS_H
#define _RSIW_HELPERS_H

#include <linux/hrtimer.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/xarray.h>

struct net;
struct page;
struct shrinker;

/* Locks and contexts */
void rsiw_spin_lock_bh(spinlock_t *lock);
void rsiw_spin_unlock_bh(spinlock_t *lock);
bool rsiw_spin_trylock_bh(spinlock_t *lock);
unsigned long rsiw_spin_lock_irqsave(spinlock_t *lock);
bool rsiw_spin_trylock_irqsave(spinlock_t *lock, unsigned long *flags);
void rsiw_spin_unlock_irqrestore(spinlock_t *lock, unsigned long flags);
bool rsiw_irqs_off(void);
unsigned int rsiw_noio_save(void);
void rsiw_noio_restore(unsigned int flags);
s32 rsiw_caller_process(void);
u64 rsiw_caller_started(void);
u32 rsiw_caller_user(void);
bool rsiw_caller_is_trusted(void);
bool rsiw_in_shared_thread(void);
bool rsiw_processor_is_wanted(void);
bool rsiw_need_resched(void);
unsigned int rsiw_cpu(void);
void rsiw_local_bh_disable(void);
void rsiw_local_bh_enable(void);
void rsiw_preempt_disable(void);
void rsiw_preempt_enable(void);

/* Pins (rust/sys/rdma/pin.rs) */
void rsiw_pin_begin(void);
void rsiw_pin_end(void);
void rsiw_pin_wait(void);
void rsiw_pin_change_begin(const void *cell);
void rsiw_pin_change_end(const void *cell);

/* Tables */
void rsiw_xa_init(struct xarray *xa);
int rsiw_xa_insert(struct xarray *xa, unsigned long index, void *entry, gfp_t gfp);
int rsiw_xa_reserve(struct xarray *xa, u32 *id, u32 min, u32 max, u32 *next, gfp_t gfp);
int rsiw_xa_store(struct xarray *xa, unsigned long index, void *entry);
void *rsiw_xa_erase(struct xarray *xa, unsigned long index);

/* Pages */
struct page *rsiw_alloc_block(gfp_t gfp, unsigned int order);
void *rsiw_page_address(struct page *page);
bool rsiw_page_is_exclusive(struct page *page);
void rsiw_put_page(struct page *page);

/* A shrinker for kept pages: count and shrink must be callable in any context. */
struct shrinker *rsiw_shrinker_new(size_t (*count)(void), size_t (*shrink)(size_t pages));
void rsiw_shrinker_free(struct shrinker *shrinker);

/* Timers: bindgen names the constant differently for 7.2 and 7.3 */
enum hrtimer_restart rsiw_hrtimer_norestart(void);

/* Namespaces */
struct net *rsiw_net_get(struct net *net);
void rsiw_net_hold(struct net *net);
void rsiw_net_put(struct net *net);

#if IS_BUILTIN(CONFIG_KUNIT)
void rsiw_test_get_page(struct page *page);
#endif

#endif /* _RSIW_HELPERS_H */
