#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/output.h"
#include "base/plain_text.h"

/*
 * Read on every call without a lock. A call that races with ps_log_configure sees the old level or
 * the new one.
 */
static _Atomic uint8_t levels_in_force[PS_LOG_MODULES] = {[0 ... PS_LOG_MODULES - 1] = PS_LOG_WARN};

/*
 * The number of uses of each format. A slot belongs to a format for good once it holds its address,
 * so no lock is needed.
 */
#define REPEAT_SLOTS 256
static struct {
    _Atomic uintptr_t format;
    _Atomic uint32_t count;
} repeats[REPEAT_SLOTS];

static const char *const level_names[] = {
    [PS_LOG_ERROR] = "error",
    [PS_LOG_WARN] = "warn",
    [PS_LOG_INFO] = "info",
    [PS_LOG_DEBUG] = "debug",
};
#define LEVELS (sizeof level_names / sizeof level_names[0])

static const char *const module_names[PS_LOG_MODULES] = {
#define X(upper, lower) #lower,
    PS_LOG_MODULE_LIST(X)
#undef X
};

void ps_log_levels_default(struct ps_log_levels *out)
{
    memset(out->level, PS_LOG_WARN, sizeof out->level);
}

/* Returns the position of the word text[0..bytes) in a list, or -1. */
static int find_word(const char *const *words, size_t count, const char *text, size_t bytes)
{
    for (size_t i = 0; i < count; i++) {
        if (strlen(words[i]) == bytes && memcmp(words[i], text, bytes) == 0)
            return (int)i;
    }
    return -1;
}

int ps_log_levels_parse(const char *text, struct ps_log_levels *out)
{
    struct ps_log_levels parsed = *out;

    for (;;) {
        size_t entry_bytes = strcspn(text, ",");
        const char *colon = memchr(text, ':', entry_bytes);
        const char *level_text = colon ? colon + 1 : text;
        int level = find_word(level_names, LEVELS, level_text, (size_t)(text + entry_bytes - level_text));
        if (level < 0)
            return -EINVAL;
        if (colon) {
            int module = find_word(module_names, PS_LOG_MODULES, text, (size_t)(colon - text));
            if (module < 0)
                return -EINVAL;
            parsed.level[module] = (uint8_t)level;
        } else {
            memset(parsed.level, level, sizeof parsed.level);
        }
        if (text[entry_bytes] == '\0')
            break;
        text += entry_bytes + 1;
    }
    *out = parsed;
    return 0;
}

void ps_log_configure(const struct ps_log_levels *levels)
{
    for (size_t i = 0; i < PS_LOG_MODULES; i++)
        atomic_store_explicit(&levels_in_force[i], levels->level[i], memory_order_relaxed);
}

/* the rank + 1; 0: the process has no ranks beside it */
static _Atomic uint32_t rank_in_force;

void ps_log_set_rank(uint32_t rank)
{
    atomic_store_explicit(&rank_in_force, rank + 1, memory_order_relaxed);
}

bool ps_log_enabled(enum ps_log_module module, enum ps_log_level level)
{
    return (unsigned)level <= atomic_load_explicit(&levels_in_force[module], memory_order_relaxed);
}

bool ps_log_first_time(atomic_bool *said)
{
    return !atomic_load_explicit(said, memory_order_relaxed) &&
           !atomic_exchange_explicit(said, true, memory_order_relaxed);
}

/*
 * Returns the number of uses of this format so far, with this one. When the table is full, unknown
 * formats always return 1.
 */
static uint32_t count_use(const char *format)
{
    uintptr_t address = (uintptr_t)format;
    size_t start = (size_t)((address * UINT64_C(0x9e3779b97f4a7c15)) >> 56) % REPEAT_SLOTS;

    for (size_t i = 0; i < REPEAT_SLOTS; i++) {
        size_t slot = (start + i) % REPEAT_SLOTS;
        uintptr_t owner = atomic_load_explicit(&repeats[slot].format, memory_order_relaxed);
        if (owner == 0 && atomic_compare_exchange_strong_explicit(&repeats[slot].format, &owner, address,
                                                                  memory_order_relaxed, memory_order_relaxed))
            owner = address;
        if (owner == address)
            return atomic_fetch_add_explicit(&repeats[slot].count, 1, memory_order_relaxed) + 1;
    }
    return 1;
}

static void write_whole(const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t written = ps_output_write(STDERR_FILENO, text, bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return;
        text += written;
        bytes -= (size_t)written;
    }
}

/*
 * Returns the length at which to cut `line`. At most `bytes` stay, and no UTF-8 sequence is cut in
 * two. A longer run of bytes that continue a sequence is no UTF-8, and is cut anywhere.
 */
static size_t cut_point(const char *line, size_t bytes)
{
    for (size_t back = 0; back < 4 && back < bytes; back++)
        if (((unsigned char)line[bytes - back] & 0xc0) != 0x80)
            return bytes - back;
    return bytes;
}

void ps_log_write(enum ps_log_module module, enum ps_log_level level, const char *format, ...)
{
    static const char prefix[] = "penstock: ";
    static const char dots[] = "...";

    if (!ps_log_enabled(module, level))
        return;

    int saved_errno = errno;
    char note[32] = "";
    if (level <= PS_LOG_WARN) {
        uint32_t use = count_use(format);
        if (use > PS_LOG_REPEATS_SHOWN) {
            if ((use & (use - 1)) != 0) {
                errno = saved_errno;
                return;
            }
            snprintf(note, sizeof note, " (%u times so far)", use);
        }
    }

    /*
     * The text and its NUL may fill the line up to `room`. The note replaces the NUL, and the
     * newline follows it.
     */
    char line[PS_LOG_LINE_MAX];
    size_t note_bytes = strlen(note);
    size_t room = sizeof line - note_bytes;
    size_t used = sizeof prefix - 1;
    memcpy(line, prefix, used);
    uint32_t rank = atomic_load_explicit(&rank_in_force, memory_order_relaxed);
    if (rank)
        used += (size_t)snprintf(line + used, room - used, "rank %u: ", rank - 1);
    if (level >= PS_LOG_INFO)
        used += (size_t)snprintf(line + used, room - used, "%s: ", module_names[module]);

    va_list args;
    va_start(args, format);
    errno = saved_errno; /* for %m */
    int wanted = vsnprintf(line + used, room - used, format, args);
    va_end(args);
    if (wanted < 0) {
        errno = saved_errno;
        return;
    }
    if ((size_t)wanted >= room - used) {
        used = cut_point(line, room - sizeof dots);
        memcpy(line + used, dots, sizeof dots - 1);
        used += sizeof dots - 1;
    } else {
        used += (size_t)wanted;
    }
    line[used] = '\0';
    used = ps_plain_text(line);
    memcpy(line + used, note, note_bytes);
    used += note_bytes;
    line[used++] = '\n';
    write_whole(line, used);
    errno = saved_errno;
}
