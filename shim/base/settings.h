/*
 * The PENSTOCK_* environment variables, read once into a typed structure. settings.def is the one table of them: names, kinds, defaults,
 * ranges and help texts; the table of scripts/manual/settings.md is made from it. Nothing here allocates.
 *
 * Threads: ps_settings_read reads the environment it is given and nothing else; call it while nobody changes that. The rest is pure.
 */
#ifndef PS_SETTINGS_H
#define PS_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "policy/span_rules.h"

/* A quantity of memory as the user put it: a share of the device or of the host can't be worked out before its size is known. */
enum ps_amount_kind {
    PS_AMOUNT_BYTES,     /* value: bytes; 0 means zero bytes */
    PS_AMOUNT_PERCENT,   /* value: millionths of the whole; 1 % is 10000, at most 100 % */
    PS_AMOUNT_AUTO,      /* whoever asks decides; value is 0 */
    PS_AMOUNT_UNLIMITED, /* value is 0 */
};

struct ps_amount {
    enum ps_amount_kind kind;
    uint64_t value;
};

/* Whether the user said how much. */
static inline bool ps_amount_is_named(struct ps_amount amount)
{
    return amount.kind == PS_AMOUNT_BYTES || amount.kind == PS_AMOUNT_PERCENT;
}

/* What an evicted span's addresses lead to. */
enum ps_guard {
    PS_GUARD_AUTO, /* its slot, but for what a plan brings back ahead of its next use and nobody can know unseen (guard.h): nothing, until then or asked about */
    PS_GUARD_HOST, /* the span's own slot: an unforeseen access is slow and right */
    PS_GUARD_UNMAP, /* nothing: an unforeseen access faults */
};
extern const char *const ps_guard_names[]; /* as PENSTOCK_GUARD has them; PS_GUARD_UNMAP is the last */

/* Who tells of launches and copies. */
enum ps_tracer {
    PS_TRACER_AUTO,  /* both, or where CUPTI is another tool's, the latter alone */
    PS_TRACER_CUPTI, /* a CUPTI subscriber */
    PS_TRACER_HOOK,  /* functions of ours in front of the driver's */
};
extern const char *const ps_tracer_names[]; /* as PENSTOCK_TRACER has them; PS_TRACER_HOOK is the last */

/* The name of a signal that PENSTOCK_SIGNAL may give, without SIG; "" for another number. */
const char *ps_signal_name(int number);

/* The number of a signal as PENSTOCK_SIGNAL names it, or 0. */
int ps_signal_number(const char *text);

/* How much of the command line reports and live pages hold. */
enum ps_report_command {
    PS_REPORT_COMMAND_FULL,
    PS_REPORT_COMMAND_NAME, /* the program's name alone: arguments may be secrets */
    PS_REPORT_COMMAND_OFF,
};
extern const char *const ps_report_command_names[]; /* as PENSTOCK_REPORT_COMMAND has them; PS_REPORT_COMMAND_OFF is the last */

#define PS_SETTINGS_PATH_BYTES 4096
#define PS_SETTINGS_PATTERN_BYTES 256

enum ps_policy {
    PS_POLICY_PLAN,
    PS_POLICY_LAYERS,
    PS_POLICY_LRU,
    PS_POLICY_FILE, /* from a shared object */
};

struct ps_policy_choice {
    enum ps_policy kind;
    char path[PS_SETTINGS_PATH_BYTES]; /* PS_POLICY_FILE, as written; else "" */
};

/* Where the boundaries of layers come from. */
enum ps_layers_from {
    PS_LAYERS_AUTO,   /* the API's markers when there are any, else the launches themselves */
    PS_LAYERS_API,    /* the API's markers */
    PS_LAYERS_NVTX,   /* NVTX ranges whose message matches the pattern */
    PS_LAYERS_KERNEL, /* launches of kernels whose name matches the pattern */
    PS_LAYERS_NONE,
};

struct ps_layer_source {
    enum ps_layers_from from;
    char pattern[PS_SETTINGS_PATTERN_BYTES]; /* NVTX, KERNEL: as ps_glob_matches reads it; else "" */
};

struct ps_settings {
    struct ps_amount budget;                /* PENSTOCK_BUDGET, of the device's memory */
    struct ps_amount reserve;               /* PENSTOCK_RESERVE, of the device's memory; bytes, percent or auto */
    struct ps_amount host_budget;           /* PENSTOCK_HOST_BUDGET, of the host's memory; bytes, percent or auto */
    uint64_t min_span;                      /* PENSTOCK_MIN_SPAN, bytes, at least 1 */
    enum ps_guard guard;                    /* PENSTOCK_GUARD */
    enum ps_tracer tracer;                  /* PENSTOCK_TRACER */
    struct ps_policy_choice policy;         /* PENSTOCK_POLICY */
    struct ps_layer_source layers;          /* PENSTOCK_LAYERS */
    uint32_t prefetch_layers;               /* PENSTOCK_PREFETCH_LAYERS */
    uint32_t defer_layers;                  /* PENSTOCK_DEFER_LAYERS */
    uint32_t keep_last;                     /* PENSTOCK_KEEP_LAST, layers */
    struct ps_span_rules rules;             /* PENSTOCK_RULES */
    uint32_t grace;                         /* PENSTOCK_GRACE, kernel launches */
    bool disable;                           /* PENSTOCK_DISABLE */
    bool alloc_conf;                        /* PENSTOCK_ALLOC_CONF */
    struct ps_log_levels log;               /* PENSTOCK_LOG */
    char report[PS_SETTINGS_PATH_BYTES];    /* PENSTOCK_REPORT as written, "" for none; relative to the directory the program started in */
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
 * Told about each setting that can't be used: the whole name, the value as it stands in the environment, and an explanation that stands
 * well after "NAME=VALUE: " ("expected 0 or 1", "no such setting; did you mean ..."). The strings live until it returns.
 */
typedef void (*ps_settings_problem_fn)(const char *variable, const char *value, const char *explanation, void *ctx);

/* The line to show for a problem, without prefix and with a long value cut short. Returns what snprintf would. */
int ps_settings_problem_text(char *out, size_t size, const char *variable, const char *value, const char *explanation);

void ps_settings_default(struct ps_settings *out);

/*
 * Fills *out from an environment (the NULL-ended array; NULL counts as empty). A variable that is missing or unusable gets its default; for
 * the unusable (empty ones too, save for paths, where empty means none) and for PENSTOCK_ names that don't exist, `problem` (may be NULL)
 * is called. Names that begin with PENSTOCK_TEST_ are left to the tests. When a name stands there twice the first wins, as with getenv.
 * Returns how many problems there were.
 */
int ps_settings_read(struct ps_settings *out, char *const *envp, ps_settings_problem_fn problem, void *ctx);

/*
 * Looks at the file system for what the paths promise: that PENSTOCK_REPORT and its like can be written, that PENSTOCK_CUPTI (a bare file name
 * is left to the loader) and a policy's file can be read. Makes a few system calls, changes nothing. Returns how many problems there were.
 */
int ps_settings_check_paths(const struct ps_settings *settings, ps_settings_problem_fn problem, void *ctx);

/*
 * The bytes that an amount means out of `whole` bytes: a share is rounded down, UNLIMITED gives UINT64_MAX, AUTO gives `whole`
 * (who wants auto to mean something else looks at the kind first). A figure in bytes is given as it is, even above `whole`.
 */
uint64_t ps_amount_bytes(struct ps_amount amount, uint64_t whole);

/* For the manual's table, the man page and `penstock help settings`. */
struct ps_settings_entry {
    const char *name;         /* PENSTOCK_... */
    const char *unit;         /* "bytes", "launches", "" ... */
    const char *default_text; /* as one would write it; "" for none */
    const char *accepted;     /* completes "expected ..." */
    const char *help;         /* one sentence or two */
};

/* The table, in the order of settings.def; *count receives its length. */
const struct ps_settings_entry *ps_settings_entries(size_t *count);

/* The process's own. Valid after the set-up (process.h), constant from then on. */
extern struct ps_settings ps_settings;

#endif
