/*
 * The simulated device's memory. Addresses are real addresses of the process, so a kernel run on
 * the host uses them directly.
 *
 * Handles of cuMemCreate are extents of two memory files, one for device pages and one for host
 * pages; mapping one is a MAP_SHARED mapping of its extent, which makes aliases real. Plain
 * allocations and pools live in an arena of addresses that is inaccessible where nothing is
 * allocated. New memory, and memory that comes back to a pool, is filled with poison: a word that
 * is a NaN as float, double, bfloat16 and half.
 *
 * All functions: under the device lock, unless they say otherwise.
 */
#ifndef CUDASIM_MEMORY_H
#define CUDASIM_MEMORY_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine.h"
#include "ledger.h"

#define CUDASIM_POISON 0xfffcdeadu
#define CUDASIM_PAGE 4096u

/* ---- what is where ---- */

enum cudasim_range_kind {
    CUDASIM_RANGE_PLAIN,
    CUDASIM_RANGE_POOLED,
    CUDASIM_RANGE_PINNED,     /* cuMemHostAlloc */
    CUDASIM_RANGE_REGISTERED, /* cuMemHostRegister */
    CUDASIM_RANGE_MAPPED,     /* cuMemMap */
};

struct cudasim_range {
    uintptr_t base;
    size_t size;
    enum cudasim_range_kind kind;
    int device;
    uint32_t reached_by; /* of a mapping: the devices (bits) that cuMemSetAccess let in */
    bool host;           /* the bytes are in host memory */
    unsigned int flags;  /* of cuMemHostAlloc or cuMemHostRegister; of a mapping, its CUmemAccess_flags */
    uint64_t id;         /* CU_POINTER_ATTRIBUTE_BUFFER_ID: never the same for two allocations */
    void *object;        /* a pool block or a handle */
};

/* Adds a range, which must not overlap another; its id is chosen here. 0 or -ENOMEM. */
int cudasim_range_add(struct cudasim_range range);
/* The range that holds the address, or NULL; valid until the next add or remove. */
struct cudasim_range *cudasim_range_find(uintptr_t address);
/* The first range that ends above the address, or NULL. */
struct cudasim_range *cudasim_range_above(uintptr_t address);
void cudasim_range_remove(uintptr_t base);

/*
 * Whether bytes at the address are in device memory; an address in a simulated range without memory
 * counts as device.
 */
bool cudasim_is_device(uintptr_t address);
/*
 * Whether the address is ordinary host memory that the driver knows nothing of: copies from and to
 * it are staged.
 */
bool cudasim_is_pageable(uintptr_t address);
enum cudasim_direction cudasim_direction_of(uintptr_t to, uintptr_t from);

/* ---- bytes held ---- */

/* Takes bytes of a device; CUDA_ERROR_OUT_OF_MEMORY when the device has not as many left. */
CUresult cudasim_device_take(int device, enum cudasim_account account, size_t bytes);
void cudasim_device_give(int device, enum cudasim_account account, size_t bytes);
size_t cudasim_device_used(int device);
/* What this process could take now: others hold some, and it may be allowed less than there is. */
size_t cudasim_device_free(int device);

/* ---- poison ---- */

/* Without the lock or with it. */
void cudasim_poison(void *at, size_t bytes);
/* How many whole pages of the bytes are nothing but poison. */
uint64_t cudasim_poison_pages(const void *from, size_t bytes);

/* ---- the arena of plain and pooled allocations ---- */

/*
 * Addresses with poisoned memory behind them, whole pages, followed by at least one inaccessible
 * page; 0 without memory.
 */
uintptr_t cudasim_arena_take(size_t bytes);
/* Makes the addresses inaccessible; they are used again as late as possible. */
void cudasim_arena_give(uintptr_t base, size_t bytes);

/* Frees every plain and pooled allocation of the device, which is idle. */
void cudasim_release_allocations(int device);

/* ---- pools ---- */

void cudasim_pool_block_poison(struct cudasim_pool_block *block);
/*
 * Memory that was allocated in a capture is not known to the driver, nor there, until a graph is
 * launched (measured: H100, driver 580). [locked]
 */
bool cudasim_pool_block_awaits_graph(const struct cudasim_pool_block *block);
/*
 * Memory of a graph that is being launched, in call order, node by node: it appears, or goes.
 * False: the launch fails, since it was there already, or was not (measured: H100, driver 580).
 * Before the first node each block remembers how it is, and after a failure is that again. [locked]
 */
void cudasim_pool_block_remember(struct cudasim_pool_block *block);
bool cudasim_pool_block_appears(struct cudasim_pool_block *block, bool freed_by_launch);
bool cudasim_pool_block_goes(struct cudasim_pool_block *block);
void cudasim_pool_block_restore(struct cudasim_pool_block *block);
/*
 * Gives back what pools hold beyond their release thresholds; called when a stream, event or
 * context was waited for.
 */
void cudasim_pools_trim_to_thresholds(void);
/*
 * Gives back everything that no allocation uses, of one device. True when something was given back.
 */
bool cudasim_pools_release_idle(int device);
/* Frees a pooled allocation at once; the device is idle. False when the address is none. */
bool cudasim_pool_free_now(uintptr_t address);

#endif
