// SPDX-License-Identifier: GPL-2.0
/*
 * Request and response over TCP: the latency a program gets from sockets.
 *
 *   tcp_rr server PORT
 *   tcp_rr client ADDRESS PORT OCTETS COUNT    half of the round trip in microseconds: the median,
 *                                              and what 99 % stay below
 *
 * Both ends poll, as perftest's latency programs do.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

/* Reads len octets; false at the stream's end. */
static int get(int fd, char *buf, size_t len)
{
	while (len) {
		ssize_t n = recv(fd, buf, len, MSG_DONTWAIT);

		if (n == 0)
			return 0;
		if (n < 0 && errno != EAGAIN)
			fail("recv");
		if (n > 0) {
			buf += n;
			len -= n;
		}
	}
	return 1;
}

static void put(int fd, const char *buf, size_t len)
{
	if (send(fd, buf, len, 0) != (ssize_t)len)
		fail("send");
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1, count, i;
	static char buf[65536];
	unsigned int size;
	double *times;

	if (fd < 0)
		fail("socket");
	if (argc == 3 && !strcmp(argv[1], "server")) {
		int peer;

		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		addr.sin_port = htons(atoi(argv[2]));
		if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) || listen(fd, 1))
			fail("listen");
		peer = accept(fd, NULL, NULL);
		if (peer < 0)
			fail("accept");
		setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		/* The first four octets are the size of a request. */
		if (!get(peer, (char *)&size, sizeof(size)) || size > sizeof(buf))
			fail("size");
		while (get(peer, buf, size))
			put(peer, buf, size);
		return 0;
	}
	if (argc != 6)
		return 2;
	addr.sin_port = htons(atoi(argv[3]));
	inet_pton(AF_INET, argv[2], &addr.sin_addr);
	size = atoi(argv[4]);
	count = atoi(argv[5]);
	times = calloc(count, sizeof(*times));
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) || !times || size > sizeof(buf))
		fail("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	put(fd, (char *)&size, sizeof(size));
	for (i = 0; i < count; i++) {
		double begun = now();

		put(fd, buf, size);
		if (!get(fd, buf, size))
			fail("closed");
		times[i] = (now() - begun) / 2;
	}
	qsort(times, count, sizeof(*times), compare);
	printf("%.2f %.2f\n", times[count / 2], times[count * 99 / 100]);
	return 0;
}
