/*
 * The host memory of the machine and of this process's cgroups, and the NUMA node of a GPU. The
 * functions read small files of /proc and /sys with open(2) and read(2), and allocate nothing.
 *
 * Threads: no state; any thread, any time.
 *
 * Virtual machines with memory hot-plug start with a small MemTotal, which grows as memory is used.
 * So a figure read at start may grow later. A caller that sizes something by it reads it again
 * before it gives up.
 */
#ifndef PS_HOST_MEMORY_H
#define PS_HOST_MEMORY_H

#include <stdint.h>

#define PS_HOST_MEMORY_NO_LIMIT UINT64_MAX

struct ps_host_memory {
    uint64_t machine_total;     /* MemTotal, bytes */
    uint64_t machine_available; /* MemAvailable, bytes */
    /* The least limit of this process's memory cgroup and its ancestors, bytes; NO_LIMIT if none */
    uint64_t cgroup_limit;
    /* The least of (limit - use that can't be reclaimed) over the same, bytes; NO_LIMIT if none */
    uint64_t cgroup_available;
};

/*
 * Reads all four fields. `root` is put before every path; it is "" for the real files. Tests give a
 * directory with proc/ and sys/ in it. Returns 0, or -errno when /proc/meminfo can't be read or
 * makes no sense. A cgroup that can't be found counts as no limit.
 */
int ps_host_memory_read(const char *root, struct ps_host_memory *out);

/* Returns the most bytes that this process could ever have: the lesser of machine and cgroup. */
uint64_t ps_host_memory_total(const struct ps_host_memory *m);

/* Returns the bytes that this process could have now without pushing anything out. */
uint64_t ps_host_memory_available(const struct ps_host_memory *m);

/*
 * Returns `most` bytes, or the largest power of two that is at most an eighth of the process's
 * address space (RLIMIT_AS), so that the program has the rest. `most` is a power of two.
 */
uint64_t ps_host_memory_addresses(uint64_t most);

/*
 * Returns the NUMA node of a PCI device, named as the driver does (`0000:1b:00.0`, either case).
 * -ENODEV: the device isn't there, or the kernel knows no node for it (one-node machines often say
 * -1). -EINVAL: the name is not that of a PCI device. -ENAMETOOLONG: `root` is too long.
 */
int ps_host_memory_numa_node(const char *root, const char *pci_device);

#endif
