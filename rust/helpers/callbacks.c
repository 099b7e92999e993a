// SPDX-License-Identifier: GPL-2.0
/* The callbacks of TCP: functions and handlers of sockets. */
#include <linux/tcp.h>
#include <net/sock.h>

#include "sockets.h"

void rsiw_sk_callbacks(struct sock *sk, struct rsiw_sock_callbacks *callbacks)
{
	read_lock_bh(&sk->sk_callback_lock);
	callbacks->data_ready = sk->sk_data_ready;
	callbacks->write_space = sk->sk_write_space;
	callbacks->state_change = sk->sk_state_change;
	callbacks->error_report = sk->sk_error_report;
	read_unlock_bh(&sk->sk_callback_lock);
}

static void set_callbacks(struct sock *sk, const struct rsiw_sock_callbacks *callbacks)
{
	WRITE_ONCE(sk->sk_data_ready, callbacks->data_ready);
	WRITE_ONCE(sk->sk_write_space, callbacks->write_space);
	WRITE_ONCE(sk->sk_state_change, callbacks->state_change);
	WRITE_ONCE(sk->sk_error_report, callbacks->error_report);
}

static void set_handler(struct sock *sk, const struct rsiw_sock_callbacks *callbacks,
			void *handler, uintptr_t flags)
{
	lock_sock(sk);
	write_lock_bh(&sk->sk_callback_lock);
	/* Without a handler, a callback that is not replaced yet has no effect. */
	rcu_assign_sk_user_data(sk, NULL);
	set_callbacks(sk, callbacks);
	if (handler)
		__rcu_assign_sk_user_data_with_flags(sk, handler, flags);
	write_unlock_bh(&sk->sk_callback_lock);
	release_sock(sk);
}

/*
 * Replaces the callbacks of a connection, and the handler that rsiw_sk_handler() returns. Callbacks
 * run under the socket's lock, so no callback runs during the call. Later callbacks use the new
 * handler. Process context; sleeps.
 */
void rsiw_sk_set_callbacks(struct sock *sk, const struct rsiw_sock_callbacks *callbacks,
			   void *handler)
{
	set_handler(sk, callbacks, handler, SK_USER_DATA_NOCOPY);
}

/*
 * rsiw_sk_set_callbacks() for a listener and rsiw_sk_incoming(). The listener's data_ready runs
 * without the lock, so the caller waits for an RCU grace period. Children inherit the pointer,
 * which has no flag. No code dereferences a child's pointer. The pointer marks the child as in use,
 * so that no BPF program can add the child to a sockmap.
 */
void rsiw_sk_set_incoming(struct sock *sk, const struct rsiw_sock_callbacks *callbacks,
			  void *handler)
{
	set_handler(sk, callbacks, handler, 0);
}

/* Restores TCP's own callbacks of a child; the user data still marks the child as in use. */
void rsiw_sk_take_child(struct sock *sk, const struct rsiw_sock_callbacks *callbacks)
{
	lock_sock(sk);
	write_lock_bh(&sk->sk_callback_lock);
	set_callbacks(sk, callbacks);
	write_unlock_bh(&sk->sk_callback_lock);
	release_sock(sk);
}

/* The handler set by rsiw_sk_set_callbacks(); under the socket's lock. */
void *rsiw_sk_handler(struct sock *sk)
{
	uintptr_t data = (uintptr_t)rcu_dereference_check(__sk_user_data(sk),
							  lockdep_sock_is_held(sk));

	if ((data & ~SK_USER_DATA_PTRMASK) != SK_USER_DATA_NOCOPY)
		return NULL;
	return (void *)(data & SK_USER_DATA_PTRMASK);
}

/* The handler set by rsiw_sk_set_incoming(), if this is the listener; in an RCU section. */
void *rsiw_sk_incoming(struct sock *sk)
{
	uintptr_t data = (uintptr_t)rcu_dereference(__sk_user_data(sk));

	if (READ_ONCE(sk->sk_state) != TCP_LISTEN || (data & ~SK_USER_DATA_PTRMASK))
		return NULL;
	return (void *)data;
}
