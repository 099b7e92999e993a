/* SPDX-License-Identifier: GPL-2.0 */
/* C functions for the ib_core side: user calls, memory, devices, interfaces, link types. */
#ifndef _RSIW_IB_H
#define _RSIW_IB_H

#include <linux/types.h>

struct ib_device;
struct ib_ucontext;
struct ib_udata;
struct ib_umem;
struct net;
struct net_device;
struct notifier_block;
struct page;
struct rdma_cm_id;
struct rdma_hw_stats;
struct rdma_link_ops;
struct scatterlist;
struct sk_buff;
struct uverbs_attr_bundle;
struct vm_area_struct;

/* The attributes of a port that come from its interface. */
struct rsiw_port_info {
	/* enum ib_mtu */
	u32 mtu;
	/* The MTU of the interface, in octets. */
	u32 octets;
	/* The interface is up and has a carrier. */
	bool up;
};

/* The attributes of an interface. */
struct rsiw_netdev_info {
	/* The network namespace, only for comparison. */
	void *net;
	u32 ifindex;
	/* ARPHRD_* */
	u16 kind;
	u8 addr_len;
	u8 address[6];
	char name[16];
};

/* The numbers of a device's settings. */
#define RSIW_SETTING_CRC 0
#define RSIW_SETTING_DOORBELL_COALESCE_USECS 1

typedef int (*rsiw_setting_get)(struct ib_device *dev, u32 number, u32 *value);
typedef int (*rsiw_setting_set)(struct ib_device *dev, u32 number, u32 value);

void rsiw_device_settings(struct ib_device *dev, rsiw_setting_get getter, rsiw_setting_set setter);

struct ib_udata *rsiw_attrs_udata(struct uverbs_attr_bundle *attrs);
struct ib_ucontext *rsiw_udata_context(struct ib_udata *udata);
int rsiw_no_udata_io(struct ib_udata *udata);
void *rsiw_ring_alloc(size_t len);
int rsiw_ring_map(struct vm_area_struct *vma, void *ring);
struct ib_umem *rsiw_umem_get(struct ib_device *dev, u64 start, u64 len, int access);
bool rsiw_umem_writable(const struct ib_umem *umem);
size_t rsiw_umem_num_pages(struct ib_umem *umem);
size_t rsiw_umem_pages(struct ib_umem *umem, void **pages, size_t max);
u64 rsiw_sg_dma_address(struct scatterlist *sg);
u32 rsiw_sg_dma_len(struct scatterlist *sg);
void rsiw_device_get(struct ib_device *dev);
void rsiw_device_put(struct ib_device *dev);
bool rsiw_device_try_get(struct ib_device *dev);
int rsiw_num_cpus(void);
struct rsiw_port_info rsiw_port_info(struct ib_device *dev);
struct rdma_hw_stats *rsiw_alloc_stats(const char * const *names, int n);
void *rsiw_res_begin(struct sk_buff *msg);
void rsiw_res_end(struct sk_buff *msg, void *nest, bool whole);
void rsiw_set_stat(struct rdma_hw_stats *stats, int index, u64 value);
const char *rsiw_iwcm_reason(int reason);
void *rsiw_cm_provider_data(struct rdma_cm_id *id);
const struct ib_qp *rsiw_cm_own_qp(const struct iw_cm_id *id);
void rsiw_netdev_info(const struct net_device *ndev, struct rsiw_netdev_info *info);
u32 rsiw_netdev_speed(struct net_device *ndev);
u32 rsiw_netdev_l3mdev(struct net_device *ndev);
size_t rsiw_netdev_gids(const struct net_device *ndev, u8 (*gids)[16], size_t max);
void rsiw_netdev_put(struct net_device *ndev);
struct net *rsiw_netdev_get_net(const struct net_device *ndev);
bool rsiw_netdev_hold_still(const struct net_device *ndev, const struct net *net);
void rsiw_netdev_let_move(void);
struct net_device *rsiw_notifier_netdev(void *data);
int rsiw_register_inet6addr_notifier(struct notifier_block *nb);
int rsiw_unregister_inet6addr_notifier(struct notifier_block *nb);
bool rsiw_link_register(struct rdma_link_ops *ops);
bool rsiw_module_present(const char *name);
bool rsiw_module_is(const void *module, const char *name);

#endif /* _RSIW_IB_H */
