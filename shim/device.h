/*
 * The device that Penstock manages, and how its pages and the host's are made and mapped. Thin over the driver; no state but the constants.
 *
 * Threads: ps_device is filled once by ps_device_open and constant afterwards; the functions may be called from any thread, without the
 * registry lock (they are driver calls).
 */
#ifndef PS_DEVICE_H
#define PS_DEVICE_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ps_device {
    int ordinal;
    CUcontext context;
    char name[128];
    uint64_t
        total_bytes;    /* that the process can have if nobody else has any: of the device, the MIG slice, or what it is allowed of them */
    size_t granularity; /* of device and host pages: the larger of the two */
    int numa_node;      /* of host pages; CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID */
    bool several;       /* the process sees more than one device */
};

extern struct ps_device ps_device;

/*
 * Looks at the device of the calling thread's current context. 0; -ENODEV no context; -ENOSYS no virtual memory management or no host-backed
 * mappings, `*why` then says what is missing.
 */
int ps_device_open(const char **why);

/* Device memory that is free now, by the driver; 0 if it can't be told. */
uint64_t ps_device_free_bytes(void);

/* Whether the pool is the device's default one, from which stream-ordered allocations come that name none. After ps_device_open. Any thread. */
bool ps_device_has_default_pool(CUmemoryPool pool);

/* Pages. `bytes` is a multiple of the granularity. 0, -ENOMEM, or another -errno. */
int ps_device_pages_create(size_t bytes, CUmemGenericAllocationHandle *pages);
int ps_host_pages_create(size_t bytes, CUmemGenericAllocationHandle *pages);
void ps_pages_release(CUmemGenericAllocationHandle pages);

/* Maps all of `pages` at [address, address + bytes), readable and writable by the device. On failure nothing stays mapped. */
int ps_pages_map(CUdeviceptr address, size_t bytes, CUmemGenericAllocationHandle pages);
int ps_pages_unmap(CUdeviceptr address, size_t bytes);

#endif
