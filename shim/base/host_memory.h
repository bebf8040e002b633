/*
 * What host memory the machine and this process's cgroups have, and which NUMA node a GPU sits on. Reads small files of /proc and /sys with
 * open(2) and read(2); allocates nothing.
 *
 * Threads: no state; any thread, any time.
 *
 * Virtual machines with memory hot-plug start with a small MemTotal that grows as memory is used, so a figure read at start is no promise:
 * whoever sizes something by it looks again before giving up.
 */
#ifndef PS_HOST_MEMORY_H
#define PS_HOST_MEMORY_H

#include <stdint.h>

#define PS_HOST_MEMORY_NO_LIMIT UINT64_MAX

struct ps_host_memory {
    uint64_t machine_total;     /* MemTotal, bytes */
    uint64_t machine_available; /* MemAvailable, bytes */
    uint64_t cgroup_limit;      /* the least limit of this process's memory cgroup and its ancestors, bytes; NO_LIMIT if none */
    uint64_t cgroup_available;  /* the least of (limit - use that can't be reclaimed) over the same; NO_LIMIT if none */
};

/*
 * Reads all four. `root` is put before every path ("" for the real ones; tests give a directory with proc/ and sys/ in it).
 * Returns 0 or -errno when /proc/meminfo can't be read or makes no sense; a cgroup that can't be found counts as no limit.
 */
int ps_host_memory_read(const char *root, struct ps_host_memory *out);

/* The most that this process could ever have: the lesser of machine and cgroup. */
uint64_t ps_host_memory_total(const struct ps_host_memory *m);

/* What it could have now without pushing anything out. */
uint64_t ps_host_memory_available(const struct ps_host_memory *m);

/*
 * The NUMA node of a PCI device, named as the driver does (`0000:1b:00.0`, either case). Returns the node, or -ENODEV when the device isn't
 * there or the kernel knows no node for it (one-node machines often say -1), or -EINVAL for a name that is none.
 */
int ps_host_memory_numa_node(const char *root, const char *pci_device);

#endif
