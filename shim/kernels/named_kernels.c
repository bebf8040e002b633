#include "kernels/named_kernels.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernel_params.h"
#include "kernels/kernel_words.h"

/* Programs that make kernels all the time get no further places for names that no cubin has. */
#define NAMES_MAX (1u << 16)

#define BUCKETS (1u << 12)
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ps_named_kernel *kernels[BUCKETS];
static uint32_t names;     /* kernels that no cubin brought */
static bool is_one_unread; /* an image could not be read */

/* The images so far, by content. */
struct image {
    struct image *next;
    uint64_t digest;
    size_t bytes;
};
static struct image *images[BUCKETS];

static uint64_t hash_of(const char *text) /* FNV-1a */
{
    uint64_t h = 14695981039346656037u;

    while (*text)
        h = (h ^ (unsigned char)*text++) * 1099511628211u;
    return h;
}

static uint64_t digest_of(const unsigned char *image, size_t bytes)
{
    uint64_t digest = bytes, word = 0;
    size_t at = 0;

    for (; bytes - at >= sizeof word; at += sizeof word) {
        memcpy(&word, image + at, sizeof word);
        digest = (digest << 9 | digest >> 55) + ps_mixed_word(word);
    }
    word = 0;
    memcpy(&word, image + at, bytes - at);
    return (digest << 9 | digest >> 55) + ps_mixed_word(word);
}

/* ---- with the lock ---- */

static struct ps_named_kernel *find(const char *name, uint64_t hash)
{
    for (struct ps_named_kernel *k = kernels[hash % BUCKETS]; k; k = k->next)
        if (k->hash == hash && !strcmp(k->facts.scan.name, name))
            return k;
    return NULL;
}

/* Adds a kernel of which nothing is known. Returns NULL if there is no memory. */
static struct ps_named_kernel *add(const char *name, uint64_t hash)
{
    struct ps_named_kernel *k = calloc(1, sizeof *k);

    if (!k)
        return NULL;
    k->hash = hash;
    k->facts.scan = (struct ps_kernel_scan){.name = strdup(name), .doubt = PS_DOUBT_CODE};
    if (!k->facts.scan.name) {
        free(k);
        return NULL;
    }
    k->next = kernels[hash % BUCKETS];
    kernels[hash % BUCKETS] = k;
    return k;
}

static bool is_known_image(uint64_t digest, size_t bytes)
{
    for (const struct image *i = images[digest % BUCKETS]; i; i = i->next)
        if (i->digest == digest && i->bytes == bytes)
            return true;
    return false;
}

/* Without memory the image is read again when it comes again. */
static void note_image(uint64_t digest, size_t bytes)
{
    struct image *i = malloc(sizeof *i);

    if (!i)
        return;
    *i = (struct image){images[digest % BUCKETS], digest, bytes};
    images[digest % BUCKETS] = i;
}

/* ---- what a cubin tells ---- */

/* Sets the sizes of a kernel that has none. Returns 0 or -ENOMEM. */
static int set_sizes(struct ps_kernel_facts *facts, const struct ps_kernel_layout *layout)
{
    uint32_t *size = malloc((layout->count ? layout->count : 1) * sizeof *size);

    if (!size)
        return -ENOMEM;
    for (uint32_t i = 0; i < layout->count; i++)
        size[i] = layout->params[i].size;
    facts->size = size;
    facts->count = layout->count;
    facts->has_sizes = true;
    return 0;
}

static bool has_these_sizes(const struct ps_kernel_facts *facts, const struct ps_kernel_layout *layout)
{
    bool same = facts->count == layout->count;

    for (uint32_t i = 0; same && i < facts->count; i++)
        same = facts->size[i] == layout->params[i].size;
    return same;
}

/* The parser calls this for each kernel of a cubin. `ctx`: a bool, set if a given one changes. */
static int keep_layout(const struct ps_kernel_layout *layout, void *ctx)
{
    const uint64_t hash = hash_of(layout->name);
    int r = 0;

    pthread_mutex_lock(&lock);
    struct ps_named_kernel *k = find(layout->name, hash);
    if (!k)
        k = add(layout->name, hash);
    if (!k) {
        r = -ENOMEM;
    } else if (!k->facts.has_sizes) {
        r = set_sizes(&k->facts, layout);
        *(bool *)ctx |= k->is_given;
    } else if (!k->is_ambiguous && !has_these_sizes(&k->facts, layout)) {
        k->is_ambiguous = true;
        *(bool *)ctx |= k->is_given;
    }
    pthread_mutex_unlock(&lock);
    return r;
}

/* The scan calls this for each kernel of a cubin, and for functions that kernels call. */
static int keep_scan(const struct ps_kernel_scan *scan, void *ctx)
{
    pthread_mutex_lock(&lock);
    struct ps_named_kernel *k = find(scan->name, hash_of(scan->name));
    struct ps_kernel_scan *known = k ? &k->facts.scan : NULL;
    if (k && (!k->is_scanned || (!known->doubt && scan->doubt))) {
        *(bool *)ctx |= k->is_given && known->doubt != scan->doubt;
        known->doubt = scan->doubt;
        known->at = scan->at;
        known->instruction = scan->instruction;
        k->is_scanned = true;
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

int ps_named_kernels_add_cubin(const void *image, size_t bytes, bool *changed)
{
    const uint64_t digest = digest_of(image, bytes);

    pthread_mutex_lock(&lock);
    const bool is_known = is_known_image(digest, bytes);
    pthread_mutex_unlock(&lock);
    if (is_known)
        return 0;
    int r = ps_kernel_params_parse(image, bytes, keep_layout, changed);
    if (!r)
        r = ps_kernel_scan(image, bytes, keep_scan, changed);
    pthread_mutex_lock(&lock);
    if (!r)
        note_image(digest, bytes);
    else if (!is_one_unread)
        is_one_unread = *changed = true;
    pthread_mutex_unlock(&lock);
    return r;
}

struct ps_named_kernel *ps_named_kernel(const char *name, struct ps_kernel_facts *facts)
{
    const uint64_t hash = hash_of(name);

    *facts = (struct ps_kernel_facts){.scan.doubt = PS_DOUBT_CODE};
    pthread_mutex_lock(&lock);
    struct ps_named_kernel *k = find(name, hash);
    if (!k && names < NAMES_MAX && (k = add(name, hash)))
        names++;
    if (k) {
        k->is_given = true;
        *facts = k->facts;
        facts->has_sizes &= !k->is_ambiguous;
    }
    if (is_one_unread && !facts->scan.doubt)
        facts->scan.doubt = PS_DOUBT_CODE;
    pthread_mutex_unlock(&lock);
    return k;
}

int ps_named_kernels_each_used(ps_named_kernel_fn each, void *ctx)
{
    int r = 0;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < BUCKETS && !r; i++)
        for (struct ps_named_kernel *k = kernels[i]; k && !r; k = k->next) {
            const uint64_t uses = atomic_load_explicit(&k->uses, memory_order_relaxed);
            struct ps_kernel_scan scan = k->facts.scan;
            if (is_one_unread && !scan.doubt)
                scan.doubt = PS_DOUBT_CODE;
            if (uses)
                r = each(&scan, uses, ctx);
        }
    pthread_mutex_unlock(&lock);
    return r;
}
