// SPDX-License-Identifier: GPL-2.0
/* The functions of sockets.h for received data, and those that only tests need. */
#include <linux/cpumask.h>
#include <linux/net.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/skbuff.h>
#include <linux/tcp.h>
#include <linux/uio.h>
#include <linux/workqueue.h>
#include <net/net_namespace.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "sockets.h"

int rsiw_sock_recv(struct socket *sock, void *buf, size_t len)
{
	struct kvec vec = { .iov_base = buf, .iov_len = len };
	struct msghdr msg = { };

	return kernel_recvmsg(sock, &msg, &vec, 1, len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Clears and returns the pending error, a negative number or 0. */
int rsiw_sk_take_error(struct sock *sk)
{
	return sock_error(sk);
}

/* Whether rsiw_skb_chunk() reaches every octet. */
static bool rsiw_skb_reachable(const struct sk_buff *skb)
{
	const struct sk_buff *part;

	if (!skb_frags_readable(skb))
		return false;
	skb_walk_frags(skb, part) {
		if (skb_has_frag_list(part) || !skb_frags_readable(part))
			return false;
	}
	return true;
}

/* Finds the octets at rx->seq, from skb on. Buffers may overlap, and may be empty (FIN). */
static bool rsiw_tcp_rx_from(struct sock *sk, struct rsiw_rx *rx, struct sk_buff *skb)
{
	while (skb) {
		u32 offset = rx->seq - TCP_SKB_CB(skb)->seq;

		if ((s32)offset < 0)
			return false;
		if (offset < skb->len) {
			rx->skb = skb;
			rx->offset = offset;
			rx->len = skb->len - offset;
			rx->unreadable = !rsiw_skb_reachable(skb);
			return true;
		}
		if (skb_queue_is_last(&sk->sk_receive_queue, skb))
			return false;
		skb = skb_queue_next(&sk->sk_receive_queue, skb);
	}
	return false;
}

/* The in-order octets after the first seen octets; those were read, but not reported yet. */
bool rsiw_tcp_rx_first(struct sock *sk, struct rsiw_rx *rx, u32 seen)
{
	struct sk_buff *skb;
	u32 offset;

	if (sk->sk_state == TCP_LISTEN || !sk->sk_socket)
		return false;
	rx->seq = tcp_sk(sk)->copied_seq;
	/* With another sequence number tcp_recv_skb() frees skbs that TCP counts as unread. */
	skb = tcp_recv_skb(sk, rx->seq, &offset);
	rx->seq += seen;
	return rsiw_tcp_rx_from(sk, rx, skb);
}

/* The octets after those of rx; the receive queue has not changed. */
bool rsiw_tcp_rx_next(struct sock *sk, struct rsiw_rx *rx)
{
	rx->seq += rx->len;
	return rsiw_tcp_rx_from(sk, rx, rx->skb);
}

/* Reports the first len octets as read: TCP frees the buffers, and opens the window. */
void rsiw_tcp_rx_done(struct sock *sk, size_t len)
{
	tcp_read_done(sk, len);
}

static void rsiw_cursor_set(struct rsiw_skb_cursor *cursor, const struct sk_buff *part, u32 start)
{
	cursor->part = part;
	cursor->part_start = start;
	cursor->frag = 0;
	cursor->frag_start = start + skb_headlen(part);
}

/*
 * The memory at octet off of an skb: returns the number of contiguous octets, 0 after the end. The
 * search starts at the cursor, unless off is before it.
 */
u32 rsiw_skb_chunk(const struct sk_buff *skb, struct rsiw_skb_cursor *cursor, u32 off,
		   const void **data)
{
	if (!cursor->part || off < cursor->part_start)
		rsiw_cursor_set(cursor, skb, 0);
	else if (off < cursor->frag_start)
		rsiw_cursor_set(cursor, cursor->part, cursor->part_start);

	for (;;) {
		const struct sk_buff *part = cursor->part;
		const struct skb_shared_info *info = skb_shinfo(part);
		u32 head_end = cursor->part_start + skb_headlen(part);
		const struct sk_buff *next;

		if (off < head_end) {
			*data = part->data + (off - cursor->part_start);
			return head_end - off;
		}
		for (; cursor->frag < info->nr_frags; cursor->frag++) {
			const skb_frag_t *frag = &info->frags[cursor->frag];
			u32 end = cursor->frag_start + skb_frag_size(frag);

			if (off < end) {
				*data = skb_frag_address(frag) + (off - cursor->frag_start);
				return end - off;
			}
			cursor->frag_start = end;
		}
		next = part == skb ? info->frag_list : part->next;
		if (!next)
			return 0;
		rsiw_cursor_set(cursor, next, cursor->frag_start);
	}
}

#if IS_BUILTIN(CONFIG_KUNIT)

int rsiw_test_loopback_up(void)
{
	int err;

	rtnl_lock();
	err = dev_open(init_net.loopback_dev, NULL);
	rtnl_unlock();
	return err;
}

/* Sets the first number of net.ipv4.tcp_mem, in pages; returns the one before. */
long rsiw_test_set_tcp_mem(const struct sock *sk, long pages)
{
	long before = sk->sk_prot->sysctl_mem[0];

	WRITE_ONCE(sk->sk_prot->sysctl_mem[0], pages);
	return before;
}

/* An skb with a linear part and fragments; its octets count up from *octet. */
static struct sk_buff *rsiw_test_part(u32 linear, u32 frags, u32 frag_len, u8 *octet)
{
	struct sk_buff *skb = alloc_skb(linear, GFP_KERNEL);
	u32 i, j;

	if (!skb)
		return NULL;
	for (i = 0; i < linear; i++)
		*(u8 *)skb_put(skb, 1) = (*octet)++;
	for (i = 0; i < frags; i++) {
		struct page *page = alloc_page(GFP_KERNEL);
		u8 *at;

		if (!page) {
			kfree_skb(skb);
			return NULL;
		}
		/* The data is not at the page's beginning, as from a device. */
		at = page_address(page) + 64;
		for (j = 0; j < frag_len; j++)
			at[j] = (*octet)++;
		skb_add_rx_frag(skb, i, page, 64, frag_len, PAGE_SIZE);
	}
	return skb;
}

struct sk_buff *rsiw_test_skb(u32 linear, u32 frags, u32 frag_len, u32 parts)
{
	u8 octet = 0;
	struct sk_buff *skb = rsiw_test_part(linear, frags, frag_len, &octet);
	struct sk_buff **tail;

	if (!skb)
		return NULL;
	tail = &skb_shinfo(skb)->frag_list;
	while (parts--) {
		struct sk_buff *part = rsiw_test_part(linear, frags, frag_len, &octet);

		if (!part) {
			kfree_skb(skb);
			return NULL;
		}
		*tail = part;
		tail = &part->next;
		skb->len += part->len;
		skb->data_len += part->len;
		skb->truesize += part->truesize;
	}
	return skb;
}

void rsiw_test_free_skb(struct sk_buff *skb)
{
	kfree_skb(skb);
}

static long rsiw_test_feed_this_cpu(void *dev)
{
	struct sk_buff *skb = alloc_skb(ETH_HLEN, GFP_KERNEL);

	if (!skb)
		return -ENOMEM;
	skb_reset_mac_header(skb);
	skb->dev = dev;
	skb->protocol = htons(ETH_P_LOOPBACK);
	netif_rx(skb);
	return 0;
}

/*
 * Passes an skb without a receiver to every CPU. An skb freed by another CPU is queued to the CPU
 * of its allocation, and keeps its pages until that CPU receives. Sleeps.
 */
void rsiw_test_feed_cpus(void)
{
	int cpu;

	for_each_online_cpu(cpu)
		work_on_cpu(cpu, rsiw_test_feed_this_cpu, init_net.loopback_dev);
}

bool rsiw_test_keeps_fragment(const struct sock *sk)
{
	return sk->sk_frag.page;
}

/* Octets accounted to the socket and not in use. */
int rsiw_test_accounted_free(const struct sock *sk)
{
	return sk->sk_forward_alloc;
}

bool rsiw_test_holds_net(const struct sock *sk)
{
	return sk->sk_net_refcnt;
}

#endif /* CONFIG_KUNIT */
