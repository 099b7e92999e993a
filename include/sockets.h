/* SPDX-License-Identifier: GPL-2.0 */
/* C functions for sockets, TCP and socket buffers; see helpers.h. */
#ifndef _RSIW_SOCKETS_H
#define _RSIW_SOCKETS_H

#include <linux/types.h>

struct net;
struct page;
struct sk_buff;
struct sock;
struct sockaddr;
struct socket;

/* Sockets, by their owner: process context */

/* The callbacks of TCP; see struct sock. */
struct rsiw_sock_callbacks {
	void (*data_ready)(struct sock *sk);
	void (*write_space)(struct sock *sk);
	void (*state_change)(struct sock *sk);
	void (*error_report)(struct sock *sk);
};

struct sock *rsiw_sock_sk(struct socket *sock);
void rsiw_sk_callbacks(struct sock *sk, struct rsiw_sock_callbacks *callbacks);
void rsiw_sk_set_callbacks(struct sock *sk, const struct rsiw_sock_callbacks *callbacks,
			   void *handler);
void rsiw_sk_set_incoming(struct sock *sk, const struct rsiw_sock_callbacks *callbacks,
			  void *handler);
void rsiw_sk_take_child(struct sock *sk, const struct rsiw_sock_callbacks *callbacks);
void rsiw_sk_prepare(struct sock *sk);
void rsiw_sk_set_user_timeout(struct sock *sk, int millis);
bool rsiw_sk_hold_net(struct sock *sk);
void rsiw_sk_set_linger_normal(struct sock *sk);
void rsiw_sk_cap_sndbuf(struct sock *sk, int octets);
void rsiw_sk_bind_later(struct sock *sk);
void rsiw_sk_set_tos(struct sock *sk, u8 tos);
void rsiw_sk_set_v6only(struct sock *sk, bool only);
int rsiw_sock_send(struct socket *sock, const void *buf, size_t len);
int rsiw_sock_recv(struct socket *sock, void *buf, size_t len);

/* Label and control groups of a socket (owner.c) */
int rsiw_sock_create(struct net *net, int family, struct socket **res);
int rsiw_sock_create_shared(struct net *net, int family, struct socket **res);
void rsiw_sk_kernel_children(struct sock *sk);
int rsiw_sk_inherit(struct sock *sk, struct sock *owner);
struct mem_cgroup *rsiw_sk_enter_memcg(struct sock *sk);
void rsiw_leave_memcg(struct mem_cgroup *before);
int rsiw_sock_may_connect(struct socket *sock, struct sockaddr *addr, int len);
int rsiw_sock_disconnect(struct socket *sock);
bool rsiw_caller_is_process(void);
bool rsiw_caller_is_in_net(const struct net *net);

/* Sockets, with a reference */
void rsiw_sk_hold(struct sock *sk);
void rsiw_sk_put(struct sock *sk);
void rsiw_sk_lock(struct sock *sk);
bool rsiw_sk_try_lock_bh(struct sock *sk);
void rsiw_sk_unlock_bh(struct sock *sk);
void *rsiw_sk_handler(struct sock *sk);
void *rsiw_sk_incoming(struct sock *sk);
u8 rsiw_sk_state(const struct sock *sk);
int rsiw_sk_take_error(struct sock *sk);

/* The number of retransmitted segments; any context. */
u32 rsiw_tcp_retransmits(const struct sock *sk);

/* State of a connection for "rdma resource show". */
struct rsiw_tcp_info {
	u16 local_port;
	u16 remote_port;
	/* Smoothed round trip time in microseconds; 0: not known. */
	u32 rtt_us;
	/* The maximum segment size, in octets of data. */
	u32 mss;
	/* Octets sent and not acknowledged, and octets not sent. */
	u32 unacked;
	u32 unsent;
	/* Octets received and not read. */
	u32 unread;
};

/* TCP; the caller holds the socket */
u32 rsiw_tcp_mss(const struct sock *sk);
u32 rsiw_tcp_size_goal(struct sock *sk);
u32 rsiw_tcp_unsent_tail(const struct sock *sk);
u32 rsiw_tcp_tail_room(const struct sock *sk);
u32 rsiw_tcp_unsent(const struct sock *sk);
u32 rsiw_tcp_outstanding(const struct sock *sk);
u64 rsiw_tcp_acked(const struct sock *sk);
bool rsiw_tcp_window_closed(const struct sock *sk);
bool rsiw_tcp_awaits_answer(const struct sock *sk);
u32 rsiw_tcp_silent_ms(const struct sock *sk);
void rsiw_tcp_info(const struct sock *sk, struct rsiw_tcp_info *info);
void rsiw_tcp_end_record(struct sock *sk);
bool rsiw_tcp_is_long_rtt(const struct sock *sk, u32 rtt_us);
bool rsiw_tcp_fit_sndbuf(struct sock *sk, u32 octets, u32 rtt_us);
bool rsiw_tcp_writable(const struct sock *sk);
bool rsiw_tcp_has_room(struct sock *sk);
bool rsiw_tcp_queues_empty(const struct sock *sk);
void rsiw_tcp_clear_nospace(struct sock *sk);
bool rsiw_sk_memory_plenty(const struct sock *sk);
bool rsiw_sk_reserve(struct sock *sk, u32 octets);
void rsiw_sk_unreserve(struct sock *sk);
bool rsiw_sk_charge(struct sock *sk, u32 octets);
void rsiw_sk_uncharge(struct sock *sk, u32 octets);
void rsiw_sk_leave_charge(struct sock *sk, u32 octets);

/* len octets from offset off of the block of pages whose first page is page. */
struct rsiw_part {
	struct page *page;
	u32 off;
	u32 len;
};

/* The largest number of parts in a call. */
#define RSIW_MAX_PARTS 3

int rsiw_tcp_send_pages(struct sock *sk, const struct rsiw_part *parts, u32 count);
int rsiw_tcp_send_copy(struct sock *sk, const void *buf, size_t len);
void rsiw_sk_drop_frag(struct sock *sk);
bool rsiw_sk_drop_unused_frag(struct sock *sk);
void rsiw_tcp_send_fin(struct sock *sk);

/*
 * A part of the receive queue: len octets from offset of skb, with sequence number seq. The octets
 * may be in memory that the CPU can not read (devmem, io_uring's zero-copy receive).
 */
struct rsiw_rx {
	struct sk_buff *skb;
	u32 seq;
	u32 offset;
	u32 len;
	bool unreadable;
};

bool rsiw_tcp_rx_first(struct sock *sk, struct rsiw_rx *rx, u32 seen);
bool rsiw_tcp_rx_next(struct sock *sk, struct rsiw_rx *rx);
void rsiw_tcp_rx_done(struct sock *sk, size_t len);

/* The position of the last access in an skb: part is the skb or one of its fragment list. */
struct rsiw_skb_cursor {
	const struct sk_buff *part;
	u32 part_start;
	u32 frag;
	u32 frag_start;
};

u32 rsiw_skb_chunk(const struct sk_buff *skb, struct rsiw_skb_cursor *cursor, u32 off,
		   const void **data);

#if IS_BUILTIN(CONFIG_KUNIT)
/* For the suites */
int rsiw_test_loopback_up(void);
long rsiw_test_set_tcp_mem(const struct sock *sk, long pages);
struct sk_buff *rsiw_test_skb(u32 linear, u32 frags, u32 frag_len, u32 parts);
void rsiw_test_free_skb(struct sk_buff *skb);
void rsiw_test_feed_cpus(void);
bool rsiw_test_keeps_fragment(const struct sock *sk);
int rsiw_test_accounted_free(const struct sock *sk);
bool rsiw_test_holds_net(const struct sock *sk);
#endif

#endif /* _RSIW_SOCKETS_H */
