/*
 * The PENSTOCK_* environment variables, read once into a typed structure. Their only table is
 * settings.def: names, kinds, defaults, ranges and help texts. The table of
 * scripts/manual/settings.md is made from it. Nothing here allocates.
 *
 * Threads: ps_settings_read reads only the environment that it is given; no thread may change that
 * meanwhile. ps_settings_check_paths makes system calls. The other functions are pure.
 */
#ifndef PS_SETTINGS_H
#define PS_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "policy/span_rules.h"

/*
 * A quantity of memory as the user wrote it. A share of the device or of the host can't be computed
 * before its size is known.
 */
enum ps_amount_kind {
    PS_AMOUNT_BYTES,     /* value: bytes; 0 means zero bytes */
    PS_AMOUNT_PERCENT,   /* value: millionths of the whole; 1 % is 10000, at most 100 % */
    PS_AMOUNT_AUTO,      /* the caller decides; value is 0 */
    PS_AMOUNT_UNLIMITED, /* value is 0 */
};

struct ps_amount {
    enum ps_amount_kind kind;
    uint64_t value;
};

/* Says whether the user named an amount. */
static inline bool ps_amount_is_named(struct ps_amount amount)
{
    return amount.kind == PS_AMOUNT_BYTES || amount.kind == PS_AMOUNT_PERCENT;
}

/* The rule for an evicted span's addresses. */
enum ps_guard {
    /*
     * They lead to the span's slot, with one exception (guard.h). A plan may bring a span back
     * ahead of its next use, with all its uses seen. Addresses of such a span lead to nothing until
     * it comes back or the program asks about it.
     */
    PS_GUARD_AUTO,
    PS_GUARD_HOST,  /* they lead to the span's slot: an unforeseen access is slow and correct */
    PS_GUARD_UNMAP, /* they lead to nothing: an unforeseen access faults */
};
/* The values of PENSTOCK_GUARD; the last is PS_GUARD_UNMAP. */
extern const char *const ps_guard_names[];

/* The source that shows launches and copies to the tracer. */
enum ps_tracer {
    PS_TRACER_AUTO,  /* both; our functions alone where another tool has CUPTI */
    PS_TRACER_CUPTI, /* a CUPTI subscriber */
    PS_TRACER_HOOK,  /* functions of ours in front of the driver's */
};
/* The values of PENSTOCK_TRACER; the last is PS_TRACER_HOOK. */
extern const char *const ps_tracer_names[];

/*
 * Returns the name of a signal that PENSTOCK_SIGNAL may name, without SIG; "" for another number.
 */
const char *ps_signal_name(int number);

/* Returns the number of a signal that PENSTOCK_SIGNAL may name, or 0. */
int ps_signal_number(const char *text);

/* The part of the command line that reports and live pages hold. */
enum ps_report_command {
    PS_REPORT_COMMAND_FULL,
    PS_REPORT_COMMAND_NAME, /* only the program's name: arguments may be secrets */
    PS_REPORT_COMMAND_OFF,
};
/* The values of PENSTOCK_REPORT_COMMAND; the last is PS_REPORT_COMMAND_OFF. */
extern const char *const ps_report_command_names[];

#define PS_SETTINGS_PATH_BYTES 4096
#define PS_SETTINGS_PATTERN_BYTES 256

enum ps_policy {
    PS_POLICY_PLAN,
    PS_POLICY_LAYERS,
    PS_POLICY_LRU,
    PS_POLICY_FILE, /* a policy from a shared object */
};

struct ps_policy_choice {
    enum ps_policy kind;
    char path[PS_SETTINGS_PATH_BYTES]; /* PS_POLICY_FILE, as written; else "" */
};

/* The source of the boundaries of layers. */
enum ps_layers_from {
    PS_LAYERS_AUTO,   /* the API's markers if the program sets some, else the launches themselves */
    PS_LAYERS_API,    /* the API's markers */
    PS_LAYERS_NVTX,   /* NVTX ranges whose message matches the pattern */
    PS_LAYERS_KERNEL, /* launches of kernels whose name matches the pattern */
    PS_LAYERS_NONE,
};

struct ps_layer_source {
    enum ps_layers_from from;
    char pattern[PS_SETTINGS_PATTERN_BYTES]; /* NVTX, KERNEL: for ps_glob_matches; else "" */
};

struct ps_settings {
    struct ps_amount budget;        /* PENSTOCK_BUDGET, of the device's memory */
    struct ps_amount reserve;       /* PENSTOCK_RESERVE, of device memory; not unlimited */
    struct ps_amount host_budget;   /* PENSTOCK_HOST_BUDGET, of host memory; not unlimited */
    uint64_t min_span;              /* PENSTOCK_MIN_SPAN, bytes, at least 1 */
    enum ps_guard guard;            /* PENSTOCK_GUARD */
    enum ps_tracer tracer;          /* PENSTOCK_TRACER */
    struct ps_policy_choice policy; /* PENSTOCK_POLICY */
    struct ps_layer_source layers;  /* PENSTOCK_LAYERS */
    uint32_t prefetch_layers;       /* PENSTOCK_PREFETCH_LAYERS */
    uint32_t defer_layers;          /* PENSTOCK_DEFER_LAYERS */
    uint32_t keep_last;             /* PENSTOCK_KEEP_LAST, layers */
    struct ps_span_rules rules;     /* PENSTOCK_RULES */
    uint32_t grace;                 /* PENSTOCK_GRACE, kernel launches */
    bool disable;                   /* PENSTOCK_DISABLE */
    bool alloc_conf;                /* PENSTOCK_ALLOC_CONF */
    struct ps_log_levels log;       /* PENSTOCK_LOG */
    /* PENSTOCK_REPORT as written, "" for none; relative to the directory the program started in */
    char report[PS_SETTINGS_PATH_BYTES];
    char recording[PS_SETTINGS_PATH_BYTES]; /* PENSTOCK_RECORDING, as PENSTOCK_REPORT */
    char trace[PS_SETTINGS_PATH_BYTES];     /* PENSTOCK_TRACE, as PENSTOCK_REPORT */
    char metrics[PS_SETTINGS_PATH_BYTES];   /* PENSTOCK_METRICS, as PENSTOCK_REPORT */
    char verify[PS_SETTINGS_PATH_BYTES];    /* PENSTOCK_VERIFY, an absolute path, "" for none */
    char cupti[PS_SETTINGS_PATH_BYTES];     /* PENSTOCK_CUPTI, "" to look for it */
    bool live;                              /* PENSTOCK_LIVE */
    enum ps_report_command report_command;  /* PENSTOCK_REPORT_COMMAND */
    int signal;                             /* PENSTOCK_SIGNAL, its number; 0: none */

    /* PENSTOCK_PROMETHEUS, as PENSTOCK_REPORT */
    char prometheus[PS_SETTINGS_PATH_BYTES];
};

/*
 * Receives each setting that can't be used: the whole name, the value in the environment, and an
 * explanation. The explanation fits after "NAME=VALUE: " ("expected 0 or 1", "no such setting; did
 * you mean ..."). The strings live until the function returns.
 */
typedef void (*ps_settings_problem_fn)(const char *variable, const char *value, const char *explanation, void *ctx);

/*
 * Writes the line to show for a problem, without prefix and with a long value cut. Returns the
 * value of snprintf.
 */
int ps_settings_problem_text(char *out, size_t size, const char *variable, const char *value, const char *explanation);

/* Gives every setting its default. */
void ps_settings_default(struct ps_settings *out);

/*
 * Fills *out from an environment (the NULL-ended array; NULL counts as empty). A variable that is
 * missing or unusable gets its default. `problem` (may be NULL) is called for unusable variables
 * and for PENSTOCK_ names that don't exist. An empty value is unusable, except for paths, rules and
 * the signal, where it means none. Names that begin with PENSTOCK_TEST_ are left to the tests. If a
 * name occurs twice, the first one wins, as with getenv. Returns the number of problems.
 */
int ps_settings_read(struct ps_settings *out, char *const *envp, ps_settings_problem_fn problem, void *ctx);

/*
 * Checks the paths of the settings in the file system. PENSTOCK_REPORT and the other outputs must
 * be writable. PENSTOCK_CUPTI and a policy's file must be readable; a bare file name of
 * PENSTOCK_CUPTI is left to the loader. Makes a few system calls and changes nothing. Returns the
 * number of problems.
 */
int ps_settings_check_paths(const struct ps_settings *settings, ps_settings_problem_fn problem, void *ctx);

/*
 * Returns the bytes that an amount means out of `whole` bytes. A share is rounded down, UNLIMITED
 * gives UINT64_MAX, and AUTO gives `whole`. A caller with another meaning of auto looks at the kind
 * first. A figure in bytes is returned as it is, even above `whole`.
 */
uint64_t ps_amount_bytes(struct ps_amount amount, uint64_t whole);

/* A setting for the manual's table, the man page and `penstock help settings`. */
struct ps_settings_entry {
    const char *name;         /* PENSTOCK_... */
    const char *unit;         /* "bytes", "launches", "" ... */
    const char *default_text; /* as a user would write it; "" for none */
    const char *accepted;     /* completes "expected ..." */
    const char *help;         /* one sentence or two */
};

/* Returns the table, in the order of settings.def; *count receives its length. */
const struct ps_settings_entry *ps_settings_entries(size_t *count);

/* The settings of the process. Valid after the set-up (process.h), and constant from then on. */
extern struct ps_settings ps_settings;

#endif
