/*
 * Host memory that kernels read in place may hold tables of pointers, which the program writes without any call. So where a kernel is given a pointer to pinned
 * memory, what lies there is looked through when it is launched, and the launch is an access to the spans that are named. How much of it is looked through:
 * its first 512 bytes, each time; as far as tables reached in that allocation before, and as far again; and up to 256 KiB at the first launches with the allocation and at
 * every 256th later. Under the guard `unmap` it is 256 KiB each time, as what is not found faults there.
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
#include <stdint.h>
#include <stdbool.h>

#include "kernels/layouts.h"

extern atomic_bool ps_host_tables_seen;

/* Whether there may be any. Any thread, no lock. */
static inline bool ps_host_tables_exist(void)
{
    return atomic_load_explicit(&ps_host_tables_seen, memory_order_relaxed);
}

/*
 * Names what a kernel finds in the host memory that it is given, some of it more than once. `layout`: the kernel's, or NULL. True: there is such memory. Costs some
 * ns a pointer; a question to the driver for one that leads where none has led yet, some 100 ns; and some 100 ns for the look at host memory that holds no table.
 * Any thread, no lock; inside Penstock, in the context of the launch.
 */
bool ps_host_tables_name(const struct ps_layout *layout, void **parameters, void **extra, void (*name)(void *ctx, CUdeviceptr named),
                         void *ctx);

/* The bytes of host memory that were looked through so far. Any thread, no lock. */
uint64_t ps_host_tables_looked(void);

/* There is pinned or managed memory that was not there before. Any thread, no lock. */
void ps_host_tables_new_memory(void);

/*
 * Whether there have come to be any since this was asked last. What is away at that moment may lead nowhere, so the launch that comes next holds all spans
 * where they are, and what leads nowhere gets its slot. Any thread, no lock.
 */
bool ps_host_tables_take_news(void);

#endif
