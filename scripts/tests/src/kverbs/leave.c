// SPDX-License-Identifier: GPL-2.0
/*
 * A device is removed, and a client without the event yet connects again, as the NFS client does
 * after its connection is cut. The call returns an error of the network, upon which the NFS client
 * waits: any other error would reach the program that writes to the mount. The same holds without
 * the address, which the end of this module tries.
 */
#include <linux/slab.h>

#include "kverbs.h"

static struct kv_pair *pair;

static int on_add(struct ib_device *device)
{
	return 0;
}

/* Clients are notified in the reverse order of their registration: this one first. */
static void on_remove(struct ib_device *device, void *data)
{
	if (!pair || !pair->a.id || pair->a.id->device != device)
		return;
	pr_info("rsiw_kverbs_test: asked to connect, answer %d\n", kv_ask(pair));
	kv_disconnect(pair);
	kfree(pair);
	pair = NULL;
}

static struct ib_client client = { .name = "rsiw_kverbs_test", .add = on_add, .remove = on_remove };

int kv_leave(const struct sockaddr *to)
{
	const struct kv_how how = { .poll = IB_POLL_WORKQUEUE };
	int err;

	err = ib_register_client(&client);
	if (err)
		return err;
	pair = kzalloc_obj(*pair);
	err = pair ? kv_route(pair, to, &how) : -ENOMEM;
	if (err) {
		kfree(pair);
		pair = NULL;
		ib_unregister_client(&client);
	}
	return err;
}

void kv_leave_end(void)
{
	ib_unregister_client(&client);
}
