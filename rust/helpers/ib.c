// SPDX-License-Identifier: GPL-2.0
/* The functions of ib.h. */
#include <linux/cpumask.h>
#include <linux/ethtool.h>
#include <linux/inetdevice.h>
#include <linux/kobject.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/scatterlist.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <net/addrconf.h>
#include <net/if_inet6.h>
#include <net/l3mdev.h>
#include <net/net_namespace.h>
#include <net/netlink.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/iw_cm.h>
#include <rdma/rdma_cm.h>
#include <rdma/rdma_netlink.h>
#include <rdma/uverbs_ioctl.h>

#include "ib.h"

/* User calls */

struct ib_udata *rsiw_attrs_udata(struct uverbs_attr_bundle *attrs)
{
	return &attrs->driver_udata;
}

struct ib_ucontext *rsiw_udata_context(struct ib_udata *udata)
{
	return rdma_udata_to_uverbs_attr_bundle(udata)->context;
}

int rsiw_no_udata_io(struct ib_udata *udata)
{
	return ib_no_udata_io(udata);
}

/* Connections */

/*
 * The queue pair of the rdma_cm_id of an iw_cm_id. rdma_cm is the only user of iw_cm, and its
 * context begins with the rdma_cm_id. Kernel users bind their queue pair to the rdma_cm_id
 * (rdma_create_qp()), processes never do. Callers only compare the pointer: with another user of
 * iw_cm the context may have any type.
 */
const struct ib_qp *rsiw_cm_own_qp(const struct iw_cm_id *id)
{
	const struct rdma_cm_id *user = id->context;
	const struct ib_qp *qp;

	if (!user || copy_from_kernel_nofault(&qp, &user->qp, sizeof(qp)))
		return NULL;
	return qp;
}

/*
 * The driver's data for the connection or listener of @id, or NULL. After a failed connect, iw_cm
 * may destroy the iw_cm_id concurrently. The result is then arbitrary.
 */
void *rsiw_cm_provider_data(struct rdma_cm_id *id)
{
	const struct iw_cm_id *iw = rdma_iw_cm_id(id);
	void *data;

	if (!iw || copy_from_kernel_nofault(&data, &iw->provider_data, sizeof(data)))
		return NULL;
	return data;
}

/* A dependency on the module iw_cm, whose other functions rsiw calls only by pointers. */
const char *rsiw_iwcm_reason(int reason)
{
	return iwcm_reject_msg(reason);
}

/* Memory */

/* Allocates zeroed pages, charged to the caller's memory cgroup. Process context; sleeps. */
void *rsiw_ring_alloc(size_t len)
{
	return __vmalloc(len, GFP_KERNEL_ACCOUNT | __GFP_ZERO);
}

/* Maps a ring from its beginning; the area is not longer than the ring. */
int rsiw_ring_map(struct vm_area_struct *vma, void *ring)
{
	unsigned long addr;
	int err;

	vm_flags_set(vma, VM_DONTEXPAND | VM_DONTDUMP);
	for (addr = vma->vm_start; addr < vma->vm_end; addr += PAGE_SIZE, ring += PAGE_SIZE) {
		err = vm_insert_page(vma, addr, vmalloc_to_page(ring));
		if (err)
			return err;
	}
	return 0;
}

struct ib_umem *rsiw_umem_get(struct ib_device *dev, u64 start, u64 len, int access)
{
	return ib_umem_get_va(dev, start, len, access);
}

/* Whether the pages were pinned for writing. */
bool rsiw_umem_writable(const struct ib_umem *umem)
{
	return umem->writable;
}

size_t rsiw_umem_num_pages(struct ib_umem *umem)
{
	return DIV_ROUND_UP(ib_umem_offset(umem) + umem->length, PAGE_SIZE);
}

/*
 * Writes the addresses of the pages of @umem in order to @pages, at most @max; returns their
 * number. There is no high memory (INFINIBAND_VIRT_DMA).
 */
size_t rsiw_umem_pages(struct ib_umem *umem, void **pages, size_t max)
{
	struct sg_page_iter iter;
	size_t n = 0;

	for_each_sgtable_page(&umem->sgt_append.sgt, &iter, 0) {
		if (n == max)
			break;
		pages[n++] = page_address(sg_page_iter_page(&iter));
	}
	return n;
}

u64 rsiw_sg_dma_address(struct scatterlist *sg)
{
	return sg_dma_address(sg);
}

u32 rsiw_sg_dma_len(struct scatterlist *sg)
{
	return sg_dma_len(sg);
}

/* Devices */

void rsiw_device_get(struct ib_device *dev)
{
	get_device(&dev->dev);
}

void rsiw_device_put(struct ib_device *dev)
{
	put_device(&dev->dev);
}

bool rsiw_device_try_get(struct ib_device *dev)
{
	return ib_device_try_get(dev);
}

int rsiw_num_cpus(void)
{
	return num_possible_cpus();
}

struct rsiw_port_info rsiw_port_info(struct ib_device *dev)
{
	struct net_device *ndev = ib_device_get_netdev(dev, 1);
	struct rsiw_port_info info = { .mtu = IB_MTU_256 };

	if (!ndev)
		return info;
	info.octets = READ_ONCE(ndev->mtu);
	info.mtu = ib_mtu_int_to_enum(info.octets);
	info.up = netif_running(ndev) && netif_carrier_ok(ndev);
	dev_put(ndev);
	return info;
}

/* All callers pass the same names, which are static data of the module. */
struct rdma_hw_stats *rsiw_alloc_stats(const char * const *names, int n)
{
	static struct rdma_stat_desc descs[48];
	int i;

	n = min_t(int, n, ARRAY_SIZE(descs));
	for (i = 0; i < n; i++)
		descs[i].name = names[i];
	return rdma_alloc_hw_stats_struct(descs, n, RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

void rsiw_set_stat(struct rdma_hw_stats *stats, int index, u64 value)
{
	stats->value[index] = value;
}

/* Begins the driver attributes of "rdma resource show"; NULL if the message is full. */
void *rsiw_res_begin(struct sk_buff *msg)
{
	return nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);
}

/* Ends the nest of rsiw_res_begin(), or removes it from the message. */
void rsiw_res_end(struct sk_buff *msg, void *nest, bool whole)
{
	if (whole)
		nla_nest_end(msg, nest);
	else
		nla_nest_cancel(msg, nest);
}

/* Interfaces */

void rsiw_netdev_info(const struct net_device *ndev, struct rsiw_netdev_info *info)
{
	memset(info, 0, sizeof(*info));
	info->net = dev_net(ndev);
	info->ifindex = ndev->ifindex;
	info->kind = ndev->type;
	info->addr_len = ndev->addr_len;
	memcpy(info->address, ndev->dev_addr,
	       min_t(size_t, ndev->addr_len, sizeof(info->address)));
	strscpy(info->name, ndev->name, sizeof(info->name));
}

/* The speed of @ndev in megabits per second, 0 if unknown. Sleeps; takes the RTNL. */
u32 rsiw_netdev_speed(struct net_device *ndev)
{
	struct ethtool_link_ksettings settings = {};
	u32 speed = 0;

	rtnl_lock();
	if (ndev->reg_state == NETREG_REGISTERED &&
	    !__ethtool_get_link_ksettings(ndev, &settings) &&
	    settings.base.speed != (u32)SPEED_UNKNOWN)
		speed = settings.base.speed;
	rtnl_unlock();
	return speed;
}

/* The index of the L3 master device of @ndev, 0 if it has none. */
u32 rsiw_netdev_l3mdev(struct net_device *ndev)
{
	return l3mdev_master_ifindex(ndev);
}

/* Writes the IP addresses of @ndev, as GIDs, to @gids, at most @max; returns their number. */
size_t rsiw_netdev_gids(const struct net_device *ndev, u8 (*gids)[16], size_t max)
{
	const struct inet6_ifaddr *ifp;
	const struct in_ifaddr *ifa;
	struct inet6_dev *idev;
	struct in_device *in_dev;
	struct in6_addr mapped;
	size_t n = 0;

	rcu_read_lock();
	in_dev = __in_dev_get_rcu(ndev);
	if (in_dev) {
		in_dev_for_each_ifa_rcu(ifa, in_dev) {
			if (n == max)
				break;
			ipv6_addr_set_v4mapped(ifa->ifa_local, &mapped);
			memcpy(gids[n++], &mapped, sizeof(mapped));
		}
	}
	idev = __in6_dev_get(ndev);
	if (idev) {
		read_lock_bh(&idev->lock);
		list_for_each_entry(ifp, &idev->addr_list, if_list) {
			if (n == max)
				break;
			memcpy(gids[n++], &ifp->addr, sizeof(ifp->addr));
		}
		read_unlock_bh(&idev->lock);
	}
	rcu_read_unlock();
	return n;
}

int rsiw_register_inet6addr_notifier(struct notifier_block *nb)
{
	return register_inet6addr_notifier(nb);
}

int rsiw_unregister_inet6addr_notifier(struct notifier_block *nb)
{
	return unregister_inet6addr_notifier(nb);
}

void rsiw_netdev_put(struct net_device *ndev)
{
	dev_put(ndev);
}

/*
 * Takes the RTNL if @ndev is registered in @net. Under the RTNL no interface is removed, and none
 * moves to another network namespace.
 */
bool rsiw_netdev_hold_still(const struct net_device *ndev, const struct net *net)
{
	rtnl_lock();
	if (READ_ONCE(ndev->reg_state) == NETREG_REGISTERED && dev_net(ndev) == net)
		return true;
	rtnl_unlock();
	return false;
}

void rsiw_netdev_let_move(void)
{
	rtnl_unlock();
}

struct net_device *rsiw_notifier_netdev(void *data)
{
	return netdev_notifier_info_to_dev(data);
}

/* Takes a reference to the namespace of @ndev; NULL if the namespace is being removed. */
struct net *rsiw_netdev_get_net(const struct net_device *ndev)
{
	struct net *net;

	rcu_read_lock();
	net = maybe_get_net(dev_net_rcu(ndev));
	rcu_read_unlock();
	return net;
}

/* Link types. ib_core reports no failure, but does not list the entry then. */
bool rsiw_link_register(struct rdma_link_ops *ops)
{
	INIT_LIST_HEAD(&ops->list);
	rdma_link_register(ops);
	return !list_empty(&ops->list);
}

/* Whether a module of that name is loaded, or being loaded. */
bool rsiw_module_present(const char *name)
{
	struct kobject *found = kset_find_obj(THIS_MODULE->mkobj.kobj.kset, name);

	kobject_put(found);
	return found;
}

bool rsiw_module_is(const void *module, const char *name)
{
	return !strcmp(((const struct module *)module)->name, name);
}
