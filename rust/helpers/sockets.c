// SPDX-License-Identifier: GPL-2.0
/* The functions of sockets.h that are not in callbacks.c, owner.c or receive.c. */
#include <linux/bvec.h>
#include <linux/net.h>
#include <linux/skbuff.h>
#include <linux/tcp.h>
#include <linux/uio.h>
#include <net/hotdata.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include <net/proto_memory.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "sockets.h"

struct sock *rsiw_sock_sk(struct socket *sock)
{
	return sock->sk;
}

/*
 * Keepalive: seconds of idle time before the first probe, seconds between probes, and the number of
 * unanswered probes before the connection ends. Two minutes in all.
 */
#define KEEP_IDLE 60
#define KEEP_INTERVAL 10
#define KEEP_COUNT 6

/*
 * Sets the options of every connection. Connections send from softirqs, and without Nagle's
 * algorithm. Keepalive detects a dead peer while TCP waits for no acknowledgment, as during an
 * outstanding RDMA Read.
 */
void rsiw_sk_prepare(struct sock *sk)
{
	lock_sock(sk);
	sk->sk_allocation = GFP_ATOMIC;
	/* A softirq must not use the page fragment of the current task. */
	sk->sk_use_task_frag = false;
	/* MPA has no urgent data: urgent octets are a part of the stream. */
	sock_set_flag(sk, SOCK_URGINLINE);
	release_sock(sk);
	tcp_sock_set_nodelay(sk);
	sock_set_keepalive(sk);
	tcp_sock_set_keepidle(sk, KEEP_IDLE);
	tcp_sock_set_keepintvl(sk, KEEP_INTERVAL);
	tcp_sock_set_keepcnt(sk, KEEP_COUNT);
}

/*
 * Limits the time for data that is not acknowledged, in milliseconds. TCP applies the limit to
 * keepalive as well. A short one would end an idle connection after a single lost probe, so
 * keepalive is off then.
 */
void rsiw_sk_set_user_timeout(struct sock *sk, int millis)
{
	bool ask = !millis || millis >= 1000 * (KEEP_IDLE + KEEP_INTERVAL * KEEP_COUNT);

	tcp_sock_set_user_timeout(sk, millis);
	lock_sock(sk);
	sk->sk_prot->keepalive(sk, ask);
	sock_valbool_flag(sk, SOCK_KEEPOPEN, ask);
	release_sock(sk);
}

/* Takes a namespace reference for a kernel socket; false if the namespace is being removed. */
bool rsiw_sk_hold_net(struct sock *sk)
{
	struct net *net = NULL;
	bool held;

	lock_sock(sk);
	held = sk->sk_net_refcnt;
	if (!held) {
		net = maybe_get_net(sock_net(sk));
		if (net) {
			sk_net_refcnt_upgrade(sk);
			held = true;
		}
	}
	release_sock(sk);
	if (net)
		put_net(net);
	return held;
}

/* Reverts sock_no_linger(). */
void rsiw_sk_set_linger_normal(struct sock *sk)
{
	lock_sock(sk);
	sock_reset_flag(sk, SOCK_LINGER);
	release_sock(sk);
}

void rsiw_sk_cap_sndbuf(struct sock *sk, int octets)
{
	lock_sock(sk);
	sk->sk_userlocks |= SOCK_SNDBUF_LOCK;
	WRITE_ONCE(sk->sk_sndbuf, max_t(int, octets, SOCK_MIN_SNDBUF));
	release_sock(sk);
}

void rsiw_sk_bind_later(struct sock *sk)
{
	inet_set_bit(BIND_ADDRESS_NO_PORT, sk);
}

void rsiw_sk_set_tos(struct sock *sk, u8 tos)
{
	ip_sock_set_tos(sk, tos);
#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6) {
		lock_sock(sk);
		inet6_sk(sk)->tclass = (tos & ~INET_ECN_MASK) |
				       (inet6_sk(sk)->tclass & INET_ECN_MASK);
		sk_dst_reset(sk);
		release_sock(sk);
	}
#endif
}

void rsiw_sk_set_v6only(struct sock *sk, bool only)
{
	lock_sock(sk);
	sk->sk_ipv6only = only;
	release_sock(sk);
}

/*
 * Sends a start-up frame, in process context. The call waits for memory: no other data is in
 * flight, so TCP would not call write_space when there is memory again. The call does not wait for
 * I/O, which may depend on this connection.
 */
int rsiw_sock_send(struct socket *sock, const void *buf, size_t len)
{
	struct sock *sk = sock->sk;
	gfp_t usual;
	int sent;

	lock_sock(sk);
	usual = sk->sk_allocation;
	sk->sk_allocation = GFP_NOIO;
	sent = rsiw_tcp_send_copy(sk, buf, len);
	rsiw_sk_drop_frag(sk);
	sk->sk_allocation = usual;
	release_sock(sk);
	return sent;
}

void rsiw_sk_hold(struct sock *sk)
{
	sock_hold(sk);
}

void rsiw_sk_put(struct sock *sk)
{
	sock_put(sk);
}

void rsiw_sk_lock(struct sock *sk)
{
	lock_sock(sk);
}

/* Takes the spin lock of the socket, unless a process owns the socket. Does not sleep. */
bool rsiw_sk_try_lock_bh(struct sock *sk)
{
	local_bh_disable();
	bh_lock_sock(sk);
	if (!sock_owned_by_user(sk))
		return true;
	bh_unlock_sock(sk);
	local_bh_enable();
	return false;
}

void rsiw_sk_unlock_bh(struct sock *sk)
{
	bh_unlock_sock(sk);
	local_bh_enable();
}

u8 rsiw_sk_state(const struct sock *sk)
{
	return READ_ONCE(sk->sk_state);
}

u32 rsiw_tcp_retransmits(const struct sock *sk)
{
	return READ_ONCE(tcp_sk(sk)->total_retrans);
}

void rsiw_tcp_info(const struct sock *sk, struct rsiw_tcp_info *info)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	info->local_port = inet_sk(sk)->inet_num;
	info->remote_port = ntohs(inet_sk(sk)->inet_dport);
	info->rtt_us = tp->srtt_us >> 3;
	info->mss = tp->mss_cache;
	info->unacked = tp->snd_nxt - tp->snd_una;
	info->unsent = tp->write_seq - tp->snd_nxt;
	info->unread = tp->rcv_nxt - tp->copied_seq;
}

u32 rsiw_tcp_mss(const struct sock *sk)
{
	return tcp_sk(sk)->mss_cache;
}

/* The octets that TCP puts into one skb: whole segments, at most half of the peer's window. */
u32 rsiw_tcp_size_goal(struct sock *sk)
{
	u32 mss = max_t(u32, tcp_sk(sk)->mss_cache, 1);
	u32 goal = tcp_bound_to_half_wnd(tcp_sk(sk), sk->sk_gso_max_size);

	return max(min_t(u32, goal / mss, sk->sk_gso_max_segs), 1) * mss;
}

/* Octets of the last unsent skb, to which TCP appends the next ones. */
u32 rsiw_tcp_unsent_tail(const struct sock *sk)
{
	const struct sk_buff *skb = tcp_write_queue_tail(sk);

	return skb && tcp_skb_can_collapse_to(skb) ? skb->len : 0;
}

/*
 * Octets, in parts of a page, for which the last skb of the write queue has free fragments. A burst
 * of that length fits into the skb. 0: the skb has no free fragment. ~0: there is no such skb, and
 * the next burst starts one.
 */
u32 rsiw_tcp_tail_room(const struct sock *sk)
{
	const struct sk_buff *skb = tcp_write_queue_tail(sk);
	u32 most = READ_ONCE(net_hotdata.sysctl_max_skb_frags);
	u32 used = skb ? skb_shinfo(skb)->nr_frags : 0;

	if (!skb || !tcp_skb_can_collapse_to(skb))
		return U32_MAX;
	return used < most ? (most - used) * PAGE_SIZE : 0;
}

/* Octets that the peer has acknowledged since the connection began. */
u64 rsiw_tcp_acked(const struct sock *sk)
{
	return tcp_sk(sk)->bytes_acked;
}

/* Octets in TCP's queues that the peer has not acknowledged yet. */
u32 rsiw_tcp_outstanding(const struct sock *sk)
{
	if (tcp_rtx_and_write_queues_empty(sk))
		return 0;
	return tcp_sk(sk)->write_seq - tcp_sk(sk)->snd_una;
}

/* Whether TCP has sent data or a window probe since the last segment from the peer. */
bool rsiw_tcp_awaits_answer(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	return inet_csk(sk)->icsk_probes_out ||
	       (tp->packets_out && after(tp->lsndtime, tp->rcv_tstamp));
}

/* Whether the peer's window is closed: TCP has unsent data, and no segment is in flight. */
bool rsiw_tcp_window_closed(const struct sock *sk)
{
	return !tcp_sk(sk)->packets_out && tcp_send_head(sk);
}

/* Milliseconds since the last segment from the peer. */
u32 rsiw_tcp_silent_ms(const struct sock *sk)
{
	return jiffies_to_msecs(keepalive_time_elapsed(tcp_sk(sk)));
}

/* The unsent octets of all skbs. */
u32 rsiw_tcp_unsent(const struct sock *sk)
{
	return tcp_sk(sk)->write_seq - tcp_sk(sk)->snd_nxt;
}

/* Makes the next octets begin an skb and a segment, as after MSG_EOR. */
void rsiw_tcp_end_record(struct sock *sk)
{
	struct sk_buff *skb = tcp_write_queue_tail(sk);

	if (skb)
		TCP_SKB_CB(skb)->eor = 1;
}

/* Whether the minimum round trip time exceeds @rtt_us microseconds. */
bool rsiw_tcp_is_long_rtt(const struct sock *sk, u32 rtt_us)
{
	u32 rtt = tcp_min_rtt(tcp_sk(sk));

	return rtt != ~0U && rtt > rtt_us;
}

/*
 * Sizes a fixed send buffer: twice the congestion window where the RTT exceeds @rtt_us
 * microseconds, else @octets. Returns whether the send buffer has free space.
 */
bool rsiw_tcp_fit_sndbuf(struct sock *sk, u32 octets, u32 rtt_us)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 limit = max_t(u32, octets, READ_ONCE(sock_net(sk)->ipv4.sysctl_tcp_wmem[2]));
	u64 wanted = octets;

	if (rsiw_tcp_is_long_rtt(sk, rtt_us))
		wanted = 2ULL * tcp_snd_cwnd(tp) * SKB_TRUESIZE(tp->mss_cache + MAX_TCP_HEADER);
	WRITE_ONCE(sk->sk_sndbuf, clamp_t(u64, wanted, octets, limit));
	return sk_stream_memory_free(sk);
}

bool rsiw_tcp_writable(const struct sock *sk)
{
	return sk_stream_is_writeable(sk);
}

/* Whether the send buffer has free space; if not, TCP calls write_space when it has. */
bool rsiw_tcp_has_room(struct sock *sk)
{
	struct socket *sock = sk->sk_socket;

	if (sk_stream_memory_free(sk) || !sock)
		return true;
	set_bit(SOCK_NOSPACE, &sock->flags);
	return false;
}

bool rsiw_tcp_queues_empty(const struct sock *sk)
{
	return tcp_rtx_and_write_queues_empty(sk);
}

/* Clears the request of rsiw_tcp_has_room() for a call of write_space. */
void rsiw_tcp_clear_nospace(struct sock *sk)
{
	struct socket *sock = sk->sk_socket;

	if (sock)
		clear_bit(SOCK_NOSPACE, &sock->flags);
}

/* Whether all TCP sockets use less than half of the unregulated memory (tcp_mem, tcp(7)). */
bool rsiw_sk_memory_plenty(const struct sock *sk)
{
	return sk_memory_allocated(sk) < sk_prot_mem_limits(sk, 0) / 2;
}

/* SO_RESERVE_MEM, also without a memory cgroup. Short memory refuses it, as for received data. */
bool rsiw_sk_reserve(struct sock *sk, u32 octets)
{
	if (!rsiw_sk_memory_plenty(sk) || !__sk_mem_schedule(sk, octets, SK_MEM_RECV))
		return false;
	sk->sk_reserved_mem = octets;
	return true;
}

/* Reclaims the unused part of a reservation; the rest is reclaimed when it is freed. */
void rsiw_sk_unreserve(struct sock *sk)
{
	sk_mem_reclaim_final(sk);
}

/*
 * Charges the socket, and so its memory cgroup, for memory outside its queues. Short memory refuses
 * the charge, as for received data. The release of the socket does not uncharge that memory.
 */
bool rsiw_sk_charge(struct sock *sk, u32 octets)
{
	if (!__sk_mem_schedule(sk, octets, SK_MEM_RECV))
		return false;
	sk_mem_charge(sk, octets);
	return true;
}

void rsiw_sk_uncharge(struct sock *sk, u32 octets)
{
	sk_mem_uncharge(sk, octets);
}

/*
 * Uncharges @octets of rsiw_sk_charge() from a socket that is released next. If TCP has data to
 * deliver, which pins the charged memory, @octets stay accounted until the socket's end.
 */
void rsiw_sk_leave_charge(struct sock *sk, u32 octets)
{
	if (octets && !tcp_rtx_and_write_queues_empty(sk))
		WRITE_ONCE(sk->sk_reserved_mem, sk->sk_wmem_queued + octets);
	sk_mem_uncharge(sk, octets);
}

/*
 * Sends from the pages of up to RSIW_MAX_PARTS blocks, without a copy if the device supports it.
 * The sum of the lengths is less than 2 GiB.
 */
int rsiw_tcp_send_pages(struct sock *sk, const struct rsiw_part *parts, u32 count)
{
	struct msghdr msg = {
		.msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_SPLICE_PAGES | MSG_NO_SHARED_FRAGS,
	};
	struct bio_vec vecs[RSIW_MAX_PARTS];
	size_t len = 0;
	u32 i;

	/* TCP dereferences sk_socket, which a released socket does not have. */
	if (!sk->sk_socket)
		return -EPIPE;
	count = min(count, RSIW_MAX_PARTS);
	for (i = 0; i < count; i++) {
		bvec_set_page(&vecs[i], parts[i].page, parts[i].len, parts[i].off);
		len += parts[i].len;
	}
	iov_iter_bvec(&msg.msg_iter, ITER_SOURCE, vecs, count, len);
	return tcp_sendmsg_locked(sk, &msg, len);
}

/*
 * TCP copies the data into the socket's page fragment of 32 KiB, accounts the octets and pins the
 * fragment. No other socket uses the fragment, which is filled from the beginning to the end. So
 * unacknowledged data pins its octets, and the rest of two fragments.
 */
int rsiw_tcp_send_copy(struct sock *sk, const void *buf, size_t len)
{
	struct kvec vec = { .iov_base = (void *)buf, .iov_len = len };
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL };

	if (!sk->sk_socket)
		return -EPIPE;
	iov_iter_kvec(&msg.msg_iter, ITER_SOURCE, &vec, 1, len);
	/* The first fragment is a page, enough for one small message at a time. */
	if (!sk->sk_frag.page) {
		sk->sk_frag.page = alloc_page(sk->sk_allocation | __GFP_NOWARN);
		sk->sk_frag.offset = 0;
		sk->sk_frag.size = PAGE_SIZE;
	}
	return tcp_sendmsg_locked(sk, &msg, len);
}

/* Releases the page fragment, which a socket otherwise keeps until its end. */
void rsiw_sk_drop_frag(struct sock *sk)
{
	if (sk->sk_frag.page)
		put_page(sk->sk_frag.page);
	sk->sk_frag.page = NULL;
}

/*
 * As rsiw_sk_drop_frag(), unless an skb has a part of the fragment: false. The release would free
 * no memory then, and the next data would pin another fragment. A receiver on this host has such
 * skbs.
 */
bool rsiw_sk_drop_unused_frag(struct sock *sk)
{
	if (sk->sk_frag.page && page_count(sk->sk_frag.page) != 1)
		return false;
	rsiw_sk_drop_frag(sk);
	return true;
}

/* Closes the sending direction of the connection, after the queued data. */
void rsiw_tcp_send_fin(struct sock *sk)
{
	if (sk->sk_shutdown & SEND_SHUTDOWN)
		return;
	WRITE_ONCE(sk->sk_shutdown, sk->sk_shutdown | SEND_SHUTDOWN);
	sk->sk_prot->shutdown(sk, SEND_SHUTDOWN);
}
