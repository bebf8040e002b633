/*
 * Host memory that kernels read in place may hold tables of pointers, which the program writes without any call. So where a kernel is given a pointer to pinned
 * memory, what lies there is looked through when it is launched, and the launch is an access to the spans that are named.
 *
 * What the host writes there later, ahead of the device, and what managed memory holds, which isn't looked through (a look moves its pages), is not known. So from
 * the first such kernel on what is evicted leads to its slot under the guard `auto` as well, wherever it was born (guard.h). And what a graph's
 * kernels find there changes from launch to launch: such a graph holds every span in its place.
 *
 * Kernels of which it is known that they find no other spans in memory (known_kernels.h) don't count. A pointer inside a structure isn't looked for: what lies there by
 * accident would slow programs down that have no such table.
 */
#ifndef PS_HOST_TABLES_H
#define PS_HOST_TABLES_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "layouts.h"

extern atomic_bool ps_host_tables_seen;

/* Whether there may be any. Any thread, no lock. */
static inline bool ps_host_tables_exist(void)
{
    return atomic_load_explicit(&ps_host_tables_seen, memory_order_relaxed);
}

/*
 * Names what a kernel finds in the host memory that it is given, some of it more than once. `layout`: the kernel's, or NULL. True: there is such memory. Costs some
 * ns a pointer; a question to the driver for one that leads where none has led yet, some 100 ns; and some 10 us for the 256 KiB that are looked through at
 * most. Any thread, no lock; inside Penstock, in the context of the launch.
 */
bool ps_host_tables_name(const struct ps_layout *layout, void **parameters, void **extra, void (*name)(void *ctx, CUdeviceptr named),
                         void *ctx);

/* There is pinned or managed memory that was not there before. Any thread, no lock. */
void ps_host_tables_new_memory(void);

/*
 * Whether there have come to be any since this was asked last. What is away at that moment may lead nowhere, so the launch that comes next holds all spans
 * where they are, and what leads nowhere gets its slot. Any thread, no lock.
 */
bool ps_host_tables_take_news(void);

#endif
