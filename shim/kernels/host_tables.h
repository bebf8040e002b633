/*
 * Tables of pointers in host memory. Kernels read such tables in place, and the program writes them
 * without any call. So if a kernel is given a pointer to pinned memory, its launch searches that
 * memory. The launch is an access to the spans whose addresses are found there. Each launch
 * searches twice as far as tables reached in that allocation before, and at least 512 bytes. The
 * first launches with the allocation, and every 256th later one, search up to 256 KiB. Under the
 * guard `unmap` each launch searches 256 KiB, because a span that is missed faults there.
 *
 * Later writes of the host, ahead of the device, are unknown. So are the contents of managed
 * memory, which is not searched because a search moves its pages. So from the first such kernel on,
 * the guard `auto` leads evicted spans to slots, wherever they were born (guard.h). The addresses
 * that a graph's kernels find there change from launch to launch. Such a graph holds every span in
 * its place.
 *
 * Kernels that are known to find no other spans in memory (known_kernels.h) don't count. A pointer
 * inside a structure is not followed. Accidental addresses there would slow down programs without
 * such tables.
 */
#ifndef PS_HOST_TABLES_H
#define PS_HOST_TABLES_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdbool.h>

#include "kernels/kernel_words.h"
#include "kernels/layouts.h"

extern atomic_bool ps_host_tables_seen;

/* Returns whether a kernel has been given host memory. Any thread, no lock. */
static inline bool ps_host_tables_exist(void)
{
    return atomic_load_explicit(&ps_host_tables_seen, memory_order_relaxed);
}

/*
 * Names the spans whose addresses a kernel finds in host memory that it is given, some more than
 * once. `layout`: the kernel's, or NULL. `others`: its words outside the spans, by ps_kernel_words;
 * or NULL. Returns true if the kernel is given such memory. Costs some ns for words that have come
 * before, and else some ns a pointer. A pointer to a place where none has led yet costs a question
 * to the driver, some 100 ns. A look at host memory that holds no table costs some 100 ns. Any
 * thread, no lock; inside Penstock, in the context of the launch.
 */
bool ps_host_tables_name(const struct ps_layout *layout, void **parameters, void **extra,
                         const struct ps_other_words *others, void (*name)(void *ctx, CUdeviceptr named), void *ctx);

/* Returns the bytes of host memory that were searched so far. Any thread, no lock. */
uint64_t ps_host_tables_looked(void);

/* The program has new pinned or managed memory. Any thread, no lock. */
void ps_host_tables_new_memory(void);

/*
 * Returns true from the first kernel that is given host memory until ps_host_tables_have_led. Spans
 * that are away then may lead nowhere. So each launch in that time holds all spans in their places,
 * and spans that lead nowhere get their slots. Any thread, no lock.
 */
extern atomic_bool ps_host_tables_led;
static inline bool ps_host_tables_must_lead(void)
{
    return ps_host_tables_exist() && !atomic_load_explicit(&ps_host_tables_led, memory_order_acquire);
}

/* Called when a launch has held all spans at all devices. A captured launch holds none. */
static inline void ps_host_tables_have_led(void)
{
    atomic_store_explicit(&ps_host_tables_led, true, memory_order_release);
}

#endif
