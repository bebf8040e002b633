/*
 * The live page: a file in which a process under Penstock tells its figures while it runs.
 * Processes of the same user may map or read it, as `penstock top` does. A reader needs only this
 * header and live.def; live_directory.h says where the files are and which processes they belong
 * to.
 *
 * The file has a fixed layout: a header, then a record of the process and one of each device. The
 * header is constant once the magic is there, except for the facts of devices that come later. The
 * page has native byte order and 8-byte fields. Another layout is another version: the layout of
 * the first 16 bytes never changes.
 *
 * Records are seqlocks. The writer makes `sequence` odd, writes, and makes it even again. A reader
 * looks at it before and after, and tries again if it was odd or has changed. The writer never
 * waits for a reader. There are no fences, because ThreadSanitizer does not know them. Instead each
 * word is stored with release and loaded with acquire order; plain moves do that on x86-64. So a
 * reader that sees a word of a later write has also seen the odd number of that write.
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
#define PS_LIVE_RECENT 8u /* the number of steps whose times are told */
#define PS_LIVE_RECORD_WORDS 63u
#define PS_LIVE_NO_RANK UINT64_MAX

/* The kind and the unit of a figure; live.def has them without the prefix. */
enum ps_live_kind {
    PS_LIVE_COUNTER,
    PS_LIVE_GAUGE,
};
enum ps_live_unit {
    PS_LIVE_COUNT,
    PS_LIVE_BYTES,
    PS_LIVE_NS,
};

/* The state of the decisions about a device's memory. */
enum ps_live_state {
    PS_LIVE_IDLE,     /* launches are not looked at, because memory suffices */
    PS_LIVE_LEARNING, /* no plan yet */
    PS_LIVE_PLANNED,  /* a plan is followed */
    PS_LIVE_REACTING, /* no plan is wanted, or the program has left its step */
};

/* The source that shows launches to the tracer. */
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

/* The content of the process's record, in words of 8 bytes. */
struct ps_live_process {
    uint64_t updated_ns; /* ns since 1970, by the clock of opened_ns; never goes back */
    uint64_t devices;    /* the number of managed devices */
    uint64_t tracer;     /* enum ps_live_tracer */
    uint64_t aside;      /* 1: Penstock stands aside */
    /* Rates over about the last second */
    uint64_t evicted_bytes_per_second, reloaded_bytes_per_second, host_wait_ns_per_second;
    struct ps_live_process_figures figures;
};

/* The content of a device's record, in words of 8 bytes. */
struct ps_live_device {
    struct ps_live_device_figures figures;
    uint64_t recent_step_ns[PS_LIVE_RECENT]; /* the last step first; 0: no further step */
};

struct ps_live_record {
    _Atomic uint64_t sequence; /* odd while the record is written; 0: never written */
    _Atomic uint64_t word[PS_LIVE_RECORD_WORDS];
};

/* The facts of a device, constant once the process's record counts the device. */
struct ps_live_device_facts {
    uint64_t ordinal; /* as the process numbers its devices */
    uint64_t total_bytes;
    char name[128];
};

/*
 * The identity of a process. Its number alone does not suffice. Other processes and other
 * containers use it again, and a process may become another program.
 */
struct ps_live_identity {
    uint64_t pid;
    uint64_t pid_namespace; /* inode of /proc/self/ns/pid; 0: not known */
    uint64_t start_ticks;   /* field 22 of /proc/PID/stat */
    uint64_t stack;         /* field 28, the start of the stack: changes at an exec; 0: not known */
};

struct ps_live_header {
    char magic[8]; /* written last */
    uint32_t version;
    uint32_t bytes; /* the size of the file */
    struct ps_live_identity identity;
    uint64_t opened_ns; /* ns since 1970 */
    uint64_t rank;      /* PS_LIVE_NO_RANK: the process is alone */
    uint64_t processes; /* the number of processes in its job */
    char library_version[32];
    char aside[256]; /* the reason why Penstock stands aside from the start; "": it doesn't */
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
_Static_assert(PS_LIVE_WORDS(struct ps_live_process) <= PS_LIVE_RECORD_WORDS, "a record holds a process");
_Static_assert(PS_LIVE_WORDS(struct ps_live_device) <= PS_LIVE_RECORD_WORDS, "a record holds a device");

/*
 * The number of tries of a reader. A write takes well under a microsecond, and the next one comes
 * 100 ms later.
 */
#define PS_LIVE_TRIES 1000

/* Writes a record. A record has one writer at a time. Makes no system call. */
static inline void ps_live_record_write(struct ps_live_record *record, const void *from, size_t words)
{
    const uint64_t *word = from;
    uint64_t before = atomic_load_explicit(&record->sequence, memory_order_relaxed);

    atomic_store_explicit(&record->sequence, before + 1, memory_order_relaxed);
    for (size_t i = 0; i < words; i++)
        atomic_store_explicit(&record->word[i], word[i], memory_order_release);
    atomic_store_explicit(&record->sequence, before + 2, memory_order_release);
}

/*
 * Reads a record as it was at one time. Returns false if the record was never written, or if its
 * writer died while it wrote.
 */
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
