/*
 * The simulated device's memory. Addresses are real addresses of the process, so a kernel that runs
 * on the host uses them directly.
 *
 * Handles of cuMemCreate are extents of two memory files, one for device pages and one for host
 * pages. A mapping is a MAP_SHARED mapping of its extent, which makes aliases real. Plain
 * allocations and pools live in an arena of addresses, which is inaccessible where nothing is
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

/* ---- address ranges ---- */

enum cudasim_range_kind {
    CUDASIM_RANGE_PLAIN,
    CUDASIM_RANGE_POOLED,
    CUDASIM_RANGE_PINNED,     /* cuMemHostAlloc */
    CUDASIM_RANGE_REGISTERED, /* cuMemHostRegister */
    CUDASIM_RANGE_MAPPED,     /* cuMemMap */
    CUDASIM_RANGE_MANAGED,    /* cuMemAllocManaged: bytes in host memory, which every device reaches */
    CUDASIM_RANGE_GLOBAL,     /* a variable of a module */
};

struct cudasim_range {
    uintptr_t base;
    size_t size;
    enum cudasim_range_kind kind;
    int device;
    uint32_t reached_by; /* of a mapping: the devices (bits) that cuMemSetAccess gave access */
    bool host;           /* the bytes are in host memory */
    bool open;           /* of a mapping of host memory: cuMemSetAccess gave the processor access */
    unsigned int flags;  /* of cuMemHostAlloc or cuMemHostRegister; of a mapping, its CUmemAccess_flags */
    uint64_t id;         /* CU_POINTER_ATTRIBUTE_BUFFER_ID: unique to each allocation */
    void *object;        /* a pool block, a handle, a variable's context, or a managed allocation */
};

/* Adds a range, which must not overlap another, and chooses its id. Returns 0 or -ENOMEM. */
int cudasim_range_add(struct cudasim_range range);
/* Returns the range that holds the address, or NULL. It is valid until the next add or remove. */
struct cudasim_range *cudasim_range_find(uintptr_t address);
/* Returns the first range that ends above the address, or NULL. */
struct cudasim_range *cudasim_range_above(uintptr_t address);
void cudasim_range_remove(uintptr_t base);

/*
 * Returns whether bytes at the address are in device memory. An address without memory in a
 * simulated range counts as device memory.
 */
bool cudasim_is_device(uintptr_t address);
/*
 * Returns whether the address is ordinary host memory, unknown to the driver. Copies from and to it
 * are staged.
 */
bool cudasim_is_pageable(uintptr_t address);
enum cudasim_direction cudasim_direction_of(uintptr_t to, uintptr_t from);

/* ---- bytes held ---- */

/*
 * Takes bytes of a device. Managed pages leave it where they must. Returns CUDA_ERROR_OUT_OF_MEMORY
 * when fewer bytes are left.
 */
CUresult cudasim_device_take(int device, enum cudasim_account account, size_t bytes);
void cudasim_device_give(int device, enum cudasim_account account, size_t bytes);
size_t cudasim_device_used(int device);
/* The same for managed pages that come to the device: no request, and no other pages leave. */
bool cudasim_device_take_pages(int device, size_t bytes);
/*
 * Returns the bytes that this process could take now. Other processes hold some, and a limit may
 * apply.
 */
size_t cudasim_device_free(int device);

/* ---- poison ---- */

/* Fills the bytes with poison. The caller may hold the lock or not. */
void cudasim_poison(void *at, size_t bytes);
/* Returns the number of whole pages in the bytes that hold only poison. */
uint64_t cudasim_poison_pages(const void *from, size_t bytes);

/* ---- the arena of plain and pooled allocations ---- */

/*
 * Returns addresses of whole pages of poisoned memory, followed by at least one inaccessible page;
 * 0 without memory.
 */
uintptr_t cudasim_arena_take(size_t bytes);
/* Makes the addresses inaccessible. They are reused as late as possible. */
void cudasim_arena_give(uintptr_t base, size_t bytes);

/* Frees every plain, pooled and managed allocation of the device, which must be idle. */
void cudasim_release_allocations(int device);

/* ---- pools ---- */

void cudasim_pool_block_poison(struct cudasim_pool_block *block);
/*
 * Returns whether the block was allocated in a capture and no graph has been launched since. The
 * driver does not know such memory, and its addresses are empty (measured: H100, driver 580).
 * [locked]
 */
bool cudasim_pool_block_awaits_graph(const struct cudasim_pool_block *block);
/*
 * Takes memory of the device's pool for a graph's node. Its addresses are empty until a launch.
 * NULL: no memory. May release the lock meanwhile. [locked]
 */
struct cudasim_pool_block *cudasim_pool_block_for_graph(CUcontext context, int device, size_t bytes);
/* Returns the graph's memory at an address for the one node that frees it, or NULL. [locked] */
struct cudasim_pool_block *cudasim_pool_block_freed_by_graph(uintptr_t address);
uintptr_t cudasim_pool_block_base(const struct cudasim_pool_block *block);
size_t cudasim_pool_block_bytes(const struct cudasim_pool_block *block);
/*
 * A launch of a graph makes its memory appear or go, in call order, node by node. False: the launch
 * fails, because the memory was there already, or was not (measured: H100, driver 580). Before the
 * first node each block remembers its state; after a failure that is restored. [locked]
 */
void cudasim_pool_block_remember(struct cudasim_pool_block *block);
bool cudasim_pool_block_appears(struct cudasim_pool_block *block, bool freed_by_launch);
bool cudasim_pool_block_goes(struct cudasim_pool_block *block);
void cudasim_pool_block_restore(struct cudasim_pool_block *block);
/*
 * Gives back the bytes that pools hold beyond their release thresholds. Called after a wait for a
 * stream, event or context.
 */
void cudasim_pools_trim_to_thresholds(void);
/*
 * Gives back all pooled bytes of one device that no allocation uses. Returns true when some were.
 */
bool cudasim_pools_release_idle(int device);
/* Returns the pool that the allocation comes from, or NULL. */
CUmemoryPool cudasim_pool_of(const struct cudasim_range *range);
/*
 * Frees a pooled allocation at once, whether or not it is in use. Returns false when the address is
 * not one.
 */
bool cudasim_pool_free_now(uintptr_t address);

#endif
