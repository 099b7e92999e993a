// SPDX-License-Identifier: GPL-2.0
/*
 * A server that closes a connection may be about to close its listener, where svcrdma drops a
 * connection request that arrives in between. So no request is reported while the server destroys
 * a closed connection, however long the destruction takes. The request is reported soon after, if the
 * listener still exists.
 */
#include <linux/slab.h>

#include "kverbs.h"

#define HELD		(2 * HZ)	/* twice of what requests are held back without a queue pair */

static int hear(struct kv_pair *first, struct kv_pair *second, struct kv_end *closed)
{
	int err;

	rdma_disconnect(first->b.id);
	/* The next request is reported here. */
	*closed = first->b;
	memset(&first->b, 0, sizeof(first->b));
	init_completion(&first->b.established);
	init_completion(&first->b.last);
	err = kv_ask(second);
	if (err)
		goto out;
	if (wait_for_completion_timeout(&first->requested, HELD)) {
		pr_err("rsiw_kverbs_test: a request came while the user closes a connection\n");
		err = -EBUSY;
	}
out:
	kv_free_end(closed);
	if (err)
		return err;
	if (wait_for_completion_timeout(&first->requested, KV_WAIT))
		return first->status;
	pr_err("rsiw_kverbs_test: a request that was held back has not come\n");
	return -ETIMEDOUT;
}

int kv_held(const struct sockaddr *to)
{
	const struct kv_how how = { .poll = IB_POLL_WORKQUEUE };
	struct kv_pair *pairs = kcalloc(2, sizeof(*pairs), GFP_KERNEL);
	struct kv_end *closed = kzalloc(sizeof(*closed), GFP_KERNEL);
	int err = -ENOMEM;

	if (!pairs || !closed)
		goto out;
	err = kv_connect(&pairs[0], to, &how);
	if (err)
		goto out;
	err = kv_route_again(&pairs[1], &pairs[0], to, &how);
	err = err ?: hear(&pairs[0], &pairs[1], closed);
	/* The destruction of the accepting end refuses the request: the other end would wait for an answer. */
	kv_disconnect(&pairs[0]);
	kv_disconnect(&pairs[1]);
out:
	kfree(closed);
	kfree(pairs);
	return err;
}
