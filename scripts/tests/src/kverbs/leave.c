// SPDX-License-Identifier: GPL-2.0
/*
 * A device goes, and a client that has not been told yet connects once more, as the NFS client does
 * whose connection has just been cut. What it gets must read as trouble with the network, which is
 * waited for; anything else goes to the program that writes to the mount. The same when the address
 * has gone: the end of this module asks, too.
 */
#include <linux/slab.h>

#include "kverbs.h"

static struct kv_pair *pair;

static int on_add(struct ib_device *device)
{
	return 0;
}

/* Clients are told in the reverse order of their registration: this one first. */
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
