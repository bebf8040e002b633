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

/* The program's setting that needs torch's own allocator, if one was found. */
static struct ps_torch_settings needs;

/*
 * The variables that torch reads. torch 2.11 takes the backend from the first, else from the second
 * (libc10_cuda.so of 2.11.0+cu130). 2.15.0+cu132 takes the backend from them too.
 */
static const char *const variables[] = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"};

/* Returns the value with the chosen backend in front, from malloc, or NULL. */
static char *with_backend(const char *choice, const char *value)
{
    size_t room = strlen(choice) + 2 + strlen(value);
    char *merged = malloc(room);

    if (merged)
        snprintf(merged, room, "%s%s%s", choice, *value ? "," : "", value);
    return merged;
}

/*
 * Returns whether the allocator settings choose a backend. torch drops blanks, so "backend :
 * native" counts.
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
 * Looks in the command for a setting that needs torch's own allocator. A launcher (torchrun,
 * accelerate) names the script as well. Processes that Python or a launcher starts inherit the
 * choice. Only Python processes open files for this.
 */
static void look_for_needs(int count, char *const *arguments)
{
    if (!strncmp(program_invocation_short_name, "python", strlen("python")))
        ps_torch_settings_own_allocator(count, arguments, &needs);
}

/* Logs why torch keeps its own allocator, if it does and the user did not choose that. */
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
/* Tells processes that are started from here that the backend was not the user's choice. */
#define CHOSEN_BY_US "_PENSTOCK_CHOSE_BACKEND"

/*
 * Penstock chooses the backend: the user chose none, and did not forbid it. Then values that the
 * program sets later get our backend too.
 */
static bool choice_is_ours;

static const char *our_choice(void)
{
    return needs.what ? OWN : VISIBLE;
}

/*
 * Returns the settings without the backend that this process, or one before it, put in front.
 * Returns NULL if no process did.
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
 * If torch uses CUDA's allocator because Penstock asked, the default pool keeps freed memory for
 * the stream that freed it. torch's own allocator does the same. torch frees tables ahead of
 * kernels that read them on the same stream (chunk_cat). Another stream must not get that memory in
 * between. The device is the thread's.
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
 * Sets both variables: first the backend, then the user's value of that variable, or of the other
 * if that one is not set.
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
 * Asks torch for the backend that calls cudaMallocAsync for each tensor. torch's own caching
 * allocator hides its tensors in big blocks; the speed is the same
 * (shim/README.md#torch-and-triton). A static initialiser of libc10_cuda.so chooses the backend, so
 * this is the last moment to ask. A backend that the user chose stays. glibc gives constructors the
 * arguments of main.
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
        /* A launcher found a need and chose torch's own allocator: look again, to report it. */
        if (behind(OWN, value[i]))
            look_for_needs(count, arguments);
        if (chooses_backend(value[i]))
            return;
    }
    look_for_needs(count, arguments);
    if (!chosen || needs.what)
        choose_backend(value);
    choice_is_ours = true;
}

/* ---- variables that the program sets itself ---- */

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

/* The program has chosen a backend in the other variable: takes ours out of this one. */
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
 * Scripts set these variables themselves before they import torch: os.environ makes CPython call
 * setenv. Most set expandable segments without a backend, and torch then uses its own allocator.
 * With visible tensors, trainings take 2.6 times plain's time in 60 % of its memory. With those
 * segments they take 14.5 times (an H100). So a value that the program sets is treated like the
 * user's value in the environment. The function has another name here, because the declaration of
 * setenv says that no argument is NULL.
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
        else if (!behind(our_choice(), value)) /* otherwise the program put back our own value */
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
 * Asks JAX for CUDA's allocator. JAX's own takes three quarters of the device in one allocation, a
 * block. Its tensors show only by the addresses that launches name. The only memory that can run
 * out is JAX's share. With CUDA's allocator JAX takes each buffer from the driver, and nothing
 * ahead of use.
 *
 * Measured on an H200 (jax 0.11.2, tests/results/README.md#jax): steps with CUDA's allocator under
 * Penstock take as long as plain steps with JAX's own. In 60 % of the memory they take 2.5 times
 * that, and 15 times with JAX's own. A user's setting stays.
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
 * NCCL registers the buffers of collectives that are captured into graphs, and keeps the
 * registrations by address. A span that was away comes back with other pages at its addresses.
 * NCCL's peers go on with the old pages, a known hang (shim/README.md#nccl-ipc-graphs). So NCCL is
 * asked not to register these buffers. A user's setting stays.
 */
__attribute__((constructor)) static void ask_nccl_not_to_register_by_itself(void)
{
    if (!ps_is_secure_execution() && !is_on("PENSTOCK_DISABLE"))
        setenv("NCCL_GRAPH_REGISTER", "0", 0);
}
