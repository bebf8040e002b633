#include "plan/layer_names.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/text_hash.h"
#include "cuda/driver.h"
#include "kernels/layouts.h"
#include "plan/layer_markers.h"
#include "policy/glob.h"

#define TABLE (2 * PS_LAYER_NAMES_MAX) /* a power of two; at most half full */

static struct ps_layer_name *_Atomic names[TABLE]; /* written under the lock; open addressing */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t count, unnumbered; /* guarded by the lock */
static _Atomic uint32_t step;

/* ---- reading a name ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static const char *const words[] = {"forward", "backward", "fwd", "bwd"};
static const enum penstock_direction directions[] = {PENSTOCK_DIRECTION_FORWARD, PENSTOCK_DIRECTION_BACKWARD,
                                                     PENSTOCK_DIRECTION_FORWARD, PENSTOCK_DIRECTION_BACKWARD};

/*
 * Returns whether a direction ends right before `at`. Digits there belong to it (AddmmBackward0).
 */
static bool ends_in_direction(const char *name, const char *at)
{
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t length = strlen(words[i]);
        if ((size_t)(at - name) >= length && strncasecmp(at - length, words[i], length) == 0)
            return true;
    }
    return false;
}

void ps_layer_names_read(const char *name, uint32_t *number, enum penstock_direction *direction)
{
    *number = PENSTOCK_NEVER;
    *direction = PENSTOCK_DIRECTION_NONE;
    for (const char *at = name; *at; at++) {
        if (is_digit(*at) && (at == name || !is_digit(at[-1])) && !ends_in_direction(name, at)) {
            uint64_t value = 0;
            for (const char *digit = at; is_digit(*digit) && value < PS_LAYERS_UNNUMBERED; digit++)
                value = value * 10 + (uint64_t)(*digit - '0');
            if (value < PS_LAYERS_UNNUMBERED)
                *number = (uint32_t)value;
        }
        /*
         * "bwd" inside a longer word is no direction. "Backward" at the end of a word is one
         * (ReluBackward).
         */
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
            size_t length = strlen(words[i]);
            bool whole = (at == name || !is_letter(at[-1])) && !is_letter(at[strnlen(at, length)]);
            bool of_a_compound = *at == 'F' || *at == 'B';
            if (strncasecmp(at, words[i], length) == 0 && (whole || of_a_compound))
                *direction = directions[i];
        }
    }
}

/* ---- keeping ---- */

static struct ps_layer_name *find(const char *text, uint64_t hash)
{
    for (uint64_t i = hash;; i++) {
        struct ps_layer_name *name = atomic_load_explicit(&names[i % TABLE], memory_order_acquire);
        if (!name || (name->hash == hash && !strcmp(name->text, text)))
            return name;
    }
}

/* Adds a name to the table. [locked] */
static struct ps_layer_name *add(const char *text, uint64_t hash)
{
    struct ps_layer_name *name;
    char *copy;
    uint64_t i = hash;

    if (count == PS_LAYER_NAMES_MAX) {
        ps_log_warn_once(TRACER,
                         "more than %u names of layers: the others are ignored (do the names of NVTX ranges "
                         "contain a running number?); PENSTOCK_LAYERS=nvtx:PATTERN chooses fewer",
                         PS_LAYER_NAMES_MAX);
        return NULL;
    }
    name = calloc(1, sizeof *name);
    copy = strdup(text);
    if (!name || !copy) {
        free(name);
        free(copy);
        return NULL;
    }
    name->text = copy;
    name->hash = hash;
    ps_layer_names_read(copy, &name->number, &name->direction);
    if (name->number == PENSTOCK_NEVER)
        name->number = PS_LAYERS_UNNUMBERED + unnumbered++;
    while (atomic_load_explicit(&names[i % TABLE], memory_order_relaxed))
        i++;
    atomic_store_explicit(&names[i % TABLE], name, memory_order_release);
    count++;
    return name;
}

struct ps_layer_name *ps_layer_name_keep(const char *text)
{
    uint64_t hash = ps_text_hash(text);
    struct ps_layer_name *name = find(text, hash);

    if (name)
        return name;
    pthread_mutex_lock(&lock);
    name = find(text, hash);
    if (!name)
        name = add(text, hash);
    pthread_mutex_unlock(&lock);
    return name;
}

enum penstock_direction ps_layer_name_next_direction(struct ps_layer_name *name)
{
    uint64_t now = (uint64_t)atomic_load_explicit(&step, memory_order_relaxed) << 32;
    uint64_t seen = atomic_load_explicit(&name->seen, memory_order_relaxed);
    uint64_t next;

    do {
        next = (seen >> 32 == now >> 32 ? seen : now) + 1;
    } while (
        !atomic_compare_exchange_weak_explicit(&name->seen, &seen, next, memory_order_relaxed, memory_order_relaxed));
    return next & 1 ? PENSTOCK_DIRECTION_FORWARD : PENSTOCK_DIRECTION_BACKWARD;
}

void ps_layer_names_step(void)
{
    atomic_fetch_add_explicit(&step, 1, memory_order_relaxed);
}

/* ---- kernels ---- */

/*
 * Names of kernels, by handle. A slot that another handle wants is overwritten: asking again costs
 * 1 us.
 */
struct kernel {
    CUfunction function;
    unsigned generation;              /* of the loaded modules: handles of an unloaded module may come again */
    const struct ps_layer_name *name; /* NULL: the kernel's name does not match */
};
#define KERNELS (1u << 12)
static struct kernel kernels[KERNELS]; /* guarded by kernel_lock */
static pthread_mutex_t kernel_lock = PTHREAD_MUTEX_INITIALIZER;

const struct ps_layer_name *ps_layer_name_of_kernel(CUfunction function, const char *pattern)
{
    struct kernel *kernel = &kernels[((uintptr_t)function >> 4) * 0x9E3779B97F4A7C15u >> 52];
    unsigned generation = ps_layouts_generation();
    const struct ps_layer_name *name = NULL;

    pthread_mutex_lock(&kernel_lock);
    bool known = kernel->function == function && kernel->generation == generation;
    if (known)
        name = kernel->name;
    pthread_mutex_unlock(&kernel_lock);
    if (known)
        return name;

    const char *text = ps_layouts_kernel_name(function);
    if (text && ps_glob_matches(pattern, text))
        name = ps_layer_name_keep(text);
    pthread_mutex_lock(&kernel_lock);
    *kernel = (struct kernel){function, generation, name};
    pthread_mutex_unlock(&kernel_lock);
    return name;
}

void ps_layer_names_in_child(void)
{
    pthread_mutex_init(&lock, NULL);
    pthread_mutex_init(&kernel_lock, NULL);
}
