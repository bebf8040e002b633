/*
 * The live page: what a process under Penstock tells of itself while it runs, as a file that anybody of the same user may map or read. `penstock top`
 * does. This header is all that a reader needs (with live.def); live_directory.h says where the files are and whose.
 *
 * The file has a fixed layout: a header, which is constant once the magic is there but for the facts of devices that come later, then a record of the
 * process and one of each device. Native byte order, 8-byte fields. Another layout is another version: what stands in the first 16 bytes never changes.
 *
 * Records are seqlocks: the writer makes `sequence` odd, writes, and makes it even again; who reads looks at it before and after, and tries again when
 * it was odd or has changed. Nobody waits for a reader. No fences, which ThreadSanitizer does not know: each word is stored with release and loaded
 * with acquire order instead, which on x86-64 is what plain moves do. Who reads a word of a later write has then seen that write's odd number too.
 *
 * Threads: one writer a record; any number of readers, in any process.
 */
#ifndef PS_LIVE_PAGE_H
#define PS_LIVE_PAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PS_LIVE_MAGIC "PENSTOCK" /* 8 bytes, without the NUL */
#define PS_LIVE_VERSION 1u
#define PS_LIVE_DEVICES_MAX 16u
#define PS_LIVE_RECENT 8u /* steps whose times are told */
#define PS_LIVE_RECORD_WORDS 63u
#define PS_LIVE_NO_RANK UINT64_MAX

/* Of a figure, as live.def has them without the prefix. */
enum ps_live_kind {
    PS_LIVE_COUNTER,
    PS_LIVE_GAUGE,
};
enum ps_live_unit {
    PS_LIVE_COUNT,
    PS_LIVE_BYTES,
    PS_LIVE_NS,
};

/* What decides about a device's memory. */
enum ps_live_state {
    PS_LIVE_IDLE,     /* launches are not looked at: there is memory enough */
    PS_LIVE_LEARNING, /* no plan yet */
    PS_LIVE_PLANNED,  /* a plan is followed */
    PS_LIVE_REACTING, /* no plan is wanted, or the program has left its step */
};

/* Who tells of launches. */
enum ps_live_tracer {
    PS_LIVE_TRACER_NONE,
    PS_LIVE_TRACER_CUPTI,
    PS_LIVE_TRACER_HOOK,
};

struct ps_live_process_figures {
#define PS_LIVE_PROCESS(name, kind, unit, metric, source, help) uint64_t name;
#include "base/live.def"
};

struct ps_live_device_figures {
#define PS_LIVE_DEVICE(name, kind, unit, metric, source, help) uint64_t name;
#include "base/live.def"
};

/* What a record holds, in words of 8 bytes. */
struct ps_live_process {
    uint64_t updated_ns; /* since 1970, by the clock of opened_ns: never goes back */
    uint64_t devices;    /* that are managed */
    uint64_t tracer;     /* enum ps_live_tracer */
    uint64_t aside;      /* 1: Penstock stands aside */
    uint64_t evicted_bytes_per_second, reloaded_bytes_per_second, host_wait_ns_per_second; /* over the last second or so */
    struct ps_live_process_figures figures;
};

struct ps_live_device {
    struct ps_live_device_figures figures;
    uint64_t recent_step_ns[PS_LIVE_RECENT]; /* the last one first; 0: there were no more */
};

struct ps_live_record {
    _Atomic uint64_t sequence; /* odd while it is written; 0: never was */
    _Atomic uint64_t word[PS_LIVE_RECORD_WORDS];
};

/* Of a device, constant once the process's record counts it. */
struct ps_live_device_facts {
    uint64_t ordinal; /* as the process numbers its devices */
    uint64_t total_bytes;
    char name[128];
};

/* Which process it is, beyond its number: numbers are used again, by other processes and in other containers, and a process may become another program. */
struct ps_live_identity {
    uint64_t pid;
    uint64_t pid_namespace; /* inode of /proc/self/ns/pid; 0: not known */
    uint64_t start_ticks;   /* field 22 of /proc/PID/stat */
    uint64_t stack;         /* field 28, where the program's stack begins: other after an exec. 0: not known */
};

struct ps_live_header {
    char magic[8]; /* written last */
    uint32_t version;
    uint32_t bytes; /* of the file */
    struct ps_live_identity identity;
    uint64_t opened_ns; /* since 1970 */
    uint64_t rank;      /* PS_LIVE_NO_RANK: the process is alone */
    uint64_t processes; /* of its job */
    char library_version[32];
    char aside[256]; /* why Penstock stands aside from the start; "" */
    char command[1024];
    struct ps_live_device_facts device[PS_LIVE_DEVICES_MAX];
};

struct ps_live_page {
    union {
        struct ps_live_header header;
        char header_room[4096];
    };
    struct ps_live_record process;
    struct ps_live_record device[PS_LIVE_DEVICES_MAX];
    char rest[4096 * 4 - 4096 - 17 * 512];
};

#define PS_LIVE_WORDS(type) (sizeof(type) / sizeof(uint64_t))
_Static_assert(sizeof(struct ps_live_page) == 4 * 4096, "the layout is fixed");
_Static_assert(sizeof(struct ps_live_record) == 512, "the layout is fixed");
_Static_assert(PS_LIVE_WORDS(struct ps_live_process) <= PS_LIVE_RECORD_WORDS, "a record holds what is told of a process");
_Static_assert(PS_LIVE_WORDS(struct ps_live_device) <= PS_LIVE_RECORD_WORDS, "a record holds what is told of a device");

/* How often a reader tries: a write takes well under a microsecond, and the next one comes 100 ms later. */
#define PS_LIVE_TRIES 1000

/* One writer at a time. No system call. */
static inline void ps_live_record_write(struct ps_live_record *record, const void *from, size_t words)
{
    const uint64_t *word = from;
    uint64_t before = atomic_load_explicit(&record->sequence, memory_order_relaxed);

    atomic_store_explicit(&record->sequence, before + 1, memory_order_relaxed);
    for (size_t i = 0; i < words; i++)
        atomic_store_explicit(&record->word[i], word[i], memory_order_release);
    atomic_store_explicit(&record->sequence, before + 2, memory_order_release);
}

/* A record as it was at one moment. False: never written, or its writer has died over it. */
static inline bool ps_live_record_read(const struct ps_live_record *record, void *to, size_t words)
{
    uint64_t *word = to;

    for (int tries = 0; tries < PS_LIVE_TRIES; tries++) {
        uint64_t before = atomic_load_explicit(&record->sequence, memory_order_acquire);
        if (!before)
            return false;
        if (before & 1)
            continue;
        for (size_t i = 0; i < words; i++)
            word[i] = atomic_load_explicit(&record->word[i], memory_order_acquire);
        if (atomic_load_explicit(&record->sequence, memory_order_relaxed) == before)
            return true;
    }
    return false;
}

#endif
