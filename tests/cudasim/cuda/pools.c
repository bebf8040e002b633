/*
 * Stream-ordered memory. A pool keeps freed blocks. An allocation reuses one when the free lies
 * before it in its own stream, or has already run. The free itself is an operation that fills the
 * block with poison. A use that is not ordered before the free then meets poison. Or it corrupts
 * the next owner, as on a device. A pool without cudaMemPoolReuseAllowOpportunistic may not give a
 * block to another stream just because its free has run. Such a pool leaves the block as it was.
 * Programs that free a little too early rely on that.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "config.h"
#include "capture.h"
#include "engine.h"
#include "entries.h"
#include "ledger.h"
#include "memory.h"

#define POOL_TAG 0x706f6f6cu
/* Block sizes are rounded up to this, so that a pool's blocks fit again. */
#define BLOCK_UNIT ((size_t)512)

struct cudasim_pool_block {
    CUmemoryPool pool;
    uintptr_t base;
    size_t bytes;  /* held bytes, rounded up */
    bool used;     /* between its allocation and its free, in call order */
    bool of_graph; /* allocated in a capture; the graph keeps its addresses for good */
    bool there;    /* for a graph's block: between the launch of its graph and its free, in call order */
    bool was_there;
    bool freed_in_graph;             /* a graph frees it: its own or another one */
    bool awaits_graph;               /* not launched since its capture: unknown to the driver, and without memory */
    struct cudasim_position free_at; /* for an unused block: the free that gave it back */
    LIST_ENTRY(cudasim_pool_block) link;
};

struct CUmemPoolHandle_st {
    uint32_t tag;
    int device;
    bool destroyed; /* goes with its last block */
    cuuint64_t threshold;
    int follow_events, allow_opportunistic, allow_dependencies;
    cuuint64_t reserved, reserved_high, used, used_high;
    LIST_HEAD(, cudasim_pool_block) blocks;
    LIST_ENTRY(CUmemPoolHandle_st) link;
};

static LIST_HEAD(, CUmemPoolHandle_st) pools = LIST_HEAD_INITIALIZER(pools);
static CUmemoryPool default_pools[CUDASIM_MAX_DEVICES];
static CUmemoryPool current_pools[CUDASIM_MAX_DEVICES];

static CUmemoryPool pool_new(int device)
{
    CUmemoryPool pool = calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    pool->tag = POOL_TAG;
    pool->device = device;
    pool->follow_events = pool->allow_opportunistic = pool->allow_dependencies = 1;
    LIST_INIT(&pool->blocks);
    LIST_INSERT_HEAD(&pools, pool, link);
    return pool;
}

static CUmemoryPool default_pool(int device)
{
    if (!default_pools[device])
        default_pools[device] = pool_new(device);
    return default_pools[device];
}

static CUmemoryPool current_pool(int device)
{
    return current_pools[device] ? current_pools[device] : default_pool(device);
}

static CUmemoryPool pool_of(CUmemoryPool handle)
{
    CUmemoryPool pool;
    LIST_FOREACH (pool, &pools, link)
        if (pool == handle)
            return pool->destroyed ? NULL : pool;
    return NULL;
}

void cudasim_pool_block_poison(struct cudasim_pool_block *block)
{
    cudasim_poison((void *)block->base, block->bytes);
}

/* ---- blocks ---- */

static void release_block(struct cudasim_pool_block *block)
{
    LIST_REMOVE(block, link);
    block->pool->reserved -= block->bytes;
    cudasim_arena_give(block->base, block->bytes);
    cudasim_device_give(block->pool->device, CUDASIM_ACCOUNT_POOL, block->bytes);
    free(block);
}

/*
 * Releases blocks whose free has run, until the pool holds at most `keep` bytes. Returns true when
 * a block was released.
 */
static bool trim(CUmemoryPool pool, cuuint64_t keep)
{
    bool released = false;
    struct cudasim_pool_block *block = LIST_FIRST(&pool->blocks);
    while (block && pool->reserved > keep) {
        struct cudasim_pool_block *next = LIST_NEXT(block, link);
        if (!block->used && cudasim_reached(block->free_at)) {
            release_block(block);
            released = true;
        }
        block = next;
    }
    return released;
}

static void forget_pool_if_empty(CUmemoryPool pool)
{
    if (!pool->destroyed || !LIST_EMPTY(&pool->blocks))
        return;
    LIST_REMOVE(pool, link);
    free(pool);
}

void cudasim_pools_trim_to_thresholds(void)
{
    CUmemoryPool pool = LIST_FIRST(&pools);
    while (pool) {
        CUmemoryPool next = LIST_NEXT(pool, link);
        trim(pool, pool->destroyed ? 0 : pool->threshold);
        forget_pool_if_empty(pool);
        pool = next;
    }
}

bool cudasim_pools_release_idle(int device)
{
    bool released = false;
    CUmemoryPool pool;
    LIST_FOREACH (pool, &pools, link)
        if (pool->device == device && trim(pool, 0))
            released = true;
    return released;
}

/*
 * Returns the smallest free block that the stream may use now, or NULL. It is at most twice as
 * large as needed.
 */
static struct cudasim_pool_block *reusable_block(CUmemoryPool pool, size_t bytes, CUstream stream)
{
    struct cudasim_pool_block *best = NULL, *block;
    LIST_FOREACH (block, &pool->blocks, link) {
        if (block->used || block->bytes < bytes || block->bytes / 2 > bytes || (best && best->bytes <= block->bytes))
            continue;
        if (block->free_at.stream == stream || (pool->allow_opportunistic && cudasim_reached(block->free_at)))
            best = block;
    }
    return best;
}

static struct cudasim_pool_block *new_block(CUmemoryPool pool, size_t bytes)
{
    struct cudasim_pool_block *block = calloc(1, sizeof *block);
    if (!block)
        return NULL;
    if (cudasim_device_take(pool->device, CUDASIM_ACCOUNT_POOL, bytes) != CUDA_SUCCESS) {
        free(block);
        return NULL;
    }
    block->base = cudasim_arena_take(bytes);
    if (!block->base) {
        cudasim_device_give(pool->device, CUDASIM_ACCOUNT_POOL, bytes);
        free(block);
        return NULL;
    }
    block->pool = pool;
    block->bytes = bytes;
    pool->reserved += bytes;
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
    LIST_INSERT_HEAD(&pool->blocks, block, link);
    return block;
}

/*
 * Finds or makes a block. On a full device it first releases idle blocks, and then waits for
 * pending frees.
 */
static struct cudasim_pool_block *obtain_block(CUmemoryPool pool, size_t bytes, CUstream stream)
{
    struct cudasim_pool_block *block = reusable_block(pool, bytes, stream);
    if (!block)
        block = new_block(pool, bytes);
    if (!block && cudasim_pools_release_idle(pool->device))
        block = new_block(pool, bytes);
    if (!block && cudasim_wait_context(cudasim_context_root(stream->context)) == CUDA_SUCCESS) {
        cudasim_pools_release_idle(pool->device);
        block = new_block(pool, bytes);
    }
    return block;
}

static CUresult allocate(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream)
{
    size_t bytes = (size + BLOCK_UNIT - 1) & ~(BLOCK_UNIT - 1);
    struct cudasim_pool_block *block = bytes < size ? NULL : obtain_block(pool, bytes, stream);
    if (!block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct cudasim_range range = {
        .base = block->base, .size = size, .kind = CUDASIM_RANGE_POOLED, .device = pool->device, .object = block};
    if (cudasim_range_add(range))
        return CUDA_ERROR_OUT_OF_MEMORY;
    block->used = true;
    pool->used += block->bytes;
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
    cudasim_ledger_object(CUDASIM_OBJECT_POOLED, 1);
    *address = (CUdeviceptr)block->base;
    return CUDA_SUCCESS;
}

static void set_access(const struct cudasim_pool_block *block, int protection)
{
    mprotect((void *)block->base, (block->bytes + CUDASIM_PAGE - 1) & ~(size_t)(CUDASIM_PAGE - 1), protection);
}

static void give_to_graph(struct cudasim_pool_block *block)
{
    block->of_graph = block->awaits_graph = true;
    cudasim_ledger_object(CUDASIM_OBJECT_POOLED, -1); /* nothing is there yet */
    block->pool->used -= block->bytes;                /* the pool does not use it either */
    set_access(block, PROT_NONE);
}

bool cudasim_pool_block_awaits_graph(const struct cudasim_pool_block *block)
{
    return block->awaits_graph;
}

void cudasim_pool_block_remember(struct cudasim_pool_block *block)
{
    block->was_there = block->there;
}

static void set_there(struct cudasim_pool_block *block, bool there)
{
    cudasim_ledger_object(CUDASIM_OBJECT_POOLED, there - block->there);
    block->there = there;
}

void cudasim_pool_block_restore(struct cudasim_pool_block *block)
{
    set_there(block, block->was_there);
}

bool cudasim_pool_block_appears(struct cudasim_pool_block *block, bool freed_by_launch)
{
    if (block->there && !freed_by_launch)
        return false;
    set_there(block, true);
    if (block->awaits_graph)
        set_access(block, PROT_READ | PROT_WRITE);
    block->awaits_graph = false;
    return true;
}

bool cudasim_pool_block_goes(struct cudasim_pool_block *block)
{
    const bool was_there = block->there;
    set_there(block, false);
    return was_there;
}

/* Queues an allocation or a free of a graph's memory, inside the graph or outside it. */
static CUresult submit(enum cudasim_operation_kind kind, struct cudasim_pool_block *block, CUstream stream)
{
    struct cudasim_operation *operation = cudasim_operation_new(kind);
    if (!operation)
        return CUDA_ERROR_OUT_OF_MEMORY;
    operation->call = cudasim_call_name();
    operation->pool_block = block;
    return cudasim_submit(operation, stream);
}

CUresult cudasim_cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
    if (!dptr || !bytesize)
        return CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    CUstream stream = cudasim_stream_resolve(hStream);
    CUresult result = stream ? cudasim_capture_uses(stream) : CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS && !pool_of(pool))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = cudasim_capture_allows_in_order(stream);
    if (result == CUDA_SUCCESS)
        result = allocate(dptr, bytesize, pool, stream);
    if (result == CUDA_SUCCESS && stream->capture) {
        struct cudasim_pool_block *block = cudasim_range_find((uintptr_t)*dptr)->object;
        give_to_graph(block);
        result = submit(CUDASIM_OPERATION_GRAPH_ALLOC, block, stream);
    }
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    cudasim_lock();
    CUstream stream = cudasim_stream_resolve(hStream);
    CUmemoryPool pool = stream ? current_pool(stream->context->device) : NULL;
    cudasim_unlock();
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    return pool ? cudasim_cuMemAllocFromPoolAsync(dptr, bytesize, pool, hStream) : CUDA_ERROR_OUT_OF_MEMORY;
}

static void leave_use(struct cudasim_pool_block *block)
{
    cudasim_range_remove(block->base);
    block->used = false;
    block->pool->used -= block->bytes;
    cudasim_ledger_object(CUDASIM_OBJECT_POOLED, -1);
}

static CUresult free_in_order(struct cudasim_pool_block *block, CUstream stream)
{
    struct cudasim_operation *operation = cudasim_operation_new(
        block->pool->allow_opportunistic ? CUDASIM_OPERATION_POOL_FREE : CUDASIM_OPERATION_MARKER);
    if (!operation)
        return CUDA_ERROR_OUT_OF_MEMORY;
    operation->call = cudasim_call_name();
    operation->pool_block = block;
    leave_use(block);
    block->free_at = (struct cudasim_position){stream, stream->issued + 1, stream->chain};
    return cudasim_submit(operation, stream);
}

struct cudasim_pool_block *cudasim_pool_block_for_graph(CUcontext context, int device, size_t bytes)
{
    CUdeviceptr address;
    if (allocate(&address, bytes, default_pool(device), context->legacy) != CUDA_SUCCESS)
        return NULL;
    struct cudasim_pool_block *block = cudasim_range_find((uintptr_t)address)->object;
    give_to_graph(block);
    return block;
}

struct cudasim_pool_block *cudasim_pool_block_freed_by_graph(uintptr_t address)
{
    const struct cudasim_range *range = cudasim_range_find(address);
    struct cudasim_pool_block *block =
        range && range->kind == CUDASIM_RANGE_POOLED && range->base == address ? range->object : NULL;
    if (!block || !block->of_graph || block->freed_in_graph)
        return NULL;
    block->freed_in_graph = true;
    return block;
}

uintptr_t cudasim_pool_block_base(const struct cudasim_pool_block *block)
{
    return block->base;
}

size_t cudasim_pool_block_bytes(const struct cudasim_pool_block *block)
{
    return block->bytes;
}

static CUresult free_in_graph(struct cudasim_pool_block *block, CUstream stream)
{
    if (!cudasim_pool_block_freed_by_graph(block->base))
        return CUDA_ERROR_INVALID_VALUE;
    return submit(CUDASIM_OPERATION_GRAPH_FREE, block, stream);
}

/* Frees a graph's memory outside the graph. The graph's next launch allocates it again. */
static CUresult free_from_outside(struct cudasim_pool_block *block, CUstream stream)
{
    if (!cudasim_pool_block_goes(block))
        return CUDA_ERROR_INVALID_VALUE;
    return submit(CUDASIM_OPERATION_GRAPH_FREE, block, stream);
}

static CUresult free_block(struct cudasim_pool_block *block, CUstream stream)
{
    if (stream->capture)
        return free_in_graph(block, stream);
    return block->of_graph ? free_from_outside(block, stream) : free_in_order(block, stream);
}

CUresult cudasim_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    CUstream stream;
    cudasim_lock();
    CUresult result = cudasim_stream_with_room(hStream, &stream);
    const struct cudasim_range *range = cudasim_range_find((uintptr_t)dptr);
    const bool is_pooled = range && range->kind == CUDASIM_RANGE_POOLED && range->base == (uintptr_t)dptr;
    bool is_plain = false;
    if (result == CUDA_SUCCESS && cudasim_context_root(stream->context)->sticky != CUDA_SUCCESS)
        result = cudasim_context_root(stream->context)->sticky;
    else if (result == CUDA_SUCCESS)
        result = cudasim_capture_uses(stream);
    if (result == CUDA_SUCCESS)
        result = cudasim_capture_allows_in_order(stream);
    if (result == CUDA_SUCCESS && is_pooled)
        result = free_block(range->object, stream);
    else if (result == CUDA_SUCCESS) {
        is_plain = !stream->capture;
        result = CUDA_ERROR_INVALID_VALUE;
    }
    cudasim_unlock();
    /* A plain allocation may be freed so too. The driver then frees it as cuMemFree does. */
    return is_plain ? cudasim_cuMemFree_v2(dptr) : result;
}

CUmemoryPool cudasim_pool_of(const struct cudasim_range *range)
{
    return range->kind == CUDASIM_RANGE_POOLED ? ((struct cudasim_pool_block *)range->object)->pool : NULL;
}

bool cudasim_pool_free_now(uintptr_t address)
{
    const struct cudasim_range *range = cudasim_range_find(address);
    if (!range || range->kind != CUDASIM_RANGE_POOLED || range->base != address)
        return false;
    struct cudasim_pool_block *block = range->object;
    if (block->of_graph) {
        if (!cudasim_pool_block_goes(block))
            return false;
        cudasim_pool_block_poison(block);
        return true;
    }
    leave_use(block);
    block->free_at = (struct cudasim_position){NULL, 0, 0};
    cudasim_pool_block_poison(block);
    return true;
}

/* ---- the pools themselves ---- */

CUresult cudasim_cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
    if (!pool_out || !cudasim_valid_device(dev))
        return pool_out ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    *pool_out = default_pool(dev);
    cudasim_unlock();
    return *pool_out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cudasim_cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
    if (!pool || !cudasim_valid_device(dev))
        return pool ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
    cudasim_lock();
    *pool = current_pool(dev);
    cudasim_unlock();
    return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cudasim_cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
    if (!cudasim_valid_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    cudasim_lock();
    CUmemoryPool found = pool_of(pool);
    if (found)
        current_pools[dev] = found;
    cudasim_unlock();
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cudasim_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
    if (!pool || !poolProps || poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !cudasim_valid_device(poolProps->location.id))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (poolProps->handleTypes || poolProps->maxSize || poolProps->usage)
        return CUDA_ERROR_NOT_SUPPORTED;
    cudasim_lock();
    *pool = pool_new(poolProps->location.id);
    cudasim_unlock();
    return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cudasim_cuMemPoolDestroy(CUmemoryPool pool)
{
    cudasim_lock();
    CUmemoryPool found = pool_of(pool);
    bool allowed = found && default_pools[found->device] != found;
    if (allowed) {
        found->destroyed = true;
        if (current_pools[found->device] == found)
            current_pools[found->device] = NULL;
        trim(found, 0);
        forget_pool_if_empty(found);
    }
    cudasim_unlock();
    return allowed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cudasim_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    cudasim_lock();
    CUmemoryPool found = pool_of(pool);
    if (found)
        trim(found, minBytesToKeep);
    cudasim_unlock();
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult set_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, const void *value)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        pool->follow_events = *(const int *)value;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        pool->allow_opportunistic = *(const int *)value;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        pool->allow_dependencies = *(const int *)value;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->threshold = *(const cuuint64_t *)value;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        if (*(const cuuint64_t *)value)
            return CUDA_ERROR_INVALID_VALUE;
        pool->reserved_high = pool->reserved;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (*(const cuuint64_t *)value)
            return CUDA_ERROR_INVALID_VALUE;
        pool->used_high = pool->used;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult get_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        *(int *)value = pool->follow_events;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        *(int *)value = pool->allow_opportunistic;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *(int *)value = pool->allow_dependencies;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *(cuuint64_t *)value = pool->threshold;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *(cuuint64_t *)value = pool->reserved;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *(cuuint64_t *)value = pool->reserved_high;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value = pool->used;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *(cuuint64_t *)value = pool->used_high;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cudasim_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    cudasim_lock();
    CUmemoryPool found = pool_of(pool);
    CUresult result = found && value ? set_attribute(found, attr, value) : CUDA_ERROR_INVALID_VALUE;
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    cudasim_lock();
    CUmemoryPool found = pool_of(pool);
    CUresult result = found && value ? get_attribute(found, attr, value) : CUDA_ERROR_INVALID_VALUE;
    cudasim_unlock();
    return result;
}

CUresult cudasim_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    cudasim_lock();
    CUmemoryPool found = pool_of(pool);
    cudasim_unlock();
    return found && (map || !count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cudasim_cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location)
{
    cudasim_lock();
    CUmemoryPool found = pool_of(memPool);
    cudasim_unlock();
    if (!found || !flags || !location)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
}
