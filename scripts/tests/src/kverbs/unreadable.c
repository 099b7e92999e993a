// SPDX-License-Identifier: GPL-2.0
/*
 * The CPU cannot read data that arrives in memory of a device, as with devmem TCP: the connection
 * ends, and posted requests are flushed. A netfilter hook marks the packets as unreadable; their
 * content does not matter.
 */
#include <linux/netfilter.h>
#include <linux/netfilter_ipv4.h>
#include <linux/slab.h>
#include <net/ip.h>
#include <net/tcp.h>

#include "kverbs.h"

#define LEN	8192u

#if IS_ENABLED(CONFIG_NETFILTER)

static __be16 port;		/* of the accepting end */

static unsigned int spoil(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	const struct iphdr *ip = ip_hdr(skb);
	const struct tcphdr *tcp = (const struct tcphdr *)((const u8 *)ip + ip->ihl * 4);

	if (ip->protocol == IPPROTO_TCP && skb_is_nonlinear(skb) && skb_headlen(skb) >= ip->ihl * 4 + sizeof(*tcp) &&
	    tcp->dest == port)
		skb->unreadable = 1;
	return NF_ACCEPT;
}

static const struct nf_hook_ops hook = {
	.hook = spoil, .pf = NFPROTO_IPV4, .hooknum = NF_INET_LOCAL_IN, .priority = INT_MAX,
};

static int write_is_lost(struct kv_pair *p, u8 *data)
{
	struct ib_sge sge = { .addr = (uintptr_t)data, .length = LEN, .lkey = p->a.pd->local_dma_lkey };
	struct ib_rdma_wr wr = { .wr = { .opcode = IB_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1 } };
	struct kv_wait *posted = kv_wait_new(), *flushed = kv_wait_new();
	struct ib_recv_wr recv = {};
	int err;

	recv.wr_cqe = &flushed->cqe;
	wr.wr.wr_cqe = &posted->cqe;
	wr.wr.send_flags = IB_SEND_SIGNALED;
	err = ib_post_recv(p->b.id->qp, &recv, NULL);
	err = err ?: ib_post_send(p->a.id->qp, &wr.wr, NULL);
	err = err ?: kv_wait_for(flushed, "the flush of a receive behind data that cannot be read");
	if (!err && flushed->wc.status != IB_WC_WR_FLUSH_ERR) {
		pr_err("rsiw_kverbs_test: a receive behind data that cannot be read: %s\n",
		       ib_wc_status_msg(flushed->wc.status));
		err = -EIO;
	}
	return err;
}

int kv_unreadable(const struct sockaddr *to, enum ib_poll_context poll)
{
	const struct kv_how how = { .poll = poll };
	struct kv_pair *p = kzalloc(sizeof(*p), GFP_KERNEL);
	u8 *data = kzalloc(LEN, GFP_KERNEL);
	int err = -ENOMEM;

	if (!p || !data)
		goto out;
	err = kv_connect(p, to, &how);
	if (err)
		goto out;
	port = ((struct sockaddr_in *)&p->listener->route.addr.src_addr)->sin_port;
	err = nf_register_net_hook(&init_net, &hook);
	if (!err) {
		err = write_is_lost(p, data);
		nf_unregister_net_hook(&init_net, &hook);
	}
	ib_drain_qp(p->a.id->qp);
	ib_drain_qp(p->b.id->qp);
	kv_disconnect(p);
out:
	kfree(data);
	kfree(p);
	return err;
}

#else

int kv_unreadable(const struct sockaddr *to, enum ib_poll_context poll)
{
	return 0;
}

#endif
