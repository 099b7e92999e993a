// SPDX-License-Identifier: GPL-2.0
/*
 * A BPF program adds each TCP connection below a cgroup to a sockmap when it is established. An incoming
 * connection is not accepted at that time. A socket whose sk_user_data is set belongs to a kernel user,
 * and the kernel refuses to add it.
 *
 * usage: sockmap DIRECTORY
 *
 * DIRECTORY is one of cgroup2. Prints "attached" once a connection of its own is in the map, which proves
 * that the program runs. On SIGTERM it prints how many sockets were "taken" and how many "refused", and
 * detaches the program; the end of the process detaches it too.
 *
 * Status 4: this kernel has no BPF. The program uses bpf(2), since the guest has no libbpf.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pair.h"

#define MOST 4096		/* sockets in the map */
#define LOG 65536

enum { TAKEN, REFUSED, COUNTS };

#define INSN(c, d, s, o, i) \
	((struct bpf_insn){ .code = (c), .dst_reg = (d), .src_reg = (s), .off = (o), .imm = (i) })
#define SET(d, i)		INSN(BPF_ALU64 | BPF_MOV | BPF_K, d, 0, 0, i)
#define COPY(d, s)		INSN(BPF_ALU64 | BPF_MOV | BPF_X, d, s, 0, 0)
#define ADD(d, i)		INSN(BPF_ALU64 | BPF_ADD | BPF_K, d, 0, 0, i)
#define LOAD32(d, s, o)		INSN(BPF_LDX | BPF_MEM | BPF_W, d, s, o, 0)
#define STORE32(d, o, s)	INSN(BPF_STX | BPF_MEM | BPF_W, d, s, o, 0)
#define IF_EQUAL(d, i, o)	INSN(BPF_JMP | BPF_JEQ | BPF_K, d, 0, o, i)
#define UNLESS_EQUAL(d, i, o)	INSN(BPF_JMP | BPF_JNE | BPF_K, d, 0, o, i)
#define CALL(f)			INSN(BPF_JMP | BPF_CALL, 0, 0, 0, f)
#define COUNT(d, s)		INSN(BPF_STX | BPF_ATOMIC | BPF_DW, d, s, 0, BPF_ADD)
#define MAP(d, fd)		INSN(BPF_LD | BPF_IMM | BPF_DW, d, BPF_PSEUDO_MAP_FD, 0, fd), INSN(0, 0, 0, 0, 0)
#define LEAVE			INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)

static int bpf(int command, union bpf_attr *attr)
{
	return syscall(SYS_bpf, command, attr, sizeof(*attr));
}

static int make_map(uint32_t type, uint32_t entries)
{
	union bpf_attr attr;
	int fd;

	memset(&attr, 0, sizeof(attr));
	attr.map_type = type;
	attr.key_size = sizeof(uint32_t);
	/* With values of 64 bits a lookup in a map of sockets returns the cookie. */
	attr.value_size = sizeof(uint64_t);
	attr.max_entries = entries;
	fd = bpf(BPF_MAP_CREATE, &attr);
	if (fd < 0 && errno == ENOSYS)
		exit(4);
	if (fd < 0)
		fail("no map of type %u: %s", type, strerror(errno));
	return fd;
}

/* The BPF program: sockets[remote port] = this socket, at either end; counts[refused ? 1 : 0] += 1 */
static int load(int sockets, int counts)
{
	static char log[LOG];
	struct bpf_insn program[] = {
		COPY(6, 1),
		LOAD32(2, 6, offsetof(struct bpf_sock_ops, op)),
		IF_EQUAL(2, BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB, 1),
		UNLESS_EQUAL(2, BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB, 21),
		LOAD32(2, 6, offsetof(struct bpf_sock_ops, remote_port)),
		STORE32(10, -4, 2),
		COPY(1, 6),
		MAP(2, sockets),
		COPY(3, 10),
		ADD(3, -4),
		SET(4, BPF_ANY),
		CALL(BPF_FUNC_sock_hash_update),
		SET(7, TAKEN),
		IF_EQUAL(0, 0, 1),
		SET(7, REFUSED),
		STORE32(10, -4, 7),
		MAP(1, counts),
		COPY(2, 10),
		ADD(2, -4),
		CALL(BPF_FUNC_map_lookup_elem),
		IF_EQUAL(0, 0, 2),
		SET(1, 1),
		COUNT(0, 1),
		SET(0, 1),
		LEAVE,
	};
	union bpf_attr attr;
	int fd;

	memset(&attr, 0, sizeof(attr));
	attr.prog_type = BPF_PROG_TYPE_SOCK_OPS;
	attr.insns = (uintptr_t)program;
	attr.insn_cnt = sizeof(program) / sizeof(*program);
	attr.license = (uintptr_t)"GPL";
	attr.log_buf = (uintptr_t)log;
	attr.log_size = sizeof(log);
	attr.log_level = 1;
	fd = bpf(BPF_PROG_LOAD, &attr);
	if (fd < 0)
		fail("the program is not let in: %s\n%s", strerror(errno), log);
	return fd;
}

/* Attaches by a link, which the kernel detaches when this process ends. */
static int attach(int program, const char *directory)
{
	int cgroup = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd;
	union bpf_attr attr;

	if (cgroup < 0)
		fail("%s: %s", directory, strerror(errno));
	memset(&attr, 0, sizeof(attr));
	attr.link_create.prog_fd = program;
	attr.link_create.target_fd = cgroup;
	attr.link_create.attach_type = BPF_CGROUP_SOCK_OPS;
	fd = bpf(BPF_LINK_CREATE, &attr);
	if (fd < 0)
		fail("the program can not be attached to %s: %s", directory, strerror(errno));
	return fd;
}

static int look_up(int map, uint32_t key, uint64_t *value)
{
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.map_fd = map;
	attr.key = (uintptr_t)&key;
	attr.value = (uintptr_t)value;
	return bpf(BPF_MAP_LOOKUP_ELEM, &attr);
}

/* An ordinary connection is in the map, at its accepting end. */
static void prove(int sockets)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) }, from;
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0), accepted;
	uint64_t cookie = 0, found = 0;
	socklen_t len = sizeof(at), size = sizeof(cookie);

	if (bind(listener, (struct sockaddr *)&at, len) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&at, &len) ||
	    connect(client, (struct sockaddr *)&at, len) ||
	    getsockname(client, (struct sockaddr *)&from, &len))
		fail("no ordinary connection: %s", strerror(errno));
	accepted = accept(listener, NULL, NULL);
	if (accepted < 0 || getsockopt(accepted, SOL_SOCKET, SO_COOKIE, &cookie, &size))
		fail("no ordinary connection: %s", strerror(errno));
	/* The program sees the port as 32 bits in the order of the network. */
	if (look_up(sockets, htonl(ntohs(from.sin_port)), &found))
		fail("the program does not run: an ordinary connection is not in the map: %s", strerror(errno));
	if (found != cookie)
		fail("another socket is in the map: %lx, not %lx", (unsigned long)found, (unsigned long)cookie);
	close(accepted);
	close(client);
	close(listener);
}

static uint64_t count(int counts, uint32_t which)
{
	uint64_t value;

	if (look_up(counts, which, &value))
		fail("no count: %s", strerror(errno));
	return value;
}

int main(int argc, char **argv)
{
	int sockets, counts, link, number;
	sigset_t until;

	if (argc != 2)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	sigemptyset(&until);
	sigaddset(&until, SIGTERM);
	sigprocmask(SIG_BLOCK, &until, NULL);
	sockets = make_map(BPF_MAP_TYPE_SOCKHASH, MOST);
	counts = make_map(BPF_MAP_TYPE_ARRAY, COUNTS);
	link = attach(load(sockets, counts), argv[1]);
	prove(sockets);
	printf("attached\n");
	sigwait(&until, &number);
	close(link);
	printf("taken %lu\nrefused %lu\n", (unsigned long)count(counts, TAKEN), (unsigned long)count(counts, REFUSED));
	return 0;
}
