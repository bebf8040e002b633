#include "hooks/program_mappings.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "base/bytes_text.h"
#include "base/counters.h"
#include "base/log.h"
#include "core/allocation.h"
#include "cuda/device_memory.h"
#include "cuda/devices.h"
#include "cuda/driver.h"
#include "cuda/managed_context.h"
#include "cuda/streams.h"
#include "cuda/uses.h"
#include "hooks/reclaim.h"
#include "hooks/requests.h"
#include "memory/blocks.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "process.h"
#include "residency/relocation.h"
#include "residency/residency.h"

/* An address range that the program has reserved. */
struct range {
    CUdeviceptr address;
    size_t bytes;
    size_t not_ours;        /* bytes of the range where CUDA's own memory is mapped */
    struct ps_block *block; /* the block of the allocations mapped here, if the range holds several; or NULL */
    LIST_ENTRY(range) all;
};

/*
 * Memory that the program has created. Its token is the address of this struct. The token ends when
 * it has been released as often as it was given. The memory may still be mapped then.
 */
struct memory {
    CUmemAllocationProp properties;
    size_t bytes;
    uint32_t references; /* releases still to come */
    bool is_real;        /* CUDA's own memory by now, with the handle `real`; the fields after that mean nothing then */
    CUmemGenericAllocationHandle real;
    CUdeviceptr address; /* where the memory lies */
    struct range *range; /* the range that holds these addresses; NULL: the memory has addresses of its own */
    bool mapped;         /* the program has it mapped at `address`; false before the first mapping and between two */
    bool has_bytes;      /* the program may have written to it */
    CUmemAccess_flags access; /* the access that the program gave the memory's own device */
    bool in_pieces;           /* was a block once; its spans are now pieces of a growing block, or of none */
    LIST_ENTRY(memory) all;
};

/* Guards the lists. A thread holds it while memory moves, which waits at most one second. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, range) ranges = LIST_HEAD_INITIALIZER(ranges);
static LIST_HEAD(, memory) memories = LIST_HEAD_INITIALIZER(memories);
static atomic_uint tokens; /* the number of `memories`; programs without any take no lock */

static CUresult result_of(int error)
{
    switch (error) {
    case 0:
        return CUDA_SUCCESS;
    case -ENOMEM:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case -EINVAL:
        return CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_UNKNOWN;
    }
}

/* ---- the lists: the caller holds the lock ---- */

static struct memory *memory_of(CUmemGenericAllocationHandle token)
{
    struct memory *m;

    LIST_FOREACH (m, &memories, all)
        if ((CUmemGenericAllocationHandle)(uintptr_t)m == token)
            break;
    return m;
}

/* Returns the managed memory at the address, mapped or not; or NULL. */
static struct memory *memory_at(CUdeviceptr address)
{
    struct memory *m;

    LIST_FOREACH (m, &memories, all)
        if (!m->is_real && address - m->address < m->bytes)
            break;
    return m;
}

static struct memory *mapped_at(CUdeviceptr address)
{
    struct memory *m = memory_at(address);

    return m && m->mapped ? m : NULL;
}

/* Returns the reservation that holds the whole stretch, or NULL. */
static struct range *range_of(CUdeviceptr address, size_t bytes)
{
    struct range *range;

    LIST_FOREACH (range, &ranges, all)
        if (address >= range->address && bytes <= range->bytes && address - range->address <= range->bytes - bytes)
            break;
    return range;
}

/* ---- memory: its end, and its other lives ---- */

static void forget(struct memory *m)
{
    LIST_REMOVE(m, all);
    atomic_fetch_sub(&tokens, 1);
    free(m);
}

static void free_spans(const struct memory *m)
{
    struct ps_managed_context context = ps_managed_context_enter_for(m->address);

    ps_allocation_free_all(m->address, m->bytes);
    ps_managed_context_leave(context);
}

/*
 * Ends the memory if the program has neither a handle nor a mapping of it. Once the memory is
 * CUDA's own, only handles count.
 */
static void end_if_unused(struct memory *m)
{
    if (m->references || (m->mapped && !m->is_real))
        return;
    if (m->is_real)
        ps_cu.cuMemRelease(m->real);
    else
        free_spans(m);
    forget(m);
}

/*
 * Waits for all the program's work. During a capture no wait for the device is possible. Then the
 * streams' events tell when the work from before the capture is over.
 */
static CUresult wait_for_program(void)
{
    const uint64_t ten_seconds = 10000000000u;
    struct ps_uses all = {.count = 0};
    int r = ps_managed_context_wait();
    if (r != -EBUSY)
        return result_of(r);
    ps_stream_settle(NULL);
    r = ps_uses_note_all_streams(&all) ? ps_uses_host_wait_for_queued(&all, ten_seconds) : -EBUSY;
    return r ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

/*
 * Two clocks: all work of the program is over. The host waits for the copy, which has a stream of
 * its own: the legacy stream may be barred by a capture. Returns CUDA_ERROR_UNKNOWN if the copy may
 * still run.
 */
static CUresult copy_now(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    CUstream stream;
    CUresult result = ps_cu.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0);

    if (result != CUDA_SUCCESS)
        return result;
    result = ps_cu.cuMemcpyAsync(to, from, bytes, stream);
    if (ps_stream_host_wait(stream))
        return CUDA_ERROR_UNKNOWN;
    ps_cu.cuStreamDestroy(stream);
    return result;
}

/*
 * Copies the bytes of spans to the memory of CUDA's that takes their place. First waits for all the
 * program's work, because no stream of the program orders this copy.
 */
static CUresult copy_to(CUmemGenericAllocationHandle real, const struct memory *m)
{
    CUdeviceptr there = 0;
    CUresult result = wait_for_program();
    size_t count = 0, room = m->bytes / ps_reservation.granularity + 1;
    struct ps_span **held = calloc(room, sizeof(struct ps_span *));

    if (result != CUDA_SUCCESS || !held ||
        (result = ps_cu.cuMemAddressReserve(&there, m->bytes, 0, 0, 0)) != CUDA_SUCCESS) {
        free(held);
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    }
    ps_registry_lock();
    for (CUdeviceptr at = m->address; at < m->address + m->bytes && count < room; at += held[count++]->bytes)
        if (!(held[count] = ps_registry_live_at(at)))
            break;
    ps_registry_unlock();
    ps_residency_hold(held, &count);
    ps_residency_settle(held, count, true);
    result = result_of(ps_handle_map(there, m->bytes, real));
    if (result == CUDA_SUCCESS) {
        result = copy_now(there, m->address, m->bytes);
        if (result == CUDA_ERROR_UNKNOWN) {
            free(held);
            /* The copy may still run: spans, pages and addresses stay as they are for good. */
            return result;
        }
        ps_pages_unmap(there, m->bytes);
    }
    ps_residency_let_go(held, count, NULL);
    ps_cu.cuMemAddressFree(there, m->bytes);
    free(held);
    return result;
}

/*
 * Moves the memory to addresses of its own, because its present ones are wanted for other memory.
 * Returns 0 or -errno. The thread is at the memory's device.
 */
static int go_elsewhere(struct memory *m)
{
    CUdeviceptr to = ps_relocation_take(m->bytes, 0);
    int r = to ? ps_relocation_move(m->address, m->bytes, to, NULL, false) : -ENOMEM;

    if (r && to)
        ps_relocation_give(to, m->bytes);
    if (r)
        return r;
    m->address = to;
    m->range = NULL;
    return 0;
}

/*
 * Clears the range of managed memory that is not mapped. Returns 0, -EINVAL if something is mapped
 * there, or another -errno. The context of the range's device is current; the thread goes there.
 */
static int make_way(CUdeviceptr address, size_t bytes)
{
    struct memory *m, *next;

    ps_devices_enter_address(address); /* what is mapped may have been a span of another device */
    for (m = LIST_FIRST(&memories); m; m = next) {
        next = LIST_NEXT(m, all);
        if (m->is_real || m->address >= address + bytes || address >= m->address + m->bytes)
            continue;
        int r = m->mapped ? -EINVAL : go_elsewhere(m);
        if (r)
            return r;
    }
    return ps_relocation_clear(address, bytes);
}

/* Maps CUDA's own memory. If the addresses are ours (`range`), first clears them. */
static CUresult map_real(struct range *range, CUdeviceptr address, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle real, unsigned long long flags)
{
    CUresult result = range ? result_of(make_way(address, bytes)) : CUDA_SUCCESS;

    if (result == CUDA_SUCCESS)
        result = ps_cu.cuMemMap(address, bytes, offset, real, flags);
    if (result == CUDA_SUCCESS && range) {
        range->not_ours += bytes;
        ps_block_has_hole(range->block);
    }
    return result;
}

/*
 * Makes the memory CUDA's own, and frees `m` if no handle is left. On failure the memory stays as
 * it was, with one exception. If mapping it again fails, it is CUDA's own but not mapped.
 */
static CUresult make_real(struct memory *m, const char *why)
{
    CUmemGenericAllocationHandle real;
    CUresult result = ps_cu.cuMemCreate(&real, m->bytes, &m->properties, 0);

    if (result == CUDA_ERROR_OUT_OF_MEMORY && ps_reclaim_for_others(m->bytes))
        result = ps_cu.cuMemCreate(&real, m->bytes, &m->properties, 0);
    if (result != CUDA_SUCCESS)
        return result;
    ps_log_warn_once(HOOKS,
                     "memory that the program maps itself (%s) %s: it is left to CUDA and does not move; a "
                     "`plain` rule of PENSTOCK_RULES with its size leaves it to CUDA from the start",
                     ps_bytes_text(m->bytes).text, why);
    struct ps_managed_context context = ps_managed_context_enter_for(m->address);
    if (m->has_bytes)
        result = copy_to(real, m);
    if (result == CUDA_SUCCESS) {
        ps_allocation_free_all(m->address, m->bytes);
        m->is_real = true;
        m->real = real;
        ps_count_passthrough(mapped);
        if (m->mapped)
            result = map_real(m->range, m->address, m->bytes, 0, real, 0);
        if (m->mapped && result == CUDA_SUCCESS)
            result = result_of(ps_pages_give_access(m->address, m->bytes));
    } else {
        ps_cu.cuMemRelease(real);
    }
    ps_managed_context_leave(context);
    if (m->is_real)
        end_if_unused(m);
    return result;
}

/*
 * Puts managed memory at addresses that the program has reserved. Returns 0 or -errno. The thread
 * is at the device of both.
 */
static int place(struct memory *m, struct range *range, CUdeviceptr address)
{
    /* Other memory may lie in the range too, and a tensor may lie across the border. */
    const bool shared = m->in_pieces || m->bytes != range->bytes;
    int r = 0;

    if (shared && !range->block && ps_budget.limit != UINT64_MAX) {
        ps_registry_lock();
        range->block = ps_block_new_growing(range->address, range->bytes);
        ps_registry_unlock();
        if (!range->block)
            return -ENOMEM;
        if (range->not_ours)
            ps_block_has_hole(range->block);
    }
    if (m->address != address) {
        const struct ps_span *span = ps_address_span(m->address);
        bool in_pieces = m->in_pieces || (shared && span && ps_block_whole(span));
        r = make_way(address, m->bytes);
        if (!r)
            r = ps_relocation_move(m->address, m->bytes, address, shared ? range->block : NULL, true);
        if (r)
            return r;
        m->in_pieces = in_pieces;
    }
    m->address = address;
    m->range = range;
    m->mapped = m->has_bytes = true;
    m->access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    ps_relocation_keep(address, m->bytes, true); /* until the program gives the device access */
    return 0;
}

/* ---- calls of the program ---- */

CUresult ps_program_mappings_create(CUmemGenericAllocationHandle *handle, size_t bytes,
                                    const CUmemAllocationProp *properties)
{
    struct memory *m = bytes % ps_reservation.granularity ? NULL : calloc(1, sizeof *m);

    if (!m)
        return PS_NOT_OURS;
    switch (ps_request_span_to_map(bytes, &m->address)) {
    case PS_REQUEST_SPAN:
        break;
    case PS_REQUEST_OUT_OF_MEMORY:
        free(m);
        return CUDA_ERROR_OUT_OF_MEMORY;
    default:
        free(m);
        return PS_NOT_OURS;
    }
    m->properties = *properties;
    m->bytes = bytes;
    m->references = 1;
    ps_count(mapped_by_program);
    atomic_fetch_add(&tokens, 1);
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)m;
    pthread_mutex_lock(&lock);
    LIST_INSERT_HEAD(&memories, m, all);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult ps_program_mappings_release(CUmemGenericAllocationHandle handle)
{
    CUresult result = PS_NOT_OURS;

    if (!atomic_load(&tokens))
        return result;
    pthread_mutex_lock(&lock);
    struct memory *m = memory_of(handle);
    if (m)
        result = m->references ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        m->references--;
        end_if_unused(m);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult ps_program_mappings_retain(CUmemGenericAllocationHandle *handle, CUdeviceptr address)
{
    if (!ps_address_is_a_spans(address))
        return PS_NOT_OURS;
    pthread_mutex_lock(&lock);
    struct memory *m = mapped_at(address);
    if (m) {
        m->references++;
        *handle = (CUmemGenericAllocationHandle)(uintptr_t)m;
    }
    pthread_mutex_unlock(&lock);
    if (m)
        return CUDA_SUCCESS;
    /* The handle of a span that the program did not map itself is Penstock's own. */
    bool hidden;
    return ps_program_mappings_knows(address, &hidden) ? CUDA_ERROR_INVALID_VALUE : PS_NOT_OURS;
}

/*
 * Returns the memory that was created last, if a reservation of `bytes` can get its addresses; or
 * NULL. The memory must be as large, still at addresses of its own, and aligned. The thread is at
 * the device; the caller holds the lock.
 */
static struct memory *just_created(size_t bytes, size_t alignment)
{
    struct memory *m = LIST_FIRST(&memories);

    if (!m || m->is_real || m->bytes != bytes || m->mapped || m->has_bytes || m->range ||
        (alignment && m->address % alignment))
        return NULL;
    return ps_address_device(m->address) == ps_address_device(ps_registry.start) ? m : NULL;
}

CUresult ps_program_mappings_reserve(CUdeviceptr *address, size_t bytes, size_t alignment)
{
    struct range *range = bytes % ps_reservation.granularity ? NULL : calloc(1, sizeof *range);

    if (!range)
        return PS_NOT_OURS;
    pthread_mutex_lock(&lock);
    struct memory *m = just_created(bytes, alignment);
    if (m) {
        m->range = range;
        ps_relocation_keep(m->address, bytes, true);
    }
    range->address = m ? m->address : ps_relocation_take(bytes, alignment);
    range->bytes = bytes;
    *address = range->address;
    if (range->address)
        LIST_INSERT_HEAD(&ranges, range, all);
    else
        free(range);
    pthread_mutex_unlock(&lock);
    return *address ? CUDA_SUCCESS : PS_NOT_OURS;
}

/* The caller holds the lock. */
static CUresult free_range(struct range *range)
{
    struct memory *m;

    LIST_FOREACH (m, &memories, all)
        if (!m->is_real && m->range == range && m->mapped)
            return CUDA_ERROR_INVALID_VALUE;
    LIST_FOREACH (m, &memories, all)
        if (m->range == range)
            m->range = NULL;
    struct ps_managed_context context = ps_managed_context_enter_for(range->address);
    ps_relocation_give(range->address, range->bytes);
    if (range->block) {
        ps_registry_lock();
        ps_block_end(range->block);
        ps_registry_unlock();
    }
    ps_managed_context_leave(context);
    LIST_REMOVE(range, all);
    free(range);
    return CUDA_SUCCESS;
}

CUresult ps_program_mappings_free_addresses(CUdeviceptr address, size_t bytes)
{
    CUresult result = PS_NOT_OURS;

    if (!ps_address_is_a_spans(address))
        return result;
    pthread_mutex_lock(&lock);
    struct range *range = range_of(address, 1);
    result = CUDA_ERROR_INVALID_VALUE;
    if (range && range->address == address && range->bytes == bytes && !range->not_ours)
        result = free_range(range);
    pthread_mutex_unlock(&lock);
    return result;
}

/* The caller holds the lock. */
static CUresult map(struct memory *m, struct range *range, CUdeviceptr address, size_t bytes, size_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    CUresult result = CUDA_SUCCESS;
    int r = -EXDEV;

    if (m && !m->is_real) {
        const char *why = "is mapped in part, or at addresses that are not managed";
        if (m->mapped)
            why = "is mapped twice";
        else if (range && bytes == m->bytes && !offset && !flags &&
                 ps_address_device(address) == ps_address_device(m->address))
            r = place(m, range, address);
        if (!r || r == -EINVAL)
            return result_of(r);
        result = make_real(m, why);
        if (result != CUDA_SUCCESS)
            return result;
    }
    return map_real(range, address, bytes, offset, m ? m->real : handle, flags);
}

CUresult ps_program_mappings_map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                                 unsigned long long flags)
{
    CUresult result = PS_NOT_OURS;
    const bool owned = ps_address_is_a_spans(address);

    if (!atomic_load(&tokens) && !owned)
        return result;
    pthread_mutex_lock(&lock);
    struct memory *m = memory_of(handle);
    struct range *range = range_of(address, bytes);
    if ((owned && !range) || (m && !m->references)) {
        /* Addresses of ours that the program has not reserved, or a handle that it has released. */
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (m || range) {
        struct ps_managed_context context = ps_managed_context_enter_for(range ? address : m->address);
        result = map(m, range, address, bytes, offset, handle, flags);
        ps_managed_context_leave(context);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* Returns where the next managed mapping begins, or `end`. The caller holds the lock. */
static CUdeviceptr next_mapped(CUdeviceptr address, CUdeviceptr end)
{
    const struct memory *m;
    CUdeviceptr next = end;

    LIST_FOREACH (m, &memories, all)
        if (!m->is_real && m->mapped && m->address >= address && m->address < next)
            next = m->address;
    return next;
}

/* The caller holds the lock. */
static CUresult unmap(struct range *range, CUdeviceptr address, size_t bytes)
{
    const CUdeviceptr end = address + bytes;
    CUdeviceptr next;

    /* Checks first that the range holds whole mappings only; otherwise nothing is unmapped. */
    for (CUdeviceptr at = address; at < end; at = next) {
        const struct memory *m = mapped_at(at);
        next = m ? m->address + m->bytes : next_mapped(at, end);
        if ((m && m->address != at) || next > end)
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (CUdeviceptr at = address; at < end; at = next) {
        struct memory *m = mapped_at(at);
        next = m ? m->address + m->bytes : next_mapped(at, end);
        if (m) {
            m->mapped = false;
            if (m->references)
                ps_relocation_keep(m->address, m->bytes, true);
            end_if_unused(m);
            continue;
        }
        CUresult result = ps_cu.cuMemUnmap(at, next - at);
        if (result != CUDA_SUCCESS)
            return result;
        range->not_ours -= next - at < range->not_ours ? next - at : range->not_ours;
    }
    return CUDA_SUCCESS;
}

CUresult ps_program_mappings_unmap(CUdeviceptr address, size_t bytes)
{
    if (!ps_address_is_a_spans(address))
        return PS_NOT_OURS;
    pthread_mutex_lock(&lock);
    struct range *range = range_of(address, bytes);
    CUresult result = range && bytes ? unmap(range, address, bytes) : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&lock);
    return result;
}

bool ps_program_mappings_is_ours(CUdeviceptr address, CUdeviceptr *end)
{
    if (!atomic_load(&tokens) || !ps_address_is_a_spans(address))
        return false;
    pthread_mutex_lock(&lock);
    const struct memory *m = mapped_at(address);
    CUdeviceptr until = m ? m->address + m->bytes : next_mapped(address, *end);
    pthread_mutex_unlock(&lock);
    if (until < *end)
        *end = until;
    return m != NULL;
}

bool ps_program_mappings_knows(CUdeviceptr address, bool *hidden)
{
    CUdeviceptr start;
    size_t bytes;
    int r = ps_residency_look_up(address, &start, &bytes);

    *hidden = r == -ENXIO;
    return r != -ENOENT;
}

void ps_program_mappings_set_access(CUdeviceptr address, CUmemAccess_flags access)
{
    pthread_mutex_lock(&lock);
    struct memory *m = mapped_at(address);
    if (m) {
        m->access = access;
        ps_relocation_keep(m->address, m->bytes, access == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    }
    pthread_mutex_unlock(&lock);
}

CUmemAccess_flags ps_program_mappings_access(CUdeviceptr address)
{
    pthread_mutex_lock(&lock);
    const struct memory *m = mapped_at(address);
    CUmemAccess_flags access = m ? m->access : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    pthread_mutex_unlock(&lock);
    return access;
}

CUresult ps_program_mappings_properties(CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle)
{
    if (!atomic_load(&tokens))
        return PS_NOT_OURS;
    pthread_mutex_lock(&lock);
    const struct memory *m = memory_of(handle);
    CUresult result = !m ? PS_NOT_OURS : m->references ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *properties = m->properties;
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult ps_program_mappings_real(CUmemGenericAllocationHandle handle, CUmemGenericAllocationHandle *real)
{
    CUresult result = CUDA_SUCCESS;

    *real = handle;
    if (!atomic_load(&tokens))
        return result;
    pthread_mutex_lock(&lock);
    struct memory *m = memory_of(handle);
    if (m && !m->references)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (m && !m->is_real)
        result = make_real(m, "is shared by its handle");
    if (m && result == CUDA_SUCCESS)
        *real = m->real;
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult ps_program_mappings_make_real(CUdeviceptr address, size_t bytes)
{
    CUresult result = CUDA_SUCCESS;
    const CUdeviceptr behind = address + (bytes ? bytes : 1);

    if (!atomic_load(&tokens) || !ps_address_is_a_spans(address))
        return result;
    pthread_mutex_lock(&lock);
    for (CUdeviceptr at = address; at < behind && result == CUDA_SUCCESS;) {
        struct memory *m = mapped_at(at);
        CUdeviceptr next = m ? m->address + m->bytes : next_mapped(at, behind);
        if (m)
            result = make_real(m, "is shared by its address");
        at = next;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static void disown(void)
{
    atomic_store(&tokens, 0);
}

__attribute__((constructor)) static void name_to_process(void)
{
    ps_process_when_forked(disown);
}
