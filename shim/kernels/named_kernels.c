#include "kernels/named_kernels.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text_hash.h"
#include "kernels/kernel_params.h"
#include "kernels/kernel_words.h"

/*
 * Programs that make kernels all the time get no further places for names that no cubin has.
 * Cubins bring at most this many names; an image with more of them is one that can't be read.
 */
#define NAMES_MAX (1u << 16)
#define BROUGHT_MAX (1u << 20)

#define SOON_NS 100000000u

#define BUCKETS (1u << 12)
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf */
static struct ps_named_kernel *kernels[BUCKETS];
static uint32_t names, brought; /* kernels that no cubin has brought, and the others */
static atomic_bool has_missed;

/* The images so far, by content; guarded by `reading`. */
struct image {
    struct image *next;
    uint64_t digest;
    size_t bytes;
};
static struct image *images[BUCKETS];

static uint64_t digest_of(const unsigned char *image, size_t bytes)
{
    uint64_t digest = bytes, word;
    size_t at = 0;

    for (; bytes - at >= sizeof word; at += sizeof word) {
        memcpy(&word, image + at, sizeof word);
        digest = ps_mixed_word(digest ^ word);
    }
    word = 0;
    memcpy(&word, image + at, bytes - at);
    return ps_mixed_word(digest ^ word);
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

/* One image at a time. */
static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;
static uint64_t image_number; /* guarded by it */

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

/* Finds the kernel that a cubin has, or adds it. Returns NULL if it can't be kept. [locked] */
static struct ps_named_kernel *bring(const char *name)
{
    const uint64_t hash = ps_text_hash(name);
    struct ps_named_kernel *k = find(name, hash);

    if (k && k->is_asked_for) {
        k->is_asked_for = false;
        names--;
        brought++;
    } else if (!k && brought < BROUGHT_MAX && (k = add(name, hash))) {
        brought++;
    }
    return k;
}

/* The parser calls this for each kernel of a cubin. `ctx`: a bool, set if a given one changes. */
static int keep_layout(const struct ps_kernel_layout *layout, void *ctx)
{
    bool *changed = ctx;
    int r = 0;

    pthread_mutex_lock(&lock);
    struct ps_named_kernel *k = bring(layout->name);
    if (!k) {
        r = -ENOMEM;
    } else if (!k->facts.has_sizes) {
        r = set_sizes(&k->facts, layout);
        *changed |= k->is_given;
    } else if (!k->is_ambiguous && !has_these_sizes(&k->facts, layout)) {
        k->is_ambiguous = true;
        *changed |= k->is_given;
    }
    pthread_mutex_unlock(&lock);
    return r;
}

/* The first image sets what is known; a later one can only bring a doubt. [locked] */
static bool take_scan(struct ps_named_kernel *k, const struct ps_kernel_scan *scan)
{
    struct ps_kernel_scan *known = &k->facts.scan;
    const bool takes = !k->scanned_in || (!known->doubt && scan->doubt);
    const bool is_news = takes && known->doubt != scan->doubt;

    if (takes) {
        known->doubt = scan->doubt;
        known->at = scan->at;
        known->instruction = scan->instruction;
    }
    k->scanned_in = image_number;
    return is_news && k->is_given;
}

/*
 * The scan calls this for each kernel of a cubin, and for functions that kernels call. A doubt
 * counts although the image tells no layout: another image may have the name, too.
 */
static int keep_scan(const struct ps_kernel_scan *scan, void *ctx)
{
    pthread_mutex_lock(&lock);
    struct ps_named_kernel *k = scan->doubt ? bring(scan->name) : find(scan->name, ps_text_hash(scan->name));
    if (k)
        *(bool *)ctx |= take_scan(k, scan);
    pthread_mutex_unlock(&lock);
    return k || !scan->doubt ? 0 : -ENOMEM;
}

/* Doubts a kernel that has a layout in the image, and no code that the scan found. */
static int doubt_unscanned(const struct ps_kernel_layout *layout, void *ctx)
{
    pthread_mutex_lock(&lock);
    struct ps_named_kernel *k = find(layout->name, ps_text_hash(layout->name));
    if (k && k->scanned_in != image_number)
        *(bool *)ctx |= take_scan(k, &(struct ps_kernel_scan){.doubt = PS_DOUBT_CODE});
    pthread_mutex_unlock(&lock);
    return 0;
}

/* [reading] */
static int read_image(const void *image, size_t bytes, uint64_t digest, bool *changed)
{
    image_number++;
    int r = ps_kernel_params_parse(image, bytes, keep_layout, changed);
    if (!r)
        r = ps_kernel_scan(image, bytes, keep_scan, changed);
    if (!r)
        r = ps_kernel_params_parse(image, bytes, doubt_unscanned, changed);
    if (!r)
        note_image(digest, bytes);
    return r;
}

int ps_named_kernels_add_cubin(const void *image, size_t bytes, bool *changed)
{
    int r = -EINVAL;

    if (image) {
        const uint64_t digest = digest_of(image, bytes);
        pthread_mutex_lock(&reading);
        r = is_known_image(digest, bytes) ? 0 : read_image(image, bytes, digest, changed);
        pthread_mutex_unlock(&reading);
    }
    if (r)
        *changed |= ps_named_kernels_missed();
    return r;
}

bool ps_named_kernels_missed(void)
{
    return !atomic_exchange(&has_missed, true);
}

bool ps_named_kernels_have_missed(void)
{
    return atomic_load(&has_missed);
}

/* ---- what is known ---- */

/* [locked] */
static struct ps_kernel_scan scan_of(const struct ps_named_kernel *k)
{
    struct ps_kernel_scan scan = k->facts.scan;

    if (!scan.doubt && atomic_load(&has_missed))
        scan.doubt = PS_DOUBT_CODE;
    return scan;
}

struct ps_named_kernel *ps_named_kernel(const char *name, struct ps_kernel_facts *facts)
{
    const uint64_t hash = ps_text_hash(name);

    *facts = (struct ps_kernel_facts){.scan.doubt = PS_DOUBT_CODE};
    pthread_mutex_lock(&lock);
    struct ps_named_kernel *k = find(name, hash);
    if (!k && names < NAMES_MAX && (k = add(name, hash))) {
        k->is_asked_for = true;
        names++;
    }
    if (k) {
        k->is_given = true;
        *facts = k->facts;
        facts->has_sizes &= !k->is_ambiguous;
        facts->scan = scan_of(k);
    }
    pthread_mutex_unlock(&lock);
    return k;
}

void ps_named_kernel_is_another(struct ps_named_kernel *kernel)
{
    pthread_mutex_lock(&lock);
    if (!kernel->facts.scan.doubt)
        kernel->facts.scan.doubt = PS_DOUBT_CODE;
    pthread_mutex_unlock(&lock);
}

/* Waits for the lock, but not for ever. */
static bool lock_soon(void)
{
    const uint64_t since = ps_now_ns();

    do {
        if (!pthread_mutex_trylock(&lock))
            return true;
    } while (ps_sleep_within(since, SOON_NS, 100000));
    return false;
}

int ps_named_kernels_each_used(ps_named_kernel_fn each, void *ctx)
{
    int r = 0;

    if (!lock_soon())
        return -EAGAIN;
    for (size_t i = 0; i < BUCKETS && !r; i++)
        for (struct ps_named_kernel *k = kernels[i]; k && !r; k = k->next) {
            const uint64_t uses = atomic_load_explicit(&k->uses, memory_order_relaxed);
            const struct ps_kernel_scan scan = scan_of(k);
            if (uses)
                r = each(&scan, uses, ctx);
        }
    pthread_mutex_unlock(&lock);
    return r;
}
