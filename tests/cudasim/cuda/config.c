#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) && !defined(__SANITIZE_THREAD__)
#define __SANITIZE_THREAD__ 1
#endif
#endif

/*
 * ThreadSanitizer ends the process when a mapping leaves the address range that it knows (about 1.5
 * TiB). A smaller limit refuses such a reservation before that.
 */
#ifdef __SANITIZE_THREAD__
#define DEFAULT_RESERVE_LIMIT ((size_t)256 << 30)
#else
#define DEFAULT_RESERVE_LIMIT ((size_t)64 << 40)
#endif

static struct cudasim_config config;
static pthread_once_t config_once = PTHREAD_ONCE_INIT;

static void warn_value(const char *name, const char *value, const char *accepted)
{
    fprintf(stderr, "cudasim: %s=%s is not %s; the default is used\n", name, value, accepted);
}

/*
 * Reads bytes with an optional unit (K, M, G, T, each also as KiB, KB, ...). All are powers of 1024
 * here.
 */
static size_t read_bytes(const char *name, size_t fallback)
{
    const char *value = getenv(name);
    if (!value || !*value)
        return fallback;
    static const char units[] = "KMGT";
    char *end = NULL;
    errno = 0;
    double number = strtod(value, &end);
    if (errno || end == value || !(number >= 0)) {
        warn_value(name, value, "a number of bytes");
        return fallback;
    }
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (unit) {
        for (ptrdiff_t i = 0; i <= unit - units; i++)
            number *= 1024;
        end++;
        if (!strcmp(end, "iB") || !strcmp(end, "B"))
            end += strlen(end);
    } else if (!strcmp(end, "B")) {
        end++;
    }
    if (*end || number > 9e18) {
        warn_value(name, value, "a number of bytes");
        return fallback;
    }
    return (size_t)number;
}

static uint64_t read_number(const char *name, uint64_t fallback)
{
    const char *value = getenv(name);
    if (!value || !*value)
        return fallback;
    char *end = NULL;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 0);
    if (errno || *end || value[0] == '-') {
        warn_value(name, value, "a whole number");
        return fallback;
    }
    return number;
}

static double read_rate(const char *name)
{
    const char *value = getenv(name);
    if (!value || !*value)
        return 0;
    char *end = NULL;
    double number = strtod(value, &end);
    if (*end || !(number >= 0)) {
        warn_value(name, value, "a rate in GB/s");
        return 0;
    }
    return number;
}

/*
 * Returns a copy, which a later setenv of the program can't change. It lives until the process
 * ends.
 */
static const char *read_text(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? strdup(value) : NULL;
}

static void read_slice_way(void)
{
    const char *way = getenv("CUDASIM_SLICE_WAY");

    if (!way || !*way)
        way = "out";
    config.slice_out = !strcmp(way, "out") || !strcmp(way, "both");
    config.slice_in = !strcmp(way, "in") || !strcmp(way, "both");
    if (!config.slice_out && !config.slice_in) {
        warn_value("CUDASIM_SLICE_WAY", way, "out, in or both");
        config.slice_out = true;
    }
}

static void read_config(void)
{
    const char *scheduler = getenv("CUDASIM_SCHED");
    config.scheduler = CUDASIM_SCHEDULER_THREADS;
    if (scheduler && !strcmp(scheduler, "seeded"))
        config.scheduler = CUDASIM_SCHEDULER_SEEDED;
    else if (scheduler && *scheduler && strcmp(scheduler, "threads"))
        warn_value("CUDASIM_SCHED", scheduler, "threads or seeded");
    config.seed = read_number("CUDASIM_SEED", 0);
    config.device_bytes = read_bytes("CUDASIM_MEMORY", (size_t)2 << 30);
    config.limit_bytes = read_bytes("CUDASIM_LIMIT", config.device_bytes);
    config.others_bytes = read_bytes("CUDASIM_OTHERS", 0);
    config.others_from = read_number("CUDASIM_OTHERS_FROM", 0);
    config.host_handle_bytes = read_bytes("CUDASIM_HOST_MEMORY", (size_t)8 << 30);
    config.granularity = read_bytes("CUDASIM_GRANULARITY", (size_t)2 << 20);
    if (config.granularity < 4096 || (config.granularity & (config.granularity - 1))) {
        warn_value("CUDASIM_GRANULARITY", getenv("CUDASIM_GRANULARITY"), "a power of two of at least 4096");
        config.granularity = (size_t)2 << 20;
    }
    config.reserve_limit = read_bytes("CUDASIM_VA_LIMIT", DEFAULT_RESERVE_LIMIT);
    config.d2h_bytes_per_ns = read_rate("CUDASIM_D2H_GBPS");
    config.h2d_bytes_per_ns = read_rate("CUDASIM_H2D_GBPS");
    config.kernel_ns = read_number("CUDASIM_KERNEL_NS", 0);
    config.event_ns = read_number("CUDASIM_EVENT_NS", 0);
    config.launch_ns = read_number("CUDASIM_LAUNCH_NS", 0);
    config.queue = read_number("CUDASIM_QUEUE", 0);
    config.connections = read_number("CUDASIM_MAX_CONNECTIONS", 0);
    config.split_kernels = read_number("CUDASIM_SPLIT_KERNELS", 0) != 0;
    config.slice_ns = read_number("CUDASIM_SLICE_NS", 0);
    read_slice_way();
    config.patience_ns = read_number("CUDASIM_PATIENCE_MS", 5000) * 1000000u;
    config.devices = (int)read_number("CUDASIM_DEVICES", 1);
    if (read_number("CUDASIM_NO_DEVICE", 0))
        config.devices = 0;
    if (config.devices < 0 || config.devices > CUDASIM_MAX_DEVICES) {
        warn_value("CUDASIM_DEVICES", getenv("CUDASIM_DEVICES"), "0 to 8");
        config.devices = 1;
    }
    config.driver_version = (int)read_number("CUDASIM_DRIVER_VERSION", 0);
    config.peers = read_number("CUDASIM_PEERS", 0) != 0;
    config.vmm = read_number("CUDASIM_VMM", 1) != 0;
    config.host_vmm = read_number("CUDASIM_HOST_VMM", 1) != 0;
    config.faults = read_text("CUDASIM_FAULT");
    if (!config.faults)
        config.faults = "";
    config.costs = read_text("CUDASIM_CALL_NS");
    if (!config.costs)
        config.costs = "";
    config.ledger = read_text("CUDASIM_LEDGER");
    config.trace = read_text("CUDASIM_TRACE");
}

const struct cudasim_config *cudasim_config(void)
{
    pthread_once(&config_once, read_config);
    return &config;
}
