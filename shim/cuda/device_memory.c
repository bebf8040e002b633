#include "cuda/device_memory.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/ordering_rules.h"
#include "base/per_device.h"
#include "cuda/copy_gate.h"
#include "cuda/driver.h"

PS_PER_DEVICE struct ps_device_facts ps_first_device;

static PS_PER_DEVICE struct {
    CUmemAllocationProp device_pages, host_pages;
    CUmemAccessDesc access[PS_PEERS_MAX]; /* devices that reach the mappings: the device and its peers */
    _Atomic uint32_t accesses;            /* the number of `access`; a new one is complete before it counts */
    /*
     * The value of pool_changes when the pool was last asked, times two; plus one if it keeps all.
     */
    _Atomic uint64_t pool_asked;
} first_dev;
#define dev (&PS_HERE(first_dev))

static int attribute(CUdevice_attribute which, CUdevice device)
{
    int value = 0;

    return ps_cu.cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

/* Peers by ordinal. They may be noted before their devices are managed, or without that. */
#define PEER_ORDINALS 64
static _Atomic uint64_t peers_of[PEER_ORDINALS]; /* for each device, a bit for each peer that may use its memory */

/* Gives a device access to the mappings that follow. One thread at a time. */
static void let_in(int ordinal)
{
    uint32_t n = atomic_load(&dev->accesses);

    for (uint32_t i = 0; i < n; i++)
        if (dev->access[i].location.id == ordinal)
            return;
    if (n == PS_PEERS_MAX)
        return;
    dev->access[n] = (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
                                       .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    atomic_store(&dev->accesses, n + 1);
}

bool ps_device_note_peer(int ordinal, int peer)
{
    if (ordinal < 0 || peer < 0 || ordinal >= PEER_ORDINALS || peer >= PEER_ORDINALS || ordinal == peer)
        return false;
    return !(atomic_fetch_or(&peers_of[ordinal], 1ull << peer) >> peer & 1);
}

void ps_device_let_peer_in(int peer)
{
    let_in(peer);
}

int ps_device_open(const char **why)
{
    struct ps_device_facts *d = &ps_device;
    CUdevice device;
    size_t total = 0, left = 0, device_unit = 0, host_unit = 0;
    int count = 0;

    *why = "there is no current CUDA context";
    if (ps_cu.cuCtxGetCurrent(&d->context) != CUDA_SUCCESS || !d->context)
        return -ENODEV;
    if (ps_cu.cuCtxGetDevice(&device) != CUDA_SUCCESS)
        return -ENODEV;
    *why = "the device has no virtual memory management";
    if (!attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device))
        return -ENOSYS;
    *why = "the device can't map host memory at device addresses (HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT)";
    if (!attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device))
        return -ENOSYS;

    d->ordinal = (int)device;
    if (ps_cu.cuDeviceGetName(d->name, sizeof d->name, device) != CUDA_SUCCESS)
        d->name[0] = 0;
    if (ps_cu.cuDeviceTotalMem(&total, device) == CUDA_SUCCESS)
        d->total_bytes = total;
    /* The context may be allowed less (MPS limits). */
    if (ps_cu.cuMemGetInfo(&left, &total) == CUDA_SUCCESS && total && total < d->total_bytes)
        d->total_bytes = total;
    if (ps_cu.cuDeviceGetCount(&count) == CUDA_SUCCESS)
        d->visible = count > 0 ? (unsigned)count : 1;
    d->numa_node = attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device);
    if (d->numa_node < 0)
        d->numa_node = 0;

    dev->device_pages.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    dev->device_pages.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    dev->device_pages.location.id = d->ordinal;
    dev->host_pages.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    dev->host_pages.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    dev->host_pages.location.id = d->numa_node;
    atomic_store(&dev->accesses, 0);
    let_in(d->ordinal);
    for (int peer = 0; d->ordinal < PEER_ORDINALS && peer < PEER_ORDINALS; peer++)
        if (atomic_load(&peers_of[d->ordinal]) >> peer & 1)
            let_in(peer);

    *why = "the driver does not report its page sizes";
    if (ps_cu.cuMemGetAllocationGranularity(&device_unit, &dev->device_pages, CU_MEM_ALLOC_GRANULARITY_MINIMUM) !=
        CUDA_SUCCESS)
        return -ENOSYS;
    if (ps_cu.cuMemGetAllocationGranularity(&host_unit, &dev->host_pages, CU_MEM_ALLOC_GRANULARITY_MINIMUM) !=
        CUDA_SUCCESS)
        return -ENOSYS;
    d->granularity = device_unit > host_unit ? device_unit : host_unit;
    if (!d->granularity || d->granularity & (d->granularity - 1))
        return -ENOSYS;
    *why = NULL;
    return 0;
}

bool ps_device_lets_in(int ordinal)
{
    for (size_t i = atomic_load(&dev->accesses); i-- > 0;)
        if (dev->access[i].location.id == ordinal)
            return true;
    return false;
}

uint64_t ps_device_free_bytes(void)
{
    size_t free_bytes = 0, total = 0;

    return ps_cu.cuMemGetInfo(&free_bytes, &total) == CUDA_SUCCESS ? free_bytes : 0;
}

bool ps_device_has_default_pool(CUmemoryPool pool)
{
    CUmemoryPool of_device = NULL;

    return ps_cu.cuDeviceGetDefaultMemPool &&
           ps_cu.cuDeviceGetDefaultMemPool(&of_device, ps_device.ordinal) == CUDA_SUCCESS && pool == of_device;
}

static _Atomic uint64_t pool_changes = 1; /* changes of any device's pool */

void ps_device_pools_changed(void)
{
    atomic_fetch_add(&pool_changes, 1);
}

bool ps_device_pool_keeps_all(void)
{
    /* Read before the pool is asked, so that a change meanwhile makes the answer an old one. */
    const uint64_t changes = atomic_load(&pool_changes),
                   asked = atomic_load_explicit(&dev->pool_asked, memory_order_relaxed);
    CUmemoryPool pool = NULL;
    cuuint64_t threshold = 0;

    if (asked >> 1 == changes)
        return asked & 1;
    bool keeps = ps_cu.cuMemPoolGetAttribute && ps_cu.cuDeviceGetDefaultMemPool &&
                 ps_cu.cuDeviceGetDefaultMemPool(&pool, ps_device.ordinal) == CUDA_SUCCESS &&
                 ps_cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold) == CUDA_SUCCESS &&
                 threshold >= ps_device.total_bytes;
    atomic_store_explicit(&dev->pool_asked, changes << 1 | keeps, memory_order_relaxed);
    return keeps;
}

int ps_device_pages_create(size_t bytes, CUmemGenericAllocationHandle *pages)
{
    return ps_cuda_errno(ps_cu.cuMemCreate(pages, bytes, &dev->device_pages, 0));
}

int ps_host_pages_create(size_t bytes, CUmemGenericAllocationHandle *pages)
{
    return ps_cuda_errno(ps_cu.cuMemCreate(pages, bytes, &dev->host_pages, 0));
}

void ps_pages_release(CUmemGenericAllocationHandle pages)
{
    if (ps_cu.cuMemRelease(pages) != CUDA_SUCCESS)
        ps_log_warn_once(RESIDENCY, "the driver could not release device pages: the device has less free memory "
                                    "until the program ends; set PENSTOCK_DISABLE=1 if that is too little");
}

int ps_pages_give_access(CUdeviceptr address, size_t bytes)
{
    int r = ps_cuda_errno(ps_cu.cuMemSetAccess(address, bytes, dev->access, atomic_load(&dev->accesses)));

    if (!r || atomic_load(&dev->accesses) == 1)
        return r;
    ps_log_warn_once(RESIDENCY,
                     "the driver does not let peers access spans of device %d (error %d); a peer's kernel that "
                     "tries fails; PENSTOCK_RULES='plain size>=...' leaves memory that peers use to CUDA",
                     ps_device.ordinal, -r);
    return ps_cuda_errno(ps_cu.cuMemSetAccess(address, bytes, dev->access, 1));
}

/*
 * The driver may grant a mapping a moment after it refused it. Without the mapping, the program
 * would lack memory or not find its bytes.
 */
static void rest_before_second_try(void)
{
    static const struct timespec a_moment = {.tv_nsec = 1000000};

    nanosleep(&a_moment, NULL);
}

static int map_handle(CUdeviceptr address, size_t bytes, CUmemGenericAllocationHandle pages)
{
    /* The driver maps whole handles only: it refuses an offset (shim/README.md#mapping-memory). */
    int r = ps_cuda_errno(ps_cu.cuMemMap(address, bytes, 0, pages, 0));

    if (r)
        return r;
    r = ps_pages_give_access(address, bytes);
    if (r)
        ps_cu.cuMemUnmap(address, bytes);
    return r;
}

int ps_handle_map(CUdeviceptr address, size_t bytes, CUmemGenericAllocationHandle pages)
{
    int r = map_handle(address, bytes, pages);

    if (!r)
        return 0;
    rest_before_second_try();
    return map_handle(address, bytes, pages);
}

/* Maps each part at its own addresses, then gives access to all of them at once. */
static int map_parts(CUdeviceptr address, const struct ps_pages *pages)
{
    size_t mapped = 0;
    int r = 0;

    for (uint32_t i = 0; !r && i < pages->parts; i++) {
        r = ps_cuda_errno(ps_cu.cuMemMap(address + mapped, pages->part[i].bytes, 0, pages->part[i].handle, 0));
        mapped += r ? 0 : pages->part[i].bytes;
    }
    if (!r)
        r = ps_pages_give_access(address, mapped);
    if (r && mapped)
        ps_pages_unmap(address, mapped);
    return r;
}

int ps_pages_map(CUdeviceptr address, const struct ps_pages *pages)
{
    bool shut = ps_copy_gate_shut();
    int r = map_parts(address, pages);

    if (r) {
        rest_before_second_try();
        r = map_parts(address, pages);
    }
    if (shut)
        ps_copy_gate_open();
    return r;
}

int ps_pages_unmap(CUdeviceptr address, size_t bytes)
{
    return ps_cuda_errno(ps_cu.cuMemUnmap(address, bytes));
}

int ps_event_host_wait_at_most(CUevent event, uint64_t ns)
{
    static const struct timespec a_moment = {.tv_nsec = 20000};
    const uint64_t since = ps_now_ns();
    CUresult result;

    while ((result = ps_cu.cuEventQuery(event)) == CUDA_ERROR_NOT_READY && ps_now_ns() - since < ns)
        nanosleep(&a_moment, NULL);
    if (result == CUDA_ERROR_NOT_READY)
        return -ETIMEDOUT;
    return result == CUDA_SUCCESS ? 0 : ps_event_host_wait(event); /* the query fails, but a wait may succeed */
}

int ps_event_host_wait(CUevent event)
{
    static const struct timespec a_moment = {.tv_nsec = 50000};
    CUresult result = ps_cu.cuEventSynchronize(event);

    if (result == CUDA_SUCCESS || !ps_ordering_rule(REFUSED_WAIT_IS_NO_END))
        return 0;
    /* After a wait that failed, the work may still run. */
    while ((result = ps_cu.cuEventQuery(event)) == CUDA_ERROR_NOT_READY)
        nanosleep(&a_moment, NULL);
    return ps_cuda_errno(result);
}

int ps_stream_host_wait(CUstream stream)
{
    CUevent event = NULL;

    if (ps_cu.cuStreamSynchronize(stream) == CUDA_SUCCESS)
        return 0;
    if (ps_cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC) != CUDA_SUCCESS)
        return -EIO;
    int r = ps_cuda_errno(ps_cu.cuEventRecord(event, stream));
    if (!r)
        r = ps_event_host_wait(event);
    ps_cu.cuEventDestroy(event);
    return r;
}
