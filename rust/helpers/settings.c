// SPDX-License-Identifier: GPL-2.0
/* Settings of a device: /sys/class/infiniband/NAME/rsiw/. */
#include <linux/capability.h>
#include <linux/device.h>
#include <linux/kstrtox.h>
#include <linux/sysfs.h>
#include <rdma/ib_verbs.h>

#include "ib.h"

/* A sysfs file, and the number of its setting. */
struct rsiw_setting {
	struct device_attribute attr;
	u32 number;
};

static rsiw_setting_get get;
static rsiw_setting_set set;

static u32 number_of(const struct device_attribute *attr)
{
	return container_of_const(attr, struct rsiw_setting, attr)->number;
}

static ssize_t setting_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	u32 value;
	int err;

	err = get(rdma_device_to_ibdev(dev), number_of(attr), &value);
	return err ?: sysfs_emit(buf, "%u\n", value);
}

static ssize_t setting_store(struct device *dev, struct device_attribute *attr, const char *buf,
			     size_t count)
{
	u32 value;
	int err;

	if (!capable(CAP_NET_ADMIN))
		return -EPERM;
	err = kstrtou32(buf, 0, &value);
	if (!err)
		err = set(rdma_device_to_ibdev(dev), number_of(attr), value);
	return err ?: count;
}

static struct rsiw_setting crc = {
	.attr = __ATTR(crc, 0644, setting_show, setting_store),
	.number = RSIW_SETTING_CRC,
};

static struct rsiw_setting doorbell_coalesce_usecs = {
	.attr = __ATTR(doorbell_coalesce_usecs, 0644, setting_show, setting_store),
	.number = RSIW_SETTING_DOORBELL_COALESCE_USECS,
};

static struct attribute *settings[] = {
	&crc.attr.attr,
	&doorbell_coalesce_usecs.attr.attr,
	NULL,
};

static const struct attribute_group group = {
	.name = "rsiw",
	.attrs = settings,
};

/* Adds the files to a device that is not registered yet. All devices have the same functions. */
void rsiw_device_settings(struct ib_device *dev, rsiw_setting_get getter, rsiw_setting_set setter)
{
	WRITE_ONCE(get, getter);
	WRITE_ONCE(set, setter);
	dev->ops.device_group = &group;
}
