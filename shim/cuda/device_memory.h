/*
 * The device that Penstock manages, and how its pages and host pages are made and mapped. This is a
 * thin layer over the driver. It keeps constants, the peers, and the last answer about the pool.
 *
 * Threads: ps_device is filled once by ps_device_open and constant afterwards. Any thread may call
 * the functions, without the registry lock, since they make driver calls.
 */
#ifndef PS_DEVICE_MEMORY_H
#define PS_DEVICE_MEMORY_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/per_device.h"

#define PS_PEERS_MAX 16u /* devices that reach one device's spans, including itself */

struct ps_device_facts {
    int ordinal;
    CUcontext context;
    char name[128];
    uint64_t total_bytes; /* the most the process can have: device, MIG slice or MPS limit */
    size_t granularity;   /* bytes; the larger of the two of device and host pages */
    int numa_node;        /* node of host pages; CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID */
    unsigned visible;     /* devices that the process sees */
};

/* Device pages of one handle. */
struct ps_page_part {
    CUmemGenericAllocationHandle handle;
    size_t bytes;
};

/*
 * A span's device pages, side by side. The driver keeps them while anything is mapped to them, so
 * they count as held until the last reference goes.
 */
struct ps_pages {
    size_t bytes;
    uint32_t references; /* their span, and each draining span that still maps them */
    bool ownerless;      /* only draining spans still map them */
    uint32_t parts;
    struct ps_page_part part[];
};

extern PS_PER_DEVICE struct ps_device_facts ps_first_device;
#define ps_device PS_HERE(ps_first_device)

/*
 * Fills ps_device for the device of the calling thread's current context. Returns 0, or -ENODEV
 * without a context. Returns -ENOSYS if virtual memory management or host-backed mappings are
 * missing. `*why` then says which is missing.
 */
int ps_device_open(const char **why);

/*
 * Notes that the program has let device `peer` use memory on device `ordinal`. Both are numbered as
 * the process numbers them, and `ordinal` need not be managed yet. Returns true if that is new. A
 * device that is opened later lets the peer in. On a device that is open, ps_device_let_peer_in
 * must be called too. Either lets the peer use memory that is mapped from then on.
 */
bool ps_device_note_peer(int ordinal, int peer);
/* Lets the peer into this device's spans that are mapped from now on. One thread at a time. */
void ps_device_let_peer_in(int peer);

/*
 * Returns whether that device reaches this one's spans: it is this one, or a peer that was let in.
 * Any thread.
 */
bool ps_device_lets_in(int ordinal);

/* Returns the bytes of device memory that are free, as the driver says; 0 if it can't tell. */
uint64_t ps_device_free_bytes(void);

/*
 * Returns whether the pool is the device's default pool. Stream-ordered allocations that name no
 * pool come from it. Called after ps_device_open. Any thread.
 */
bool ps_device_has_default_pool(CUmemoryPool pool);

/*
 * Returns whether the default pool keeps freed memory until it is trimmed. Otherwise the pool gives
 * memory back to the device when a thread synchronises. A pool that keeps it has a release
 * threshold of at least the device's memory. (CU_MEMPOOL_ATTR_RELEASE_THRESHOLD is 0 unless the
 * program sets it; torch's allocator sets the maximum.) The driver is asked once, and again after
 * ps_device_pools_changed. Called after ps_device_open. Any thread.
 */
bool ps_device_pool_keeps_all(void);

/* Called when the program has set a release threshold. Any thread. */
void ps_device_pools_changed(void);

/*
 * Makes device pages. `bytes` is a multiple of the granularity. Returns 0, -ENOMEM, or another
 * -errno.
 */
int ps_device_pages_create(size_t bytes, CUmemGenericAllocationHandle *pages);

/* The same for host pages. */
int ps_host_pages_create(size_t bytes, CUmemGenericAllocationHandle *pages);

/* Releases device pages or host pages. */
void ps_pages_release(CUmemGenericAllocationHandle pages);

/*
 * Maps all of `pages` from `address` on, readable and writable by the device and its peers. The
 * mapping goes past the copies of evictions (copy_gate.h). A refused call is tried once more. On
 * failure nothing stays mapped. Returns 0 or -errno.
 */
int ps_pages_map(CUdeviceptr address, const struct ps_pages *pages);

/*
 * The same for all of one handle. It does not go past copies, because nothing waits for host pages.
 */
int ps_handle_map(CUdeviceptr address, size_t bytes, CUmemGenericAllocationHandle handle);

/*
 * Waits on the host for the event for at most `ns`, and looks every few microseconds. It is for
 * callers that the event itself may wait for. Returns 0, -ETIMEDOUT, or another -errno.
 */
int ps_event_host_wait_at_most(CUevent event, uint64_t ns);

/*
 * Waits on the host until the event has come. If the driver refuses the wait, the event is queried
 * until it has come. Returns 0 when it is over. After -errno the state is unknown: the work's
 * memory must not be unmapped, released or used again.
 */
int ps_event_host_wait(CUevent event);

/* The same for all work that is queued on a stream of Penstock's. */
int ps_stream_host_wait(CUstream stream);

/*
 * Makes the mapped bytes readable and writable by the device and its present peers. Returns 0 or
 * -errno.
 */
int ps_pages_give_access(CUdeviceptr address, size_t bytes);

/* Unmaps the bytes. Returns 0 or -errno. */
int ps_pages_unmap(CUdeviceptr address, size_t bytes);

#endif
