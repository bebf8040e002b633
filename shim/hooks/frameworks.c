#include "hooks/frameworks.h"

#include <dlfcn.h>
#include <errno.h> /* and program_invocation_short_name */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/real_dlsym.h"
#include "base/secure_execution.h"
#include "cuda/device_memory.h"
#include "cuda/driver.h"
#include "hooks/hooks.h"
#include "hooks/torch_settings.h"
#include "observe/report.h"
#include "process.h"

/* What the program asks of torch for which it needs its own allocator. */
static struct ps_torch_settings needs;

/*
 * torch reads both, by its version: 2.11 asks for the backend by the first, and by the second where
 * that is not set (libc10_cuda.so of 2.11.0+cu130; 2.15.0+cu132 has that backend by them, too).
 */
static const char *const variables[] = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"};

/* The value with the backend chosen in front, from malloc, or NULL. */
static char *with_backend(const char *choice, const char *value)
{
    size_t room = strlen(choice) + 2 + strlen(value);
    char *merged = malloc(room);

    if (merged)
        snprintf(merged, room, "%s%s%s", choice, *value ? "," : "", value);
    return merged;
}

/*
 * Whether the allocator settings choose a backend. torch drops blanks: "backend : native" is one
 * too.
 */
static bool chooses_backend(const char *value)
{
    static const char key[] = "backend";

    for (const char *at = value; at && (at = strstr(at, key)); at++)
        if (at[sizeof key - 1 + strspn(at + sizeof key - 1, " \t")] == ':')
            return true;
    return false;
}

static bool is_on(const char *variable)
{
    const char *value = getenv(variable);

    return value && !strcmp(value, "1");
}

static bool is_off(const char *variable)
{
    const char *value = getenv(variable);

    return value && !strcmp(value, "0");
}

/*
 * A launcher (torchrun, accelerate) names the script as well. What is started by either is given
 * the choice. Python's own files alone are looked into: other processes open none.
 */
static void look_for_needs(int count, char *const *arguments)
{
    if (!strncmp(program_invocation_short_name, "python", strlen("python")))
        ps_torch_settings_own_allocator(count, arguments, &needs);
}

/* Says why torch was left its own allocator, if it was and the user did not choose it. */
static void say(void)
{
    if (needs.what)
        ps_log_warn(PROCESS,
                    "%s: %s, for which torch needs its own allocator: it keeps that allocator, and Penstock moves its "
                    "segments, more slowly than tensors; PYTORCH_CUDA_ALLOC_CONF=backend:... chooses another",
                    needs.where, needs.what);
}

/* ---- the constructors: environment variables, and nothing else ---- */

#define VISIBLE "backend:cudaMallocAsync"
#define OWN "backend:native"
#define CHOSEN_BY_US                                                                                                   \
    "_PENSTOCK_CHOSE_BACKEND" /* for what is started from here: the backend was not the user's choice */

/*
 * The user has chosen no backend, nor that Penstock should not: what the variables are set to later
 * gets ours, too.
 */
static bool choice_is_ours;

static const char *our_choice(void)
{
    return needs.what ? OWN : VISIBLE;
}

/*
 * The settings without the backend that this process, or one before it, has put in front; NULL:
 * none has.
 */
static const char *behind(const char *choice, const char *value)
{
    const size_t length = strlen(choice);

    if (!value || !is_on(CHOSEN_BY_US) || strncmp(value, choice, length) != 0)
        return NULL;
    return value[length] == ',' ? value + length + 1 : value + length;
}

bool ps_frameworks_chose_visible_tensors(void)
{
    return behind(VISIBLE, getenv(variables[0])) != NULL;
}

bool ps_frameworks_torch_shows_tensors(void)
{
    void *torch = ps_frameworks_chose_visible_tensors() ? dlopen("libc10_cuda.so", RTLD_LAZY | RTLD_NOLOAD) : NULL;

    if (torch)
        dlclose(torch);
    return torch != NULL;
}

/*
 * Where torch uses CUDA's allocator because it was asked to, the device's default pool keeps for
 * each stream what was freed there, as torch's own allocator does: torch frees tables ahead of
 * kernels that read them on the same stream (chunk_cat), and another stream must not get the memory
 * in between. The device is the thread's.
 */
static void ask_pool(void)
{
    static const CUmemPool_attribute to_others[] = {CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
                                                    CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
                                                    CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES};
    CUmemoryPool pool = NULL;
    int no = 0;

    if (!ps_frameworks_torch_shows_tensors())
        return;
    if (!ps_cu.cuMemPoolSetAttribute || !ps_cu.cuDeviceGetDefaultMemPool ||
        ps_cu.cuDeviceGetDefaultMemPool(&pool, ps_device.ordinal) != CUDA_SUCCESS)
        return;
    for (size_t i = 0; i < sizeof to_others / sizeof *to_others; i++)
        if (ps_cu.cuMemPoolSetAttribute(pool, to_others[i], &no) != CUDA_SUCCESS)
            ps_log_debug(PROCESS, "the device's pool keeps attribute %d", (int)to_others[i]);
}

static void device_is_set_up(void)
{
    say();
    ask_pool();
}

__attribute__((constructor)) static void name_to_process(void)
{
    ps_process_when_device_is_set_up(device_is_set_up);
}

/*
 * Each variable has the backend in front, and behind it what the user wrote in it, or in the other.
 */
static void choose_backend(const char *const value[2])
{
    char *merged[2];

    for (int i = 0; i < 2; i++)
        merged[i] = with_backend(our_choice(), value[i] ? value[i] : value[!i] ? value[!i] : "");
    for (int i = 0; i < 2; i++) {
        if (merged[i])
            setenv(variables[i], merged[i], 1);
        free(merged[i]);
    }
    setenv(CHOSEN_BY_US, "1", 1);
}

/*
 * torch's own caching allocator hides its tensors in big blocks, and a static initialiser of
 * libc10_cuda.so chooses the backend, so this is the last moment to ask for the one that calls
 * cudaMallocAsync for each tensor (same speed; shim/README.md#torch-and-triton). A backend that the
 * user chose stays. glibc gives constructors the arguments of main.
 */
__attribute__((constructor)) static void ask_torch_for_visible_tensors(int count, char **arguments)
{
    const char *value[2];
    bool chosen = true;

    if (ps_is_secure_execution())
        return;
    ps_report_remember_directory();
    if (is_off("PENSTOCK_ALLOC_CONF") || is_on("PENSTOCK_DISABLE"))
        return;
    for (int i = 0; i < 2; i++) {
        value[i] = getenv(variables[i]);
        const char *users = behind(VISIBLE, value[i]);
        chosen &= users != NULL;
        value[i] = users ? users : value[i];
        if (behind(OWN, value[i])) /* by the launcher, for what it found: to be told here */
            look_for_needs(count, arguments);
        if (chooses_backend(value[i]))
            return;
    }
    look_for_needs(count, arguments);
    if (!chosen || needs.what)
        choose_backend(value);
    choice_is_ours = true;
}

/* ---- the program sets them itself ---- */

typedef int setenv_function(const char *name, const char *value, int overwrite);

static setenv_function *real_setenv(void)
{
    static setenv_function *_Atomic found;
    setenv_function *real = atomic_load_explicit(&found, memory_order_relaxed);

    if (!real) {
        real = (setenv_function *)ps_real_dlsym(RTLD_NEXT, "setenv");
        atomic_store_explicit(&found, real, memory_order_relaxed);
    }
    return real;
}

/* The program has chosen a backend in one variable: ours goes from the other. */
static void withdraw_from(const char *variable)
{
    const char *users = behind(our_choice(), getenv(variable));
    char *copy = users && *users ? strdup(users) : NULL;

    if (copy)
        real_setenv()(variable, copy, 1);
    else if (users)
        unsetenv(variable);
    free(copy);
}

/*
 * Scripts set these variables themselves before they import torch (os.environ, of which CPython
 * makes calls of setenv), most often to expandable segments, and without a backend torch then has
 * its own: trainings that take 2.6 times plain's time in 60 % of its memory with tensors in sight
 * take 14.5 times with those (an H100). So what is set is taken as what the user has in the
 * environment. Not by its own name, whose declaration says that no argument is NULL.
 */
PS_EXPORT int ps_setenv(const char *name, const char *value, int overwrite) __asm__("setenv");
PS_EXPORT int ps_setenv(const char *name, const char *value, int overwrite)
{
    const bool is_first = name && !strcmp(name, variables[0]),
               is_torchs = is_first || (name && !strcmp(name, variables[1]));
    char *merged = NULL;

    if (!real_setenv()) {
        errno = ENOMEM;
        return -1;
    }
    if (choice_is_ours && is_torchs && value && (overwrite || !getenv(name))) {
        if (!chooses_backend(value))
            merged = with_backend(our_choice(), value);
        else if (!behind(our_choice(), value)) /* which it may have found there, and put back */
            withdraw_from(variables[is_first ? 1 : 0]);
    }
    int result = real_setenv()(name, merged ? merged : value, overwrite);
    const int error = errno;
    free(merged);
    errno = error;
    return result;
}

/* ---- other frameworks ---- */

/*
 * JAX's own allocator takes three quarters of the device in one piece: a block, whose tensors show
 * by the addresses that launches name alone, and of which nothing is left to run out of but JAX's
 * share. With CUDA's it takes each buffer from the driver, and nothing ahead of use. On an H200
 * (jax 0.11.2, tests/results/README.md#jax) its steps take under Penstock what they take plain with
 * its own; in 60 % of the memory 2.5 times that, and 15 with its own. What the user says goes.
 */
__attribute__((constructor)) static void ask_jax_for_visible_tensors(void)
{
    if (ps_is_secure_execution() || is_off("PENSTOCK_ALLOC_CONF") || is_on("PENSTOCK_DISABLE") ||
        getenv("XLA_PYTHON_CLIENT_ALLOCATOR"))
        return;
    setenv("XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async", 1);
    setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false", 0);
}

/*
 * NCCL registers the buffers of collectives that are captured into graphs, and keeps what it
 * registered by address: when other pages come to lie there, as they do whenever a span has been
 * away, its peers go on with the old ones, which is a known hang (shim/README.md#nccl-ipc-graphs).
 * What the user says goes.
 */
__attribute__((constructor)) static void ask_nccl_not_to_register_by_itself(void)
{
    if (!ps_is_secure_execution() && !is_on("PENSTOCK_DISABLE"))
        setenv("NCCL_GRAPH_REGISTER", "0", 0);
}
