/* SPDX-License-Identifier: GPL-2.0 */
/* The input of bindgen: kernel interfaces of rust/sys/ that the kernel crate does not bind. */
#include <linux/crc32.h>
#include <linux/errno.h>
#include <linux/fcntl.h>
#include <linux/hrtimer.h>
#include <linux/if_arp.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/inetdevice.h>
#include <linux/io.h>
#include <linux/irqflags.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/net.h>
#include <linux/netdevice.h>
#include <linux/preempt.h>
#include <linux/skbuff.h>
#include <linux/tcp.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>
#include <net/addrconf.h>
#include <net/ip.h>
#include <net/net_namespace.h>
#include <net/sock.h>
#include <net/tcp.h>
#include <net/tcp_states.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/ib_verbs.h>
#include <rdma/iw_cm.h>
#include <rdma/iw_portmap.h>
#include <rdma/rdma_netlink.h>
#include <rdma/siw-abi.h>
#include <rdma/uverbs_ioctl.h>

#include "helpers.h"
#include "ib.h"
#include "sockets.h"
#include "trace.h"

/* Macros that bindgen does not translate to constants. */
const xa_mark_t RSIW_XA_PRESENT = XA_PRESENT;
const int RSIW_IPPROTO_TCP = IPPROTO_TCP;
const int RSIW_O_NONBLOCK = O_NONBLOCK;
