// SPDX-License-Identifier: GPL-2.0
/*
 * A small MPI program that checks received data: messages of 1 octet to 4 MiB to the next rank,
 * many small ones whose receives are posted late, and collective operations. Prints "checked" last.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX (4 << 20)
#define FLOOD 256
#define FLOOD_SIZE 700

static int rank, ranks;

static void check(int right, const char *what, int number)
{
	if (right)
		return;
	fprintf(stderr, "FAIL: rank %d: %s %d\n", rank, what, number);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static uint8_t octet(int from, int number, int at)
{
	return from * 101 + number * 31 + at * 7 + (at >> 8);
}

static void fill(uint8_t *to, int length, int number)
{
	int i;

	for (i = 0; i < length; i++)
		to[i] = octet(rank, number, i);
}

static int is_from(const uint8_t *data, int length, int from, int number)
{
	int i;

	for (i = 0; i < length; i++)
		if (data[i] != octet(from, number, i))
			return 0;
	return 1;
}

static void exchange(uint8_t *out, uint8_t *in)
{
	int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
	int length, round;

	for (length = 1; length <= MAX; length *= 4)
		for (round = 0; round < 4; round++) {
			fill(out, length, round);
			MPI_Sendrecv(out, length, MPI_BYTE, next, round, in, length, MPI_BYTE, before, round,
				     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			check(is_from(in, length, before, round), "message of", length);
		}
}

/* All messages are sent before the first one is received. */
static void flood(uint8_t *out, uint8_t *in)
{
	int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
	MPI_Request requests[FLOOD];
	int i;

	for (i = 0; i < FLOOD; i++) {
		fill(out + i * FLOOD_SIZE, FLOOD_SIZE, i);
		MPI_Isend(out + i * FLOOD_SIZE, FLOOD_SIZE, MPI_BYTE, next, i, MPI_COMM_WORLD, &requests[i]);
	}
	usleep(200000);
	for (i = 0; i < FLOOD; i++) {
		MPI_Recv(in, FLOOD_SIZE, MPI_BYTE, before, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		check(is_from(in, FLOOD_SIZE, before, i), "message sent early", i);
	}
	MPI_Waitall(FLOOD, requests, MPI_STATUSES_IGNORE);
}

static void collective(void)
{
	enum { NUMBERS = 100000 };
	long *mine = malloc(NUMBERS * sizeof(long)), *sum = malloc(NUMBERS * sizeof(long));
	int i;

	check(mine && sum, "no memory", 0);
	for (i = 0; i < NUMBERS; i++)
		mine[i] = (long)i * (rank + 1);
	MPI_Allreduce(mine, sum, NUMBERS, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	for (i = 0; i < NUMBERS; i++)
		check(sum[i] == (long)i * ranks * (ranks + 1) / 2, "sum", i);
	for (i = 0; i < NUMBERS; i++)
		mine[i] = rank ? -1 : i;
	MPI_Bcast(mine, NUMBERS, MPI_LONG, 0, MPI_COMM_WORLD);
	for (i = 0; i < NUMBERS; i++)
		check(mine[i] == i, "broadcast", i);
	free(mine);
	free(sum);
}

int main(int argc, char **argv)
{
	uint8_t *out, *in;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	out = malloc(MAX);
	in = malloc(MAX);
	check(out && in, "no memory", 0);
	exchange(out, in);
	flood(out, in);
	collective();
	MPI_Barrier(MPI_COMM_WORLD);
	if (!rank)
		printf("checked\n");
	MPI_Finalize();
	return 0;
}
