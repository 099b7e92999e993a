// SPDX-License-Identifier: GPL-2.0
/* Buffers of scattered pages, and random choices of their octets. */
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "kverbs.h"

static u64 state;

void kv_seed(u64 seed)
{
	state = seed;
}

static u64 next(void)
{
	u64 z = state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

u32 kv_below(u32 n)
{
	return n ? (u32)next() % n : 0;
}

void kv_random_bytes(void *to, size_t len)
{
	u8 *p = to;
	u64 word;

	for (; len >= 8; len -= 8, p += 8) {
		word = next();
		memcpy(p, &word, 8);
	}
	while (len--)
		*p++ = next();
}

int kv_buffer_alloc(struct kv_buffer *b)
{
	int i;

	memset(b, 0, sizeof(*b));
	for (i = 0; i < KV_PAGES; i++) {
		b->pages[i] = alloc_page(GFP_KERNEL);
		if (!b->pages[i])
			goto no_memory;
	}
	b->at = vmap(b->pages, KV_PAGES, VM_MAP, PAGE_KERNEL);
	b->want = vmalloc(KV_SIZE);
	if (!b->at || !b->want)
		goto no_memory;
	kv_buffer_reset(b);
	return 0;
no_memory:
	kv_buffer_free(b);
	return -ENOMEM;
}

void kv_buffer_free(struct kv_buffer *b)
{
	int i;

	vfree(b->want);
	vunmap(b->at);
	for (i = 0; i < KV_PAGES; i++)
		if (b->pages[i])
			__free_page(b->pages[i]);
	memset(b, 0, sizeof(*b));
}

void kv_buffer_reset(struct kv_buffer *b)
{
	memset(b->at, KV_GUARD, KV_SIZE);
	memset(b->want, KV_GUARD, KV_SIZE);
}

int kv_buffer_check(const struct kv_buffer *b, const char *what)
{
	u32 i;

	if (!memcmp(b->at, b->want, KV_SIZE))
		return 0;
	for (i = 0; b->at[i] == b->want[i]; i++)
		;
	pr_err("rsiw_kverbs_test: %s: octet %u is %02x, must be %02x\n", what, i, b->at[i], b->want[i]);
	return -EIO;
}

static void add(struct kv_layout *l, struct kv_buffer *b, u32 page, u32 offset, u32 len)
{
	sg_set_page(&l->sg[l->count], b->pages[page], len, offset);
	l->offset[l->count++] = page * PAGE_SIZE + offset;
	l->len += len;
}

static void begin(struct kv_layout *l)
{
	sg_init_table(l->sg, KV_MAX_SG);
	l->count = 0;
	l->len = 0;
}

/* A page list: only the first element may start, and only the last may end, inside a page. */
void kv_layout_pages(struct kv_layout *l, struct kv_buffer *b, u32 len)
{
	u32 offset = kv_below(PAGE_SIZE), page = kv_below(KV_PAGES - 2 - (offset + len) / PAGE_SIZE), part;

	begin(l);
	do {
		part = min_t(u32, len - l->len, PAGE_SIZE - offset);
		add(l, b, page++, offset, part);
		offset = 0;
	} while (l->len < len);
	sg_mark_end(&l->sg[l->count - 1]);
}

/* Elements of any length at any place of their pages; may stop short of @len when the pages run out. */
void kv_layout_gaps(struct kv_layout *l, struct kv_buffer *b, u32 len)
{
	u32 page = 0, offset, part;

	begin(l);
	do {
		offset = kv_below(3) ? kv_below(PAGE_SIZE) : 0;
		part = min_t(u32, len - l->len, 1 + kv_below(PAGE_SIZE - offset));
		add(l, b, page++, offset, part);
	} while (l->len < len && l->count < KV_MAX_SG && page < KV_PAGES);
	sg_mark_end(&l->sg[l->count - 1]);
}

void kv_layout_put(const struct kv_layout *l, u8 *to, const u8 *data)
{
	int i;

	for (i = 0; i < l->count; i++) {
		memcpy(to + l->offset[i], data, l->sg[i].length);
		data += l->sg[i].length;
	}
}
