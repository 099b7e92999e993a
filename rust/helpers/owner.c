// SPDX-License-Identifier: GPL-2.0
/*
 * The security label, the control group and the memory cgroup of a socket. All functions: process
 * context, may sleep.
 */
#include <linux/bpf-cgroup.h>
#include <linux/cgroup.h>
#include <linux/memcontrol.h>
#include <linux/net.h>
#include <linux/nsproxy.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/security.h>
#include <net/net_namespace.h>
#include <net/proto_memory.h>
#include <net/sock.h>

#include "sockets.h"

/* Separate lock classes: no process copies from or to user memory under these locks. */
static struct lock_class_key rsiw_sk_keys[2];
static struct lock_class_key rsiw_slock_keys[2];

/*
 * Makes a TCP socket of the current process, with the label and the control groups that socket(2)
 * assigns. security_socket_create() and the BPF programs of the control group can refuse it. For a
 * kernel thread the socket is a kernel socket.
 */
int rsiw_sock_create(struct net *net, int family, struct socket **res)
{
	int kern = !!(current->flags & PF_KTHREAD);
	int err = __sock_create(net, family, SOCK_STREAM, IPPROTO_TCP, res, kern);
	int i = family == AF_INET6;

	if (!err && !kern)
		sock_lock_init_class_and_name((*res)->sk, "slock-rsiw", &rsiw_slock_keys[i],
					      "sk_lock-rsiw", &rsiw_sk_keys[i]);
	return err;
}

/* Makes accepted connections of a socket use the lock classes of kernel sockets. */
void rsiw_sk_kernel_children(struct sock *sk)
{
	lock_sock(sk);
	sk->sk_kern_sock = 1;
	release_sock(sk);
}

#ifdef CONFIG_SOCK_CGROUP_DATA
/* Replaces the control group of a socket by @cgroup, and takes a reference. */
static void set_cgroup(struct sock *sk, struct cgroup *cgroup)
{
	struct cgroup *old = sock_cgroup_ptr(&sk->sk_cgrp_data);

	cgroup_get(cgroup);
	cgroup_bpf_get(cgroup);
	/* The receive path reads the pointer under RCU, without the lock. */
	WRITE_ONCE(sk->sk_cgrp_data.cgroup, cgroup);
	cgroup_bpf_put(old);
	cgroup_put(old);
}
#endif

#ifdef CONFIG_MEMCG
/*
 * Charges a socket without a memory cgroup to @memcg, including the memory of its queues. The
 * caller's reference to @memcg passes to the socket. -ENOMEM: the charge exceeds the limit; socket
 * and reference are unchanged.
 */
static int set_memcg(struct sock *sk, struct mem_cgroup *memcg)
{
	int pages;

	sk_mem_reclaim_final(sk);
	pages = sk_mem_pages(sk->sk_forward_alloc + atomic_read(&sk->sk_rmem_alloc) +
			     sk->sk_wmem_queued);
	sk->sk_memcg = memcg;
	if (!pages)
		return 0;
	if (!__sk_mem_schedule(sk, pages << PAGE_SHIFT, SK_MEM_RECV)) {
		sk->sk_memcg = NULL;
		return -ENOMEM;
	}
	/* The protocol has accounted these pages already; only the memory cgroup had not. */
	sk_forward_alloc_add(sk, -(pages << PAGE_SHIFT));
	if (!sk->sk_bypass_prot_mem)
		sk_memory_allocated_sub(sk, pages);
	return 0;
}
#endif

/*
 * Assigns the label, the control group and the memory cgroup of @owner to an accepted
 * connection. The caller holds a reference to @owner. -ENOMEM: see set_memcg().
 */
int rsiw_sk_inherit(struct sock *sk, struct sock *owner)
{
	int err = 0;

	lock_sock(sk);
#ifdef CONFIG_MEMCG
	if (mem_cgroup_sockets_enabled && owner->sk_memcg && !sk->sk_memcg) {
		css_get(&owner->sk_memcg->css);
		err = set_memcg(sk, owner->sk_memcg);
		if (err)
			css_put(&owner->sk_memcg->css);
	}
#endif
	if (!err) {
		security_sk_clone(owner, sk);
#ifdef CONFIG_SOCK_CGROUP_DATA
		set_cgroup(sk, sock_cgroup_ptr(&owner->sk_cgrp_data));
#endif
	}
	release_sock(sk);
	return err;
}

/*
 * Charges allocations of this thread with __GFP_ACCOUNT to the memory cgroup of @sk, or to that of
 * the thread if @sk has none, until rsiw_leave_memcg(). @sk keeps its memory cgroup meanwhile.
 */
struct mem_cgroup *rsiw_sk_enter_memcg(struct sock *sk)
{
	return set_active_memcg(mem_cgroup_from_sk(sk));
}

void rsiw_leave_memcg(struct mem_cgroup *before)
{
	set_active_memcg(before);
}

/* Makes a kernel socket that belongs to no process and no memory cgroup. */
int rsiw_sock_create_shared(struct net *net, int family, struct socket **res)
{
	int err = sock_create_kern(net, family, SOCK_STREAM, IPPROTO_TCP, res);

	if (err)
		return err;
#ifdef CONFIG_SOCK_CGROUP_DATA
	set_cgroup((*res)->sk, &cgrp_dfl_root.cgrp);
#endif
#ifdef CONFIG_MEMCG
	/* No memory is charged to the cgroup yet. */
	if ((*res)->sk->sk_memcg) {
		css_put(&(*res)->sk->sk_memcg->css);
		(*res)->sk->sk_memcg = NULL;
	}
#endif
	return 0;
}

static int ask_sendmsg(struct socket *sock, struct msghdr *msg, size_t len)
{
	return 0;
}

static const struct proto_ops ask_ops = {
	.owner = THIS_MODULE,
	.sendmsg = ask_sendmsg,
};

/*
 * Checks with the security modules whether the current process may connect @sock to @addr. The
 * caller has the only reference to @sock. security_socket_connect() is not exported, but a
 * sendmsg() that connects (MSG_FASTOPEN) is checked for the same right. No data is sent.
 */
int rsiw_sock_may_connect(struct socket *sock, struct sockaddr *addr, int len)
{
	struct msghdr msg = {
		.msg_name = addr,
		.msg_namelen = len,
		.msg_flags = MSG_FASTOPEN | MSG_DONTWAIT | MSG_NOSIGNAL,
	};
	const struct proto_ops *ops = READ_ONCE(sock->ops);
	int err;

	WRITE_ONCE(sock->ops, &ask_ops);
	err = sock_sendmsg(sock, &msg);
	WRITE_ONCE(sock->ops, ops);
	return err;
}

/* Resets the connection of a socket; the socket can connect again. */
int rsiw_sock_disconnect(struct socket *sock)
{
	struct sockaddr_storage addr = { .ss_family = AF_UNSPEC };
	int err;

	err = kernel_connect(sock, (struct sockaddr_unsized *)&addr, sizeof(struct sockaddr), 0);
	/* Clears the error of this reset. */
	(void)sock_error(sock->sk);
	return err;
}

/* Whether the current task is a process, and no kernel thread. */
bool rsiw_caller_is_process(void)
{
	return !(current->flags & PF_KTHREAD);
}

/* Whether the current process is in @net; true for kernel threads. */
bool rsiw_caller_is_in_net(const struct net *net)
{
	if (current->flags & PF_KTHREAD)
		return true;
	return current->nsproxy && current->nsproxy->net_ns == net;
}
