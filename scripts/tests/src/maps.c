// SPDX-License-Identifier: GPL-2.0
#include "maps.h"
#include "pair.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int find_rings(struct ring *out)
{
	unsigned long from, to;
	uint64_t offset;
	char line[512];
	int n = 0;
	FILE *maps;

	maps = fopen("/proc/self/maps", "r");
	if (!maps)
		fail("/proc/self/maps: %s", strerror(errno));
	while (n < MAX_RINGS && fgets(line, sizeof(line), maps))
		if (strstr(line, "/infiniband/uverbs") &&
		    sscanf(line, "%lx-%lx rw%*s %" SCNx64, &from, &to, &offset) == 3)
			out[n++] = (struct ring){ .at = (uint8_t *)from, .size = to - from, .offset = offset };
	fclose(maps);
	return n;
}
