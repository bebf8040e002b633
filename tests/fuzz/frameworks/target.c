/*
 * The allocator settings of torch: a byte of flags, then the values of both variables and of a
 * later setenv, a value a line. A backend that the user or the program chose stays. Otherwise
 * Penstock's stands in front, once, and the user's text behind it, in this process and in those it
 * starts.
 */
#include "tests/fuzz/fuzz.h"

#include "shim/hooks/frameworks.c"

/* ---- these stand in for other modules ---- */

struct ps_real_cuda ps_cu;
PS_PER_DEVICE struct ps_device_facts ps_first_device;

static bool finds_need;

bool ps_torch_settings_own_allocator(int count, char *const *arguments, struct ps_torch_settings *found)
{
    (void)count;
    (void)arguments;
    found->what = finds_need ? "a need" : NULL;
    return finds_need;
}

void ps_process_when_device_is_set_up(void (*call)(void))
{
    (void)call;
}

void ps_report_remember_directory(void) {}

/* ---- checks ---- */

/* Returns whether the settings choose a backend: the word, blanks, and a colon. */
static bool has_backend(const char *value)
{
    for (size_t i = 0; value[i]; i++) {
        size_t k = 7;
        if (strncmp(value + i, "backend", k) != 0)
            continue;
        while (value[i + k] == ' ' || value[i + k] == '\t')
            k++;
        if (value[i + k] == ':')
            return true;
    }
    return false;
}

/* Returns whether the variable is `choice`, and `rest` behind a comma if there is any. */
static bool is_merged(const char *variable, const char *choice, const char *rest)
{
    const char *value = getenv(variable);
    size_t length = strlen(choice);

    return value && !strncmp(value, choice, length) &&
           (*rest ? value[length] == ',' && !strcmp(value + length + 1, rest) : !value[length]);
}

static void put(const char *variable, const char *value)
{
    if (value)
        real_setenv()(variable, value, 1);
    else
        unsetenv(variable);
}

static bool is_as_before(const char *variable, const char *before)
{
    const char *value = getenv(variable);

    return !value == !before && (!value || !strcmp(value, before));
}

/* The constructor runs in this process, then in one that it starts. */
static void check_start(const char *const value[2], const char *choice)
{
    char program[] = "python", *arguments[] = {program, NULL};
    bool chosen = (value[0] && has_backend(value[0])) || (value[1] && has_backend(value[1]));

    for (int process = 0; process < 2; process++) {
        choice_is_ours = false;
        needs.what = NULL;
        ask_torch_for_visible_tensors(1, arguments);
        fuzz_require(choice_is_ours == !chosen || process == 1);
        for (int i = 0; i < 2; i++) {
            const char *users = value[i] ? value[i] : value[!i] ? value[!i] : "";
            if (chosen)
                fuzz_require(is_as_before(variables[i], value[i]));
            else
                fuzz_require(is_merged(variables[i], choice, users));
        }
    }
    fuzz_require(chosen || ps_frameworks_chose_visible_tensors() == !finds_need);
}

/* The program sets one of the variables itself. */
static void check_setenv(const char *value, bool second, const char *choice)
{
    bool ours = choice_is_ours;

    fuzz_require(ps_setenv(variables[second], value, 1) == 0);
    if (ours && !has_backend(value))
        fuzz_require(is_merged(variables[second], choice, value));
    else
        fuzz_require(!strcmp(getenv(variables[second]), value));
    /* The other variable then holds no choice of ours that contradicts the program's. */
    if (ours && has_backend(value) && strncmp(value, choice, strlen(choice)) != 0)
        fuzz_require(!behind(choice, getenv(variables[!second])) || !getenv(variables[!second]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_input in = {data, bytes};
    const uint8_t flags = fuzz_u8(&in);
    char *text[3];
    const char *value[2];

    for (int i = 0; i < 3; i++)
        text[i] = fuzz_text(&in, '\n');
    finds_need = flags & 1;
    program_invocation_short_name = (char *)(uintptr_t) "python3"; /* needs are looked for in these alone */
    const char *choice = finds_need ? OWN : VISIBLE;
    unsetenv(CHOSEN_BY_US);
    for (int i = 0; i < 2; i++) {
        value[i] = flags >> (1 + i) & 1 ? NULL : text[i];
        put(variables[i], value[i]);
    }
    check_start(value, choice);
    check_setenv(text[2], flags & 8, choice);
    for (int i = 0; i < 3; i++)
        free(text[i]);
    return 0;
}
