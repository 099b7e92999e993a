// SPDX-License-Identifier: GPL-2.0
/*
 * Takes memory by COUNT completion queues of a million entries, which are 32 octets each. Prints
 * "made N" after each, or "refused: WHY" and makes no more. Keeps the queues until it is killed.
 *
 * usage: rings DEVICE COUNT
 */
#include "pair.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENTRIES 1000000

int main(int argc, char **argv)
{
	struct ibv_context *context = NULL;
	struct ibv_device **list;
	int i;

	if (argc != 3)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	list = ibv_get_device_list(NULL);
	for (i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), argv[1]))
			context = ibv_open_device(list[i]);
	if (!context)
		fail("no device %s", argv[1]);
	for (i = 1; i <= atoi(argv[2]); i++) {
		if (!ibv_create_cq(context, ENTRIES, NULL, NULL, 0)) {
			printf("refused: %s\n", strerror(errno));
			break;
		}
		printf("made %d\n", i);
	}
	printf("done\n");
	for (;;)
		pause();
}
