/*
 * The environment variables: the values that each accepts and refuses, and the messages about them.
 */
#include "base/settings.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expect.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * 1024)
#define GIB (MIB * 1024)

static struct ps_settings settings;

/* The complaints, as the lines that a user would see. */
static char said[4096];

static void note_problem(const char *variable, const char *value, const char *explanation, void *ctx)
{
    char line[1024];

    EXPECT(ctx == said);
    ps_settings_problem_text(line, sizeof line, variable, value, explanation);
    size_t used = strlen(said);
    snprintf(said + used, sizeof said - used, "%s\n", line);
}

/* Reads an environment of one variable. */
static int read_one(const char *text)
{
    char copy[3 * PS_SETTINGS_PATH_BYTES];
    char *envp[] = {(char[]){"HOME=/root"}, copy, NULL};

    snprintf(copy, sizeof copy, "%s", text);
    said[0] = '\0';
    return ps_settings_read(&settings, envp, note_problem, said);
}

static bool same_amount(struct ps_amount amount, enum ps_amount_kind kind, uint64_t value)
{
    return amount.kind == kind && amount.value == value;
}

static void check_defaults(void)
{
    EXPECT(same_amount(settings.budget, PS_AMOUNT_AUTO, 0));
    EXPECT(same_amount(settings.reserve, PS_AMOUNT_AUTO, 0));
    EXPECT(same_amount(settings.host_budget, PS_AMOUNT_AUTO, 0));
    EXPECT_U64(2 * MIB, settings.min_span);
    EXPECT(settings.guard == PS_GUARD_AUTO);
    EXPECT(settings.policy.kind == PS_POLICY_PLAN);
    EXPECT(settings.layers.from == PS_LAYERS_AUTO);
    EXPECT_U64(1, settings.prefetch_layers);
    EXPECT_U64(0, settings.defer_layers);
    EXPECT_U64(1, settings.keep_last);
    EXPECT_U64(0, settings.rules.count);
    EXPECT(settings.grace > 0 && settings.grace < 100);
    EXPECT(!settings.disable);
    EXPECT(settings.alloc_conf);
    for (size_t i = 0; i < PS_LOG_MODULES; i++)
        EXPECT(settings.log.level[i] == PS_LOG_WARN);
    EXPECT_TEXT("", settings.report);
    EXPECT_TEXT("", settings.cupti);
}

static void test_defaults(void)
{
    char *empty[] = {NULL};
    char *others[] = {(char[]){"PATH=/bin"}, (char[]){"PENSTOCK"}, (char[]){"XPENSTOCK_BUDGET=1"},
                      (char[]){"PENSTOCKBUDGET=1"}, NULL};

    memset(&settings, 0xa5, sizeof settings);
    EXPECT_INT(0, ps_settings_read(&settings, NULL, note_problem, said));
    check_defaults();
    EXPECT_INT(0, ps_settings_read(&settings, empty, note_problem, said));
    check_defaults();
    EXPECT_INT(0, ps_settings_read(&settings, others, note_problem, said));
    check_defaults();
}

static void test_bytes(void)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"0", 0},
        {"0GiB", 0},
        {"1", 1},
        {"4096B", 4096},
        {"007KiB", 7 * KIB},
        {"48GiB", 48 * GIB},
        {"48gib", 48 * GIB},
        {"1.5GiB", GIB + GIB / 2},
        {"0.1KB", 100},
        {"0.3KiB", 307},
        {"512MiB", 512 * MIB},
        {"2TiB", 2048 * GIB},
        {"3KB", 3000},
        {"3MB", 3000000},
        {"3GB", UINT64_C(3000000000)},
        {"3TB", UINT64_C(3000000000000)},
        {"1.000000001GB", 1000000001},
        {"9223372036854775807", INT64_MAX},
        {"00000000000000000000000000001", 1},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[64];
        snprintf(text, sizeof text, "PENSTOCK_BUDGET=%s", cases[i].text);
        EXPECT_INT(0, read_one(text));
        EXPECT(settings.budget.kind == PS_AMOUNT_BYTES);
        EXPECT_U64(cases[i].bytes, settings.budget.value);
    }
}

static void test_other_amounts(void)
{
    EXPECT_INT(0, read_one("PENSTOCK_BUDGET=60%"));
    EXPECT(same_amount(settings.budget, PS_AMOUNT_PERCENT, 600000));
    EXPECT_INT(0, read_one("PENSTOCK_BUDGET=100%"));
    EXPECT(same_amount(settings.budget, PS_AMOUNT_PERCENT, 1000000));
    EXPECT_INT(0, read_one("PENSTOCK_BUDGET=0%"));
    EXPECT(same_amount(settings.budget, PS_AMOUNT_PERCENT, 0));
    EXPECT_INT(0, read_one("PENSTOCK_HOST_BUDGET=12.5%"));
    EXPECT(same_amount(settings.host_budget, PS_AMOUNT_PERCENT, 125000));
    EXPECT_INT(0, read_one("PENSTOCK_BUDGET=unlimited"));
    EXPECT(same_amount(settings.budget, PS_AMOUNT_UNLIMITED, 0));
    EXPECT_INT(0, read_one("PENSTOCK_BUDGET=auto"));
    EXPECT(same_amount(settings.budget, PS_AMOUNT_AUTO, 0));
    EXPECT_INT(0, read_one("PENSTOCK_RESERVE=1GiB"));
    EXPECT(same_amount(settings.reserve, PS_AMOUNT_BYTES, GIB));
}

static void test_amount_bytes(void)
{
    EXPECT_U64(5, ps_amount_bytes((struct ps_amount){PS_AMOUNT_BYTES, 5}, 3));
    EXPECT_U64(0, ps_amount_bytes((struct ps_amount){PS_AMOUNT_BYTES, 0}, 3));
    EXPECT_U64(GIB / 2, ps_amount_bytes((struct ps_amount){PS_AMOUNT_PERCENT, 500000}, GIB));
    EXPECT_U64(UINT64_MAX, ps_amount_bytes((struct ps_amount){PS_AMOUNT_PERCENT, 1000000}, UINT64_MAX));
    EXPECT_U64(33, ps_amount_bytes((struct ps_amount){PS_AMOUNT_PERCENT, 333333}, 100));
    EXPECT_U64(UINT64_MAX, ps_amount_bytes((struct ps_amount){PS_AMOUNT_UNLIMITED, 0}, GIB));
    EXPECT_U64(GIB, ps_amount_bytes((struct ps_amount){PS_AMOUNT_AUTO, 0}, GIB));
}

static void test_refused_amounts(void)
{
    EXPECT_INT(0, read_one("PENSTOCK_REPORT_COMMAND=name"));
    EXPECT(settings.report_command == PS_REPORT_COMMAND_NAME);
    EXPECT_INT(0, read_one("PENSTOCK_REPORT_COMMAND=off"));
    EXPECT(settings.report_command == PS_REPORT_COMMAND_OFF);
    EXPECT_INT(0, read_one("PENSTOCK_REPORT_COMMAND=full"));
    EXPECT(settings.report_command == PS_REPORT_COMMAND_FULL);

    static const char *const refused[] = {
        "PENSTOCK_REPORT_COMMAND=none",
        "PENSTOCK_REPORT_COMMAND=",
        "",
        "lots",
        "-1",
        "-1GiB",
        "+1GiB",
        " 1GiB",
        "1GiB ",
        "1 GiB",
        "GiB",
        ".5GiB",
        "1.GiB",
        "1..5GB",
        "1.5.2GB",
        "1.5",
        "1.5B",
        "0x10",
        "1e9",
        "nan",
        "NaN",
        "inf",
        "48G",
        "48GiBs",
        "48iB",
        "1,5GiB",
        "101%",
        "-5%",
        "%",
        "5%%",
        "5%GiB",
        "100.1%",
        "AUTO",
        "automatic",
        "18446744073709551616",
        "99999999999TiB",
        "8388608TiB",
        "9223372036854775808",
        "0.0000000000000000001GiB",
        "100.00000000000001%",
        "48GiB\n",
    };

    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char text[128];
        char line[160];
        snprintf(text, sizeof text, "PENSTOCK_BUDGET=%s", refused[i]);
        snprintf(line, sizeof line, "%s: expected bytes with a unit", text);
        EXPECT_INT(1, read_one(text));
        EXPECT(strncmp(said, line, strlen(line)) == 0);
        EXPECT(strstr(said, "auto or unlimited; correct it, or unset it for the default, auto\n") != NULL);
        check_defaults();
    }
    /* A value that one variable accepts may be refused by another. */
    EXPECT_INT(1, read_one("PENSTOCK_HOST_BUDGET=unlimited"));
    EXPECT_INT(1, read_one("PENSTOCK_RESERVE=unlimited"));
    EXPECT_INT(1, read_one("PENSTOCK_MIN_SPAN=auto"));
    EXPECT_INT(1, read_one("PENSTOCK_MIN_SPAN=5%"));
    EXPECT_INT(1, read_one("PENSTOCK_MIN_SPAN=0"));
    check_defaults();
}

static void test_other_kinds(void)
{
    EXPECT_INT(0, read_one("PENSTOCK_MIN_SPAN=64KiB"));
    EXPECT_U64(64 * KIB, settings.min_span);
    EXPECT_INT(0, read_one("PENSTOCK_GUARD=unmap"));
    EXPECT(settings.guard == PS_GUARD_UNMAP);
    EXPECT_INT(0, read_one("PENSTOCK_GUARD=host"));
    EXPECT(settings.guard == PS_GUARD_HOST);
    EXPECT_INT(0, read_one("PENSTOCK_GUARD=auto"));
    EXPECT(settings.guard == PS_GUARD_AUTO);
    EXPECT_INT(0, read_one("PENSTOCK_TRACER=hook"));
    EXPECT(settings.tracer == PS_TRACER_HOOK);
    EXPECT_INT(0, read_one("PENSTOCK_TRACER=cupti"));
    EXPECT(settings.tracer == PS_TRACER_CUPTI);
    EXPECT_INT(0, read_one("PENSTOCK_TRACER=auto"));
    EXPECT(settings.tracer == PS_TRACER_AUTO);
    EXPECT_INT(0, read_one("PENSTOCK_POLICY=lru"));
    EXPECT(settings.policy.kind == PS_POLICY_LRU);
    EXPECT_INT(0, read_one("PENSTOCK_POLICY=layers"));
    EXPECT(settings.policy.kind == PS_POLICY_LAYERS);
    EXPECT_INT(0, read_one("PENSTOCK_POLICY=/srv/policy.so"));
    EXPECT(settings.policy.kind == PS_POLICY_FILE);
    EXPECT_TEXT("/srv/policy.so", settings.policy.path);
    EXPECT_INT(0, read_one("PENSTOCK_LAYERS=api"));
    EXPECT(settings.layers.from == PS_LAYERS_API);
    EXPECT_INT(0, read_one("PENSTOCK_LAYERS=none"));
    EXPECT(settings.layers.from == PS_LAYERS_NONE);
    EXPECT_INT(0, read_one("PENSTOCK_LAYERS=nvtx:"));
    EXPECT(settings.layers.from == PS_LAYERS_NVTX);
    EXPECT_TEXT("*", settings.layers.pattern);
    EXPECT_INT(0, read_one("PENSTOCK_LAYERS=kernel:*norm_fwd*"));
    EXPECT(settings.layers.from == PS_LAYERS_KERNEL);
    EXPECT_TEXT("*norm_fwd*", settings.layers.pattern);
    EXPECT_INT(0, read_one("PENSTOCK_PREFETCH_LAYERS=0"));
    EXPECT_U64(0, settings.prefetch_layers);
    EXPECT_INT(0, read_one("PENSTOCK_DEFER_LAYERS=3"));
    EXPECT_U64(3, settings.defer_layers);
    EXPECT_INT(0, read_one("PENSTOCK_KEEP_LAST=0"));
    EXPECT_U64(0, settings.keep_last);
    EXPECT_INT(0, read_one("PENSTOCK_RULES=exclude layer=3-5; include class=activation"));
    EXPECT_U64(2, settings.rules.count);
    EXPECT_INT(0, read_one("PENSTOCK_RULES="));
    EXPECT_U64(0, settings.rules.count);
    EXPECT_INT(0, read_one("PENSTOCK_GRACE=0"));
    EXPECT_U64(0, settings.grace);
    EXPECT_INT(0, read_one("PENSTOCK_GRACE=1000000"));
    EXPECT_U64(1000000, settings.grace);
    EXPECT_INT(0, read_one("PENSTOCK_DISABLE=1"));
    EXPECT(settings.disable);
    EXPECT_INT(0, read_one("PENSTOCK_ALLOC_CONF=0"));
    EXPECT(!settings.alloc_conf);
    EXPECT_INT(0, read_one("PENSTOCK_REPORT=/tmp/a=b.json"));
    EXPECT_TEXT("/tmp/a=b.json", settings.report);
    EXPECT_INT(0, read_one("PENSTOCK_REPORT="));
    EXPECT_TEXT("", settings.report);
    EXPECT_INT(0, read_one("PENSTOCK_CUPTI=libcupti.so.13"));
    EXPECT_TEXT("libcupti.so.13", settings.cupti);
    EXPECT_INT(0, read_one("PENSTOCK_LOG=info,residency:debug,slab:error"));
    EXPECT(settings.log.level[PS_LOG_MODULE_HOOKS] == PS_LOG_INFO);
    EXPECT(settings.log.level[PS_LOG_MODULE_RESIDENCY] == PS_LOG_DEBUG);
    EXPECT(settings.log.level[PS_LOG_MODULE_SLAB] == PS_LOG_ERROR);

    static const char *const refused[] = {
        "PENSTOCK_GUARD=",
        "PENSTOCK_GUARD=Host",
        "PENSTOCK_TRACER=hooks",
        "PENSTOCK_TRACER=Auto",
        "PENSTOCK_GUARD=none",
        "PENSTOCK_POLICY=fifo",
        "PENSTOCK_POLICY=lru ",
        "PENSTOCK_POLICY=",
        "PENSTOCK_POLICY=policy.so",
        "PENSTOCK_POLICY=./policy.so",
        "PENSTOCK_CUPTI=./libcupti.so.13",
        "PENSTOCK_CUPTI=nvidia/cu13/lib/libcupti.so.13",
        "PENSTOCK_LAYERS=",
        "PENSTOCK_LAYERS=nvtx",
        "PENSTOCK_LAYERS=kernel:",
        "PENSTOCK_LAYERS=cupti:*",
        "PENSTOCK_PREFETCH_LAYERS=-1",
        "PENSTOCK_DEFER_LAYERS=1.5",
        "PENSTOCK_KEEP_LAST=all",
        "PENSTOCK_RULES=exclude layr=3",
        "PENSTOCK_RULES=excluded",
        "PENSTOCK_GRACE=1000001",
        "PENSTOCK_GRACE=-1",
        "PENSTOCK_GRACE=1.5",
        "PENSTOCK_GRACE=4launches",
        "PENSTOCK_GRACE=4294967297",
        "PENSTOCK_DISABLE=yes",
        "PENSTOCK_DISABLE=2",
        "PENSTOCK_DISABLE=",
        "PENSTOCK_DISABLE=01",
        "PENSTOCK_ALLOC_CONF=true",
        "PENSTOCK_LOG=",
        "PENSTOCK_LOG=loud",
        "PENSTOCK_LOG=info,",
        "PENSTOCK_LOG=moon:debug",
        "PENSTOCK_LOG=residency:",
        "PENSTOCK_LOG=residency:debug,loud",
        "PENSTOCK_LOG=:debug",
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        EXPECT_INT(1, read_one(refused[i]));
        EXPECT(strncmp(said, refused[i], strlen(refused[i])) == 0);
        check_defaults();
    }
}

static void test_unknown_names(void)
{
    EXPECT_INT(1, read_one("PENSTOCK_BUGDET=48GiB"));
    EXPECT_TEXT(
        "PENSTOCK_BUGDET=48GiB: no such setting; did you mean PENSTOCK_BUDGET? Rename or unset it; `penstock help settings` lists all\n",
        said);
    EXPECT_INT(1, read_one("PENSTOCK_budget=48GiB"));
    EXPECT_INT(1, read_one("PENSTOCK_MINSPAN=1"));
    EXPECT(strstr(said, "did you mean PENSTOCK_MIN_SPAN?") != NULL);
    EXPECT_INT(1, read_one("PENSTOCK_ALLOCATOR_CHOICE=1"));
    EXPECT(strstr(said, "no such setting") != NULL && strstr(said, "did you mean") == NULL);
    EXPECT_INT(1, read_one("PENSTOCK_=1"));
    EXPECT(strstr(said, "did you mean") == NULL);
    EXPECT_INT(0, read_one("PENSTOCK_TEST_ANYTHING=1"));
    EXPECT_TEXT("", said);

    /* The place of the error in a list of rules. */
    EXPECT_INT(1, read_one("PENSTOCK_RULES=include; exclude layr=3"));
    EXPECT(strstr(said, ": wrong at character 18 (\"layr=3\"); expected rules separated by ;") != NULL);

    /* A name of any length is handled; a long one is shortened in the message. */
    char text[3000] = "PENSTOCK_";
    memset(text + 9, 'A', 2000);
    strcpy(text + 2009, "=1");
    EXPECT_INT(1, read_one(text));
    EXPECT(strlen(said) < 300);
}

static void test_several(void)
{
    char *envp[] = {(char[]){"PENSTOCK_BUDGET=1GiB"}, (char[]){"PENSTOCK_GRACE=no"},
                    (char[]){"PENSTOCK_BUDGET=2GiB"}, (char[]){"PENSTOCK_FOO=1"},
                    (char[]){"PENSTOCK_GUARD=unmap"}, NULL};

    said[0] = '\0';
    EXPECT_INT(2, ps_settings_read(&settings, envp, note_problem, said));
    EXPECT(same_amount(settings.budget, PS_AMOUNT_BYTES, GIB));
    EXPECT(settings.guard == PS_GUARD_UNMAP);
    EXPECT_INT(2, ps_settings_read(&settings, envp, NULL, NULL));
}

static void test_long_values(void)
{
    static char text[3 * PS_SETTINGS_PATH_BYTES];

    strcpy(text, "PENSTOCK_REPORT=");
    memset(text + 16, 'r', PS_SETTINGS_PATH_BYTES);
    EXPECT_INT(1, read_one(text));
    EXPECT(strlen(said) < 500);
    EXPECT(strstr(said, "rrr...: expected") != NULL);
    EXPECT_TEXT("", settings.report);
    text[16 + PS_SETTINGS_PATH_BYTES - 1] = '\0';
    EXPECT_INT(0, read_one(text));
    EXPECT_U64(PS_SETTINGS_PATH_BYTES - 1, strlen(settings.report));
}

static int check_report(const char *path)
{
    ps_settings_default(&settings);
    snprintf(settings.report, sizeof settings.report, "%s", path);
    said[0] = '\0';
    return ps_settings_check_paths(&settings, note_problem, said);
}

static void test_paths(void)
{
    char directory[] = "/tmp/penstock-test-XXXXXX";
    char path[256];

    if (!EXPECT(mkdtemp(directory) != NULL))
        return;
    EXPECT_INT(0, check_report(""));
    EXPECT_INT(0, check_report("report.json"));
    snprintf(path, sizeof path, "%s/report.json", directory);
    EXPECT_INT(0, check_report(path));
    EXPECT_INT(1, check_report(directory));
    EXPECT(strstr(said, "(Is a directory); correct it, or unset it") != NULL);
    snprintf(path, sizeof path, "%s/no/report.json", directory);
    EXPECT_INT(1, check_report(path));
    EXPECT(strncmp(said, "PENSTOCK_REPORT=", 16) == 0 && strstr(said, ": expected the path of a file") != NULL);
    EXPECT(strstr(said, "(No such file or directory); correct it, or unset it") != NULL);
    EXPECT_INT(1, check_report("/dev/null/report.json"));
    EXPECT(strstr(said, "(Not a directory); correct it, or unset it") != NULL);
    if (geteuid() != 0) { /* root may write anywhere */
        EXPECT_INT(0, chmod(directory, 0500));
        snprintf(path, sizeof path, "%s/report.json", directory);
        EXPECT_INT(1, check_report(path));
        EXPECT(strstr(said, "(Permission denied)\n") != NULL);
    }

    ps_settings_default(&settings);
    strcpy(settings.cupti, "libcupti.so.13");
    EXPECT_INT(0, ps_settings_check_paths(&settings, note_problem, said));
    snprintf(settings.cupti, sizeof settings.cupti, "%s/libcupti.so.13", directory);
    said[0] = '\0';
    EXPECT_INT(1, ps_settings_check_paths(&settings, note_problem, said));
    EXPECT(strncmp(said, "PENSTOCK_CUPTI=", 15) == 0);

    ps_settings_default(&settings);
    settings.policy.kind = PS_POLICY_FILE;
    snprintf(settings.policy.path, sizeof settings.policy.path, "%s/policy.so", directory);
    said[0] = '\0';
    EXPECT_INT(1, ps_settings_check_paths(&settings, note_problem, said));
    EXPECT(strncmp(said, "PENSTOCK_POLICY=", 16) == 0 &&
           strstr(said, "(No such file or directory); correct it, or unset it") != NULL);
    snprintf(settings.policy.path, sizeof settings.policy.path, "%s", directory);
    said[0] = '\0';
    EXPECT_INT(1, ps_settings_check_paths(&settings, note_problem, said));
    EXPECT(strstr(said, "(Is a directory); correct it, or unset it") != NULL);
    rmdir(directory);
}

/* The table's own texts: each default text gives the default value, and each fits on one line. */
static void test_table(void)
{
    size_t count;
    const struct ps_settings_entry *entries = ps_settings_entries(&count);

    EXPECT(count >= 12);
    for (size_t i = 0; i < count; i++) {
        char text[256];
        snprintf(text, sizeof text, "%s=%s", entries[i].name, entries[i].default_text);
        EXPECT_INT(0, read_one(text));
        check_defaults();
        EXPECT(strncmp(entries[i].name, "PENSTOCK_", 9) == 0);
        EXPECT(entries[i].help[0] != '\0' && entries[i].accepted[0] != '\0');
        EXPECT(strpbrk(entries[i].help, "\t\n") == NULL && strpbrk(entries[i].accepted, "\t\n") == NULL);
        for (size_t j = 0; j < i; j++)
            EXPECT(strcmp(entries[i].name, entries[j].name) != 0);
    }
}

int main(void)
{
    test_defaults();
    test_bytes();
    test_other_amounts();
    test_amount_bytes();
    test_refused_amounts();
    test_other_kinds();
    test_unknown_names();
    test_several();
    test_long_values();
    test_paths();
    test_table();
    return expect_status();
}
