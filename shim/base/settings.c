#include "base/settings.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/output.h"

struct ps_settings ps_settings;

#define NAME_PREFIX "PENSTOCK_"
#define NAME_PREFIX_BYTES (sizeof NAME_PREFIX - 1)
#define TEST_PREFIX NAME_PREFIX "TEST_"

/* Sums of a few such values still fit 64 bits. */
#define BYTES_MAX ((uint64_t)INT64_MAX)

/* The forms an amount may take besides bytes. */
enum {
    PERCENT_ALLOWED = 1,
    AUTO_ALLOWED = 2,
    UNLIMITED_ALLOWED = 4,
};

/*
 * Reads `text` into a field of the kind's type. Returns false and leaves the field unchanged if the
 * text is invalid.
 */
typedef bool (*parse_fn)(const char *text, uint64_t low, uint64_t high, void *field);

struct unit {
    const char *name;
    uint64_t bytes;
};

static const struct unit units[] = {
    {"", 1},
    {"B", 1},
    {"KiB", UINT64_C(1) << 10},
    {"MiB", UINT64_C(1) << 20},
    {"GiB", UINT64_C(1) << 30},
    {"TiB", UINT64_C(1) << 40},
    {"KB", UINT64_C(1000)},
    {"MB", UINT64_C(1000000)},
    {"GB", UINT64_C(1000000000)},
    {"TB", UINT64_C(1000000000000)},
};

/* A decimal number as an exact fraction. */
struct decimal {
    uint64_t digits; /* all digits, without the point */
    uint64_t scale;  /* 10 to the power of the number of digits behind the point */
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/*
 * Reads `12` or `1.5` (digits on both sides of a point, 19 in all). Returns the text behind the
 * number, or NULL.
 */
static const char *parse_decimal(const char *text, struct decimal *out)
{
    struct decimal d = {0, 1};
    int digits = 0;
    bool fraction = false;

    if (!is_digit(*text))
        return NULL;
    for (;; text++) {
        if (*text == '.' && !fraction && is_digit(text[1])) {
            fraction = true;
            continue;
        }
        if (!is_digit(*text))
            break;
        /* 19 digits always fit; leading zeros don't count. */
        if ((d.digits != 0 || *text != '0') && ++digits > 19)
            return NULL;
        d.digits = d.digits * 10 + (uint64_t)(*text - '0');
        if (fraction) {
            if (d.scale >= UINT64_C(1000000000000000000))
                return NULL;
            d.scale *= 10;
        }
    }
    *out = d;
    return text;
}

/* Multiplies and rounds down. Returns false if the result is above `high`. */
static bool scale_decimal(struct decimal number, uint64_t multiplier, uint64_t high, uint64_t *out)
{
    unsigned __int128 product = (unsigned __int128)number.digits * multiplier / number.scale;

    if (product > high)
        return false;
    *out = (uint64_t)product;
    return true;
}

static bool parse_bytes(const char *text, uint64_t low, uint64_t high, void *field)
{
    struct decimal number;
    uint64_t bytes;
    const char *unit = parse_decimal(text, &number);

    if (!unit)
        return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcasecmp(unit, units[i].name) != 0)
            continue;
        /* A part of a byte is a mistake. */
        if (units[i].bytes == 1 && number.scale != 1)
            return false;
        if (!scale_decimal(number, units[i].bytes, high, &bytes) || bytes < low)
            return false;
        *(uint64_t *)field = bytes;
        return true;
    }
    return false;
}

static bool parse_amount(const char *text, uint64_t forms, uint64_t high, void *field)
{
    struct ps_amount amount = {PS_AMOUNT_BYTES, 0};
    struct decimal number;

    if ((forms & AUTO_ALLOWED) && strcmp(text, "auto") == 0) {
        amount.kind = PS_AMOUNT_AUTO;
    } else if ((forms & UNLIMITED_ALLOWED) && strcmp(text, "unlimited") == 0) {
        amount.kind = PS_AMOUNT_UNLIMITED;
    } else if ((forms & PERCENT_ALLOWED) && strchr(text, '%')) {
        const char *rest = parse_decimal(text, &number);
        if (!rest || strcmp(rest, "%") != 0)
            return false;
        /* Compared before it is rounded, so that 100.00000001% is as wrong as 101%. */
        if ((unsigned __int128)number.digits > (unsigned __int128)100 * number.scale)
            return false;
        amount.kind = PS_AMOUNT_PERCENT;
        scale_decimal(number, 10000, 1000000, &amount.value);
    } else if (!parse_bytes(text, 0, high, &amount.value)) {
        return false;
    }
    *(struct ps_amount *)field = amount;
    return true;
}

static bool parse_count(const char *text, uint64_t low, uint64_t high, void *field)
{
    struct decimal number;
    const char *rest = parse_decimal(text, &number);

    if (!rest || *rest != '\0' || number.scale != 1 || number.digits < low || number.digits > high)
        return false;
    *(uint32_t *)field = (uint32_t)number.digits;
    return true;
}

static bool parse_flag(const char *text, uint64_t low, uint64_t high, void *field)
{
    (void)low;
    (void)high;
    if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
        return false;
    *(bool *)field = text[0] == '1';
    return true;
}

const char *const ps_guard_names[] = {[PS_GUARD_AUTO] = "auto", [PS_GUARD_HOST] = "host", [PS_GUARD_UNMAP] = "unmap"};
const char *const ps_tracer_names[] = {
    [PS_TRACER_AUTO] = "auto", [PS_TRACER_CUPTI] = "cupti", [PS_TRACER_HOOK] = "hook"};

const char *const ps_report_command_names[] = {
    [PS_REPORT_COMMAND_FULL] = "full", [PS_REPORT_COMMAND_NAME] = "name", [PS_REPORT_COMMAND_OFF] = "off"};

/* Writes the index of `text` in `names` to a field of their enum. `last` is the last index. */
static bool parse_name(const char *text, const char *const *names, unsigned last, void *field)
{
    unsigned i = 0;

    while (i <= last && strcmp(text, names[i]) != 0)
        i++;
    if (i <= last)
        *(unsigned *)field = i;
    return i <= last;
}

#define PARSE_NAME(kind, names, last)                                                                                  \
    static bool parse_##kind(const char *text, uint64_t low, uint64_t high, void *field)                               \
    {                                                                                                                  \
        (void)low;                                                                                                     \
        (void)high;                                                                                                    \
        return parse_name(text, names, last, field);                                                                   \
    }                                                                                                                  \
    _Static_assert(sizeof(TYPE_OF_##kind) == sizeof(unsigned), "an enum is an unsigned int")

#define TYPE_OF_guard enum ps_guard
#define TYPE_OF_tracer enum ps_tracer
#define TYPE_OF_command enum ps_report_command
PARSE_NAME(guard, ps_guard_names, PS_GUARD_UNMAP);
PARSE_NAME(tracer, ps_tracer_names, PS_TRACER_HOOK);
PARSE_NAME(command, ps_report_command_names, PS_REPORT_COMMAND_OFF);

static bool parse_policy(const char *text, uint64_t low, uint64_t high, void *field)
{
    static const char *const names[] = {
        [PS_POLICY_PLAN] = "plan", [PS_POLICY_LAYERS] = "layers", [PS_POLICY_LRU] = "lru"};
    struct ps_policy_choice *choice = field;
    size_t bytes = strlen(text);

    (void)low;
    (void)high;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(text, names[i]) == 0) {
            *choice = (struct ps_policy_choice){.kind = (enum ps_policy)i};
            return true;
        }
    }
    if (*text != '/' || bytes >= sizeof choice->path)
        return false;
    choice->kind = PS_POLICY_FILE;
    memcpy(choice->path, text, bytes + 1);
    return true;
}

static bool parse_layers(const char *text, uint64_t low, uint64_t high, void *field)
{
    static const struct {
        const char *word;
        enum ps_layers_from from;
        const char *every; /* the pattern if none is given; NULL: one must be given */
    } with_pattern[] = {{"nvtx:", PS_LAYERS_NVTX, "*"}, {"kernel:", PS_LAYERS_KERNEL, NULL}};
    struct ps_layer_source source = {.from = PS_LAYERS_AUTO};

    (void)low;
    (void)high;
    for (size_t i = 0; i < sizeof with_pattern / sizeof with_pattern[0]; i++) {
        size_t length = strlen(with_pattern[i].word);
        if (strncmp(text, with_pattern[i].word, length) != 0)
            continue;
        const char *pattern = text[length] ? text + length : with_pattern[i].every;
        if (!pattern || strlen(pattern) >= sizeof source.pattern)
            return false;
        source.from = with_pattern[i].from;
        strcpy(source.pattern, pattern);
        *(struct ps_layer_source *)field = source;
        return true;
    }
    if (strcmp(text, "api") == 0)
        source.from = PS_LAYERS_API;
    else if (strcmp(text, "none") == 0)
        source.from = PS_LAYERS_NONE;
    else if (strcmp(text, "auto") != 0)
        return false;
    *(struct ps_layer_source *)field = source;
    return true;
}

static bool parse_rules(const char *text, uint64_t low, uint64_t high, void *field)
{
    (void)low;
    (void)high;
    return ps_span_rules_parse(text, field, NULL) == 0;
}

static bool parse_log(const char *text, uint64_t low, uint64_t high, void *field)
{
    (void)low;
    (void)high;
    return ps_log_levels_parse(text, field) == 0;
}

static const struct {
    const char *name;
    int number;
} signals[] = {{"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"HUP", SIGHUP}};

const char *ps_signal_name(int number)
{
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        if (signals[i].number == number)
            return signals[i].name;
    return "";
}

/*
 * Returns the signal of this name, with SIG or without, as in kill(1). Returns 0 for no known name.
 */
int ps_signal_number(const char *text)
{
    const char *name = strncmp(text, "SIG", 3) == 0 ? text + 3 : text;

    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        if (strcmp(name, signals[i].name) == 0)
            return signals[i].number;
    return 0;
}

static bool parse_signal(const char *text, uint64_t low, uint64_t high, void *field)
{
    (void)low;
    (void)high;
    *(int *)field = ps_signal_number(text);
    return *(int *)field || *text == '\0';
}

/* Empty text means no file. */
static bool parse_path(const char *text, uint64_t low, uint64_t high, void *field)
{
    (void)low;
    (void)high;
    size_t bytes = strlen(text);
    if (bytes >= PS_SETTINGS_PATH_BYTES)
        return false;
    memcpy(field, text, bytes + 1);
    return true;
}

/*
 * Reads the name of a library. A path must be absolute, so that it holds in every directory and
 * child process. The loader searches for a bare name.
 */
static bool parse_library(const char *text, uint64_t low, uint64_t high, void *field)
{
    return (*text == '/' || !strchr(text, '/')) && parse_path(text, low, high, field);
}

/* The type that each kind's parser writes. A field of another type fails to compile. */
#define TYPE_OF_amount struct ps_amount
#define TYPE_OF_bytes uint64_t
#define TYPE_OF_count uint32_t
#define TYPE_OF_flag bool
#define TYPE_OF_policy struct ps_policy_choice
#define TYPE_OF_layers struct ps_layer_source
#define TYPE_OF_rules struct ps_span_rules
#define TYPE_OF_log struct ps_log_levels
#define TYPE_OF_signal int
typedef char path_text[PS_SETTINGS_PATH_BYTES];
#define TYPE_OF_path path_text
#define TYPE_OF_library path_text

#define PS_SETTING(field, name, kind, low, high, unit, standard, accepted, help)                                       \
    _Static_assert(__builtin_types_compatible_p(__typeof__(((struct ps_settings *)0)->field), TYPE_OF_##kind),         \
                   "PENSTOCK_" #name ": the field's type is not the kind's");
#include "base/settings.def"
#undef PS_SETTING

struct reader {
    size_t offset; /* offset of the field in struct ps_settings */
    parse_fn parse;
    uint64_t low;
    uint64_t high;
};

static const struct reader readers[] = {
#define PS_SETTING(field, name, kind, low, high, unit, standard, accepted, help)                                       \
    {offsetof(struct ps_settings, field), parse_##kind, (low), (high)},
#include "base/settings.def"
#undef PS_SETTING
};

static const struct ps_settings_entry entries[] = {
#define PS_SETTING(field, name, kind, low, high, unit, standard, accepted, help)                                       \
    {NAME_PREFIX #name, unit, standard, accepted, help},
#include "base/settings.def"
#undef PS_SETTING
};

#define SETTINGS (sizeof entries / sizeof entries[0])

const struct ps_settings_entry *ps_settings_entries(size_t *count)
{
    *count = SETTINGS;
    return entries;
}

static bool parse_into(struct ps_settings *out, size_t index, const char *text)
{
    const struct reader *reader = &readers[index];

    return reader->parse(text, reader->low, reader->high, (char *)out + reader->offset);
}

void ps_settings_default(struct ps_settings *out)
{
    memset(out, 0, sizeof *out);
    ps_log_levels_default(&out->log);
    for (size_t i = 0; i < SETTINGS; i++)
        parse_into(out, i, entries[i].default_text);
}

/*
 * Returns the value behind `NAME=` in one string of the environment; NULL if it is another
 * variable.
 */
static const char *value_of(const char *variable, const char *name)
{
    size_t bytes = strlen(name);

    return strncmp(variable, name, bytes) == 0 && variable[bytes] == '=' ? variable + bytes + 1 : NULL;
}

static const char *find_value(char *const *envp, const char *name)
{
    for (; *envp; envp++) {
        const char *value = value_of(*envp, name);
        if (value)
            return value;
    }
    return NULL;
}

#define NAME_BYTES_MAX 48 /* of names that are compared with the known ones */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/*
 * Returns the number of letters to insert, delete or replace to turn one name into the other. Both
 * have at most NAME_BYTES_MAX letters.
 */
static size_t edit_distance(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    size_t row[NAME_BYTES_MAX + 1];

    for (size_t j = 0; j <= b_bytes; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_bytes; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_bytes; j++) {
            size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = least(replaced, 1 + least(row[j], row[j - 1]));
        }
    }
    return row[b_bytes];
}

/*
 * Returns the known name that this one probably means, or NULL. At most a third of the letters are
 * wrong, but one letter may always be wrong.
 */
static const char *nearest_name(const char *name, size_t bytes)
{
    const char *nearest = NULL;

    if (bytes > NAME_BYTES_MAX)
        return NULL;
    size_t allowed = (bytes - NAME_PREFIX_BYTES) / 3;
    size_t nearest_distance = (allowed > 1 ? allowed : 1) + 1;
    for (size_t i = 0; i < SETTINGS; i++) {
        size_t distance = edit_distance(name, bytes, entries[i].name, strlen(entries[i].name));
        if (distance < nearest_distance) {
            nearest = entries[i].name;
            nearest_distance = distance;
        }
    }
    return nearest;
}

struct problems {
    ps_settings_problem_fn fn;
    void *ctx;
    int count;
};

static void report_problem(struct problems *problems, const char *variable, const char *value, const char *explanation)
{
    problems->count++;
    if (problems->fn)
        problems->fn(variable, value, explanation, problems->ctx);
}

/* The end of a line about a setting: the action to take. */
struct remedy {
    char text[64];
};

static struct remedy remedy_for(const struct ps_settings_entry *entry)
{
    struct remedy remedy;

    snprintf(remedy.text, sizeof remedy.text,
             *entry->default_text ? "correct it, or unset it for the default, %s" : "correct it, or unset it",
             entry->default_text);
    return remedy;
}

static void report_unaccepted(struct problems *problems, size_t index, const char *value)
{
    char explanation[512];
    const char *wrong = NULL;

    /* A list of rules is long, so the message says where it is wrong. */
    if (readers[index].parse == parse_rules) {
        struct ps_span_rules rules;
        ps_span_rules_parse(value, &rules, &wrong);
    }
    if (wrong)
        snprintf(explanation, sizeof explanation, "wrong at character %zu (\"%.40s\"); expected %s; %s",
                 (size_t)(wrong - value) + 1, wrong, entries[index].accepted, remedy_for(&entries[index]).text);
    else
        snprintf(explanation, sizeof explanation, "expected %s; %s", entries[index].accepted,
                 remedy_for(&entries[index]).text);
    report_problem(problems, entries[index].name, value, explanation);
}

/* Reports a string of the environment if it sets a PENSTOCK_ variable that doesn't exist. */
static void check_name(struct problems *problems, const char *variable)
{
    if (strncmp(variable, NAME_PREFIX, NAME_PREFIX_BYTES) != 0 ||
        strncmp(variable, TEST_PREFIX, sizeof TEST_PREFIX - 1) == 0)
        return;
    const char *equals = strchr(variable, '=');
    if (!equals)
        return;
    for (size_t i = 0; i < SETTINGS; i++) {
        if (value_of(variable, entries[i].name))
            return;
    }

    size_t bytes = (size_t)(equals - variable);
    const char *nearest = nearest_name(variable, bytes);
    char name[2 * NAME_BYTES_MAX];
    char explanation[192];
    snprintf(name, sizeof name, "%.*s", (int)least(bytes, sizeof name - 1), variable);
    if (nearest)
        snprintf(explanation, sizeof explanation,
                 "no such setting; did you mean %s? Rename or unset it; `penstock help settings` lists all", nearest);
    else
        snprintf(explanation, sizeof explanation, "no such setting; unset it; `penstock help settings` lists all");
    report_problem(problems, name, equals + 1, explanation);
}

int ps_settings_read(struct ps_settings *out, char *const *envp, ps_settings_problem_fn problem, void *ctx)
{
    struct problems problems = {problem, ctx, 0};

    ps_settings_default(out);
    if (!envp)
        return 0;
    for (size_t i = 0; i < SETTINGS; i++) {
        const char *value = find_value(envp, entries[i].name);
        if (value && !parse_into(out, i, value))
            report_unaccepted(&problems, i, value);
    }
    for (; *envp; envp++)
        check_name(&problems, *envp);
    return problems.count;
}

/*
 * Checks whether `path` can be written. Either a file of its directory is renamed to it, or
 * (`in_place`) the file is made or written there. Returns 0 or -errno.
 */
static int check_writable(const char *path, bool in_place)
{
    char directory[PS_SETTINGS_PATH_BYTES], target[PS_SETTINGS_PATH_BYTES];
    struct stat status;

    in_place |= ps_output_target(path, target);
    const char *slash = strrchr(target, '/');

    bool there = stat(path, &status) == 0;
    if (there && S_ISDIR(status.st_mode))
        return -EISDIR;
    if (there && in_place)
        return access(path, W_OK) == 0 ? 0 : -errno;
    if (!slash)
        strcpy(directory, ".");
    else
        snprintf(directory, sizeof directory, "%.*s", slash == target ? 1 : (int)(slash - target), target);
    if (stat(directory, &status) != 0)
        return -errno;
    if (!S_ISDIR(status.st_mode))
        return -ENOTDIR;
    return access(directory, W_OK | X_OK) == 0 ? 0 : -errno;
}

/* Returns 0 or -errno. */
static int check_readable_file(const char *path)
{
    struct stat status;

    if (stat(path, &status) != 0)
        return -errno;
    if (S_ISDIR(status.st_mode))
        return -EISDIR;
    return access(path, R_OK) == 0 ? 0 : -errno;
}

static void report_path(struct problems *problems, size_t field_offset, const char *value, int error)
{
    char explanation[256];
    char reason[128];

    for (size_t i = 0; i < SETTINGS; i++) {
        if (readers[i].offset != field_offset)
            continue;
        snprintf(explanation, sizeof explanation, "expected %s (%s); %s", entries[i].accepted,
                 strerror_r(-error, reason, sizeof reason), remedy_for(&entries[i]).text);
        report_problem(problems, entries[i].name, value, explanation);
    }
}

int ps_settings_check_paths(const struct ps_settings *settings, ps_settings_problem_fn problem, void *ctx)
{
    static const struct {
        size_t offset;
        bool in_place;
    } written[] = {
        {offsetof(struct ps_settings, report), false},     {offsetof(struct ps_settings, recording), false},
        {offsetof(struct ps_settings, trace), true},       {offsetof(struct ps_settings, metrics), true},
        {offsetof(struct ps_settings, prometheus), false},
    };
    struct problems problems = {problem, ctx, 0};
    int saved_errno = errno;

    for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
        const char *path = (const char *)settings + written[i].offset;
        int error = *path ? check_writable(path, written[i].in_place) : 0;
        if (error != 0)
            report_path(&problems, written[i].offset, path, error);
    }
    if (strchr(settings->cupti, '/') && access(settings->cupti, R_OK) != 0)
        report_path(&problems, offsetof(struct ps_settings, cupti), settings->cupti, -errno);
    if (settings->policy.kind == PS_POLICY_FILE) {
        int error = check_readable_file(settings->policy.path);
        if (error != 0)
            report_path(&problems, offsetof(struct ps_settings, policy), settings->policy.path, error);
    }
    errno = saved_errno;
    return problems.count;
}

int ps_settings_problem_text(char *out, size_t size, const char *variable, const char *value, const char *explanation)
{
    static const size_t shown_max = 200;
    bool whole = strlen(value) <= shown_max;

    return snprintf(out, size, "%s=%.*s%s: %s", variable, (int)shown_max, value, whole ? "" : "...", explanation);
}

uint64_t ps_amount_bytes(struct ps_amount amount, uint64_t whole)
{
    switch (amount.kind) {
    case PS_AMOUNT_BYTES:
        return amount.value;
    case PS_AMOUNT_PERCENT:
        return (uint64_t)((unsigned __int128)whole * amount.value / 1000000);
    case PS_AMOUNT_UNLIMITED:
        return UINT64_MAX;
    case PS_AMOUNT_AUTO:
        break;
    }
    return whole;
}
