/*
 * The device that Penstock manages, and how its pages and the host's are made and mapped. Thin over the driver; no state but the constants.
 *
 * Threads: ps_device is filled once by ps_device_open and constant afterwards; the functions may be called from any thread, without the
 * registry lock (they are driver calls).
 */
#ifndef PS_DEVICE_MEMORY_H
#define PS_DEVICE_MEMORY_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/per_device.h"

#define PS_PEERS_MAX 16u /* devices that reach one device's spans, itself included */

struct ps_device_facts {
    int ordinal;
    CUcontext context;
    char name[128];
    uint64_t
        total_bytes;    /* that the process can have if nobody else has any: of the device, the MIG slice, or what it is allowed of them */
    size_t granularity; /* of device and host pages: the larger of the two */
    int numa_node;      /* of host pages; CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID */
    unsigned visible;   /* devices that the process sees */
};

/* Device pages of one handle. */
struct ps_page_part {
    CUmemGenericAllocationHandle handle;
    size_t bytes;
};

/* A span's device pages, side by side. The driver keeps them while anything is mapped to them, so they count as held until the last reference goes. */
struct ps_page_block {
    size_t bytes;
    uint32_t references; /* the span that has them, and each draining span that still maps them */
    bool ownerless;      /* only draining spans are left */
    uint32_t parts;
    struct ps_page_part part[];
};

extern PS_PER_DEVICE struct ps_device_facts ps_first_device;
#define ps_device PS_HERE(ps_first_device)

/*
 * Looks at the device of the calling thread's current context. 0; -ENODEV no context; -ENOSYS no virtual memory management or no host-backed
 * mappings, `*why` then says what is missing.
 */
int ps_device_open(const char **why);

/*
 * The program has let device `peer` use what lies on device `ordinal` (both as the process numbers them), which need not be managed yet. True: that is new.
 * What is mapped from here on lets it in where ps_device_let_peer_in was called too, at the device whose memory it is, or that is opened later.
 */
bool ps_device_note_peer(int ordinal, int peer);
void ps_device_let_peer_in(int peer); /* one thread at a time */

/* Whether that device reaches this one's spans: it is itself, or a peer that was let in. Any thread. */
bool ps_device_lets_in(int ordinal);

/* Device memory that is free now, by the driver; 0 if it can't be told. */
uint64_t ps_device_free_bytes(void);

/* Whether the pool is the device's default one, from which stream-ordered allocations come that name none. After ps_device_open. Any thread. */
bool ps_device_has_default_pool(CUmemoryPool pool);

/*
 * Whether that pool keeps what is freed until it is trimmed, rather than give it back to the device when somebody synchronises: its release threshold
 * (CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 0 unless the program sets it; torch's allocator sets the most there is) is no less than the device's memory. Asked once, and
 * again after ps_device_pools_changed, for when the program has set it. After ps_device_open. Any thread.
 */
bool ps_device_pool_keeps_all(void);
void ps_device_pools_changed(void);

/* Pages. `bytes` is a multiple of the granularity. 0, -ENOMEM, or another -errno. */
int ps_device_pages_create(size_t bytes, CUmemGenericAllocationHandle *pages);
int ps_host_pages_create(size_t bytes, CUmemGenericAllocationHandle *pages);
void ps_pages_release(CUmemGenericAllocationHandle pages);

/*
 * Maps all of `pages` from `address` on, or all of one handle, readable and writable by the device and its peers. The first goes past the copies of
 * evictions (copy_gate.h); the second does not: nobody waits for the host's. What is refused is tried once more. On failure nothing stays mapped.
 */
int ps_pages_map(CUdeviceptr address, const struct ps_page_block *pages);
int ps_handle_map(CUdeviceptr address, size_t bytes, CUmemGenericAllocationHandle handle);

/*
 * Waits on the host for the event, for so long at most, looking every few microseconds: for who may itself be what it waits for. 0; -ETIMEDOUT; other -errno.
 */
int ps_event_host_wait_at_most(CUevent event, uint64_t ns);

/*
 * Wait on the host until the event has come, or until all that is queued on a stream of ours is over. A wait that the driver refuses is no end: the event is
 * asked after then. 0: it is over; -errno: nobody can tell, so nothing that the work uses may be unmapped, released or used again.
 */
int ps_event_host_wait(CUevent event);
int ps_stream_host_wait(CUstream stream);

/* What is mapped there is readable and writable by the device and its peers as they are now. 0 or -errno. */
int ps_pages_give_access(CUdeviceptr address, size_t bytes);
int ps_pages_unmap(CUdeviceptr address, size_t bytes);

#endif
