/*
 * An environment, with a NUL behind each variable, given to the reader of settings. Every setting
 * is printed from what was read, and read again to the same. Each problem is about a variable that
 * is there, in a line that fits.
 */
#include "tests/fuzz/rules_text.h"

#include <stdarg.h>
#include <strings.h>

#include "base/settings.h"

#define VARIABLES_MAX 64
#define PRINTED_MAX 32

struct seen {
    char *const *environment;
    int problems;
};

static void take_problem(const char *variable, const char *value, const char *explanation, void *ctx)
{
    struct seen *seen = ctx;
    char line[512], small[8];
    bool there = false;

    for (char *const *at = seen->environment; *at; at++) {
        const char *equals = strchr(*at, '=');
        there |= equals && !strcmp(equals + 1, value) && !strncmp(variable, *at, strlen(variable));
    }
    fuzz_require(there);
    fuzz_require(strncmp(variable, "PENSTOCK_", 9) == 0 && strncmp(variable, "PENSTOCK_TEST_", 14) != 0);
    int bytes = ps_settings_problem_text(line, sizeof line, variable, value, explanation);
    fuzz_require(bytes > 0 && strlen(line) == (bytes < (int)sizeof line ? (size_t)bytes : sizeof line - 1));
    ps_settings_problem_text(small, sizeof small, variable, value, explanation);
    fuzz_require(strncmp(small, line, sizeof small - 1) == 0);
    seen->problems++;
}

/* ---- printing ---- */

struct printed {
    char *text[PRINTED_MAX + 1];
    size_t count;
};

__attribute__((format(printf, 2, 3))) static void put(struct printed *p, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fuzz_require(p->count < PRINTED_MAX && vasprintf(&p->text[p->count++], format, arguments) > 0);
    va_end(arguments);
}

static void put_amount(struct printed *p, const char *name, struct ps_amount amount)
{
    unsigned long long value = amount.value;

    if (amount.kind == PS_AMOUNT_BYTES)
        put(p, "%s=%lluB", name, value);
    else if (amount.kind == PS_AMOUNT_PERCENT)
        put(p, "%s=%llu.%04llu%%", name, value / 10000, value % 10000);
    else
        put(p, "%s=%s", name, amount.kind == PS_AMOUNT_AUTO ? "auto" : "unlimited");
}

static void put_log(struct printed *p, const struct ps_log_levels *log)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};
#define X(upper, lower) #lower,
    static const char *const modules[] = {PS_LOG_MODULE_LIST(X)};
#undef X
    char text[1024] = "";

    for (unsigned i = 0; i < PS_LOG_MODULES; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s:%s", i ? "," : "", modules[i],
                 levels[log->level[i]]);
    put(p, "PENSTOCK_LOG=%s", text);
}

static void put_all(struct printed *p, const struct ps_settings *s)
{
    static const char *const policies[] = {"plan", "layers", "lru"};
    static const char *const from[] = {"auto", "api", "nvtx:", "kernel:", "none"};
    char *rules = rules_print(&s->rules);

    put_amount(p, "PENSTOCK_BUDGET", s->budget);
    put_amount(p, "PENSTOCK_RESERVE", s->reserve);
    put_amount(p, "PENSTOCK_HOST_BUDGET", s->host_budget);
    put(p, "PENSTOCK_MIN_SPAN=%llu", (unsigned long long)s->min_span);
    put(p, "PENSTOCK_GUARD=%s", ps_guard_names[s->guard]);
    put(p, "PENSTOCK_TRACER=%s", ps_tracer_names[s->tracer]);
    put(p, "PENSTOCK_POLICY=%s", s->policy.kind == PS_POLICY_FILE ? s->policy.path : policies[s->policy.kind]);
    put(p, "PENSTOCK_LAYERS=%s%s", from[s->layers.from], s->layers.pattern);
    put(p, "PENSTOCK_PREFETCH_LAYERS=%u", s->prefetch_layers);
    put(p, "PENSTOCK_DEFER_LAYERS=%u", s->defer_layers);
    put(p, "PENSTOCK_KEEP_LAST=%u", s->keep_last);
    put(p, "PENSTOCK_RULES=%s", rules);
    put(p, "PENSTOCK_GRACE=%u", s->grace);
    put(p, "PENSTOCK_DISABLE=%d", s->disable);
    put(p, "PENSTOCK_ALLOC_CONF=%d", s->alloc_conf);
    put(p, "PENSTOCK_LIVE=%d", s->live);
    put_log(p, &s->log);
    put(p, "PENSTOCK_REPORT=%s", s->report);
    put(p, "PENSTOCK_RECORDING=%s", s->recording);
    put(p, "PENSTOCK_TRACE=%s", s->trace);
    put(p, "PENSTOCK_METRICS=%s", s->metrics);
    put(p, "PENSTOCK_VERIFY=%s", s->verify);
    put(p, "PENSTOCK_CUPTI=%s", s->cupti);
    put(p, "PENSTOCK_PROMETHEUS=%s", s->prometheus);
    put(p, "PENSTOCK_REPORT_COMMAND=%s", ps_report_command_names[s->report_command]);
    put(p, "PENSTOCK_SIGNAL=%s", ps_signal_name(s->signal));
    free(rules);
}

/* ---- comparing ---- */

static bool amounts_are_equal(struct ps_amount a, struct ps_amount b)
{
    return a.kind == b.kind && a.value == b.value;
}

static bool texts_are_equal(const struct ps_settings *a, const struct ps_settings *b)
{
    return !strcmp(a->policy.path, b->policy.path) && !strcmp(a->layers.pattern, b->layers.pattern) &&
           !strcmp(a->report, b->report) && !strcmp(a->recording, b->recording) && !strcmp(a->trace, b->trace) &&
           !strcmp(a->metrics, b->metrics) && !strcmp(a->verify, b->verify) && !strcmp(a->cupti, b->cupti) &&
           !strcmp(a->prometheus, b->prometheus);
}

static bool are_equal(const struct ps_settings *a, const struct ps_settings *b)
{
    return amounts_are_equal(a->budget, b->budget) && amounts_are_equal(a->reserve, b->reserve) &&
           amounts_are_equal(a->host_budget, b->host_budget) && a->min_span == b->min_span && a->guard == b->guard &&
           a->tracer == b->tracer && a->policy.kind == b->policy.kind && a->layers.from == b->layers.from &&
           a->prefetch_layers == b->prefetch_layers && a->defer_layers == b->defer_layers &&
           a->keep_last == b->keep_last && rules_are_equal(&a->rules, &b->rules) && a->grace == b->grace &&
           a->disable == b->disable && a->alloc_conf == b->alloc_conf && a->live == b->live &&
           !memcmp(&a->log, &b->log, sizeof a->log) && a->report_command == b->report_command &&
           a->signal == b->signal && texts_are_equal(a, b);
}

/* The first variable of that name says this amount, or something that is no amount. */
static void check_amount(char *const *environment, const char *name, struct ps_amount amount)
{
    static const char *const units[] = {"", "B", "KB", "MB", "GB", "TB", "", "", "KiB", "MiB", "GiB", "TiB"};
    size_t length = strlen(name), unit = 1;
    char *end;

    while (*environment && (strncmp(*environment, name, length) != 0 || (*environment)[length] != '='))
        environment++;
    if (!*environment || !ps_amount_is_named(amount))
        return;
    long double value = strtold(*environment + length + 1, &end), scale = 1;
    if (amount.kind == PS_AMOUNT_PERCENT) {
        fuzz_require(!strcmp(end, "%"));
        scale = 10000;
    } else {
        while (*end && strcasecmp(units[unit], end) != 0)
            fuzz_require(++unit < sizeof units / sizeof *units);
        for (size_t i = *end ? unit % 6 : 1; i > 1; i--)
            scale *= unit > 6 ? 1024 : 1000;
    }
    /* The amount is rounded down; the product is exact to some bits of its 64. */
    long double exact = value * scale, slack = exact / ((uint64_t)1 << 60);
    fuzz_require((long double)amount.value <= exact + slack && (long double)amount.value + 1 >= exact - slack);
}

static void check_values(const struct ps_settings *s)
{
    const uint64_t whole = UINT64_C(0x123456789abcdef);

    fuzz_require(s->min_span >= 1 && s->min_span <= INT64_MAX);
    fuzz_require(s->reserve.kind != PS_AMOUNT_UNLIMITED && s->host_budget.kind != PS_AMOUNT_UNLIMITED);
    fuzz_require(s->prefetch_layers <= 1000000 && s->defer_layers <= 1000000 && s->keep_last <= 1000000);
    fuzz_require(s->grace <= 1000000);
    fuzz_require(!*s->cupti || *s->cupti == '/' || !strchr(s->cupti, '/'));
    fuzz_require((s->policy.kind == PS_POLICY_FILE) == (*s->policy.path == '/'));
    if (s->budget.kind == PS_AMOUNT_PERCENT) {
        fuzz_require(s->budget.value <= 1000000);
        fuzz_require(ps_amount_bytes(s->budget, whole) <= whole);
        fuzz_require(ps_amount_bytes(s->budget, 1000000) == s->budget.value);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct ps_settings settings, again;
    char *environment[VARIABLES_MAX + 1] = {NULL};
    struct fuzz_input in = {data, bytes};
    struct printed printed = {.count = 0};

    for (size_t i = 0; in.left && i < VARIABLES_MAX; i++)
        environment[i] = fuzz_text(&in, '\0');
    struct seen seen = {environment, 0};
    int problems = ps_settings_read(&settings, environment, take_problem, &seen);
    fuzz_require(problems == seen.problems);
    fuzz_require(ps_settings_read(&again, environment, NULL, NULL) == problems);
    fuzz_require(are_equal(&settings, &again));
    check_values(&settings);
    check_amount(environment, "PENSTOCK_BUDGET", settings.budget);
    check_amount(environment, "PENSTOCK_RESERVE", settings.reserve);
    check_amount(environment, "PENSTOCK_HOST_BUDGET", settings.host_budget);
    put_all(&printed, &settings);
    memset(&again, 0xff, sizeof again);
    seen.environment = printed.text;
    fuzz_require(ps_settings_read(&again, printed.text, take_problem, &seen) == 0);
    fuzz_require(are_equal(&settings, &again));
    while (printed.count)
        free(printed.text[--printed.count]);
    for (size_t i = 0; environment[i]; i++)
        free(environment[i]);
    return 0;
}
