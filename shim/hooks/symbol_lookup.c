#include "hooks/symbol_lookup.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/real_dlsym.h"
#include "cuda/driver.h"
#include "cuda/driver_functions.h"
#include "cuda/nccl.h"
#include "cuda/runtime.h"
#include "hooks/cupti_subscribe.h"
#include "hooks/external_access.h"
#include "hooks/hooks.h"
#include "hooks/nccl_calls.h"
#include "tracer/look_ups.h"

#define PS_TRACED(name, parameters, arguments, meaning) CUresult ps_traced_##name parameters;
#define PS_TRACED_BELOW_HOOK(name, meaning)
#define PS_TRACED_PTSZ(name, parameters, arguments, meaning)                                                           \
    CUresult ps_traced_##name parameters;                                                                              \
    CUresult ps_traced_##name##_ptsz parameters;
#define PS_TRACED_PTDS(name, parameters, arguments, meaning)                                                           \
    CUresult ps_traced_##name parameters;                                                                              \
    CUresult ps_traced_##name##_ptds parameters;
#include "cuda/traced_calls.def"
#undef PS_TRACED
#undef PS_TRACED_PTSZ
#undef PS_TRACED_PTDS

enum kind {
    TRACED, /* launches and copies */
    HOOK,   /* queries, streams, contexts */
    MEMORY, /* allocations, frees, and answers about memory */
};

static const struct {
    void *ours;
    enum kind kind;
} functions[PS_DRIVER_FUNCTIONS] = {
#define ENTRY(exported, function, kind) [PS_DRIVER_FUNCTION_##exported] = {(void *)(function), kind},
#define TRACED_ENTRY(name) ENTRY(name, ps_traced_##name, TRACED)
#define PS_TRACED(name, parameters, arguments, meaning) TRACED_ENTRY(name)
#define PS_TRACED_PTSZ(name, parameters, arguments, meaning) TRACED_ENTRY(name) TRACED_ENTRY(name##_ptsz)
#define PS_TRACED_PTDS(name, parameters, arguments, meaning) TRACED_ENTRY(name) TRACED_ENTRY(name##_ptds)
#define PS_HOOK_CUDA(type, name, parameters, arguments) ENTRY(name, name, HOOK)
#define PS_HOOK_CUDA_MEMORY(type, name, parameters, arguments) ENTRY(name, name, MEMORY)
#define PS_HOOK_CUDART(type, name, parameters, arguments)
#include "cuda/hooks.def"
#include "cuda/traced_calls.def"
#undef PS_HOOK_CUDA
#undef PS_HOOK_CUDART
};

/* The runtime's functions, for programs that open the shared runtime and look them up. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static const struct {
    const char *name;
    void *ours;
} runtime_functions[] = {
#define PS_HOOK_CUDA(type, name, parameters, arguments)
#define PS_HOOK_CUDART(type, name, parameters, arguments) {#name, (void *)(name)},
#include "cuda/hooks.def"
};
#pragma GCC diagnostic pop

/* ---- which callers get our functions ---- */

static bool begins_with(const char *text, const char *start)
{
    return !strncmp(text, start, strlen(start));
}

/*
 * Returns whether the code belongs to a library of the driver, the toolkit or its tools. The memory
 * that these allocate is left to them: workspaces that they use as they like. The shared runtime's
 * hooks have already decided on the memory that it allocates here. Code without a file was compiled
 * while the program ran, and is the program's.
 */
static bool is_nvidias(const void *code)
{
    static const char *const starts[] = {
        "libcuda.",       "libcudart.",   "libcudadebugger", "libcublas",   "libcudnn",  "libcufft",
        "libcurand",      "libcusolver",  "libcusparse",     "libcutensor", "libcudss",  "libcufile",
        "libcupti",       "libnv",        "libnccl",         "libnpp",      "libaccinj", "libToolsInj",
        "libInterceptor", "libsanitizer", "libcheckpoint",
    };
    Dl_info info;

    if (!dladdr(code, &info) || !info.dli_fname)
        return false;
    const char *slash = strrchr(info.dli_fname, '/'), *file = slash ? slash + 1 : info.dli_fname;
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (begins_with(file, starts[i]))
            return true;
    return false;
}

static bool is_given_to(enum kind kind, const void *caller)
{
    if (kind == TRACED)
        return ps_look_ups_answered() == PS_LOOK_UPS_ALL;
    if (kind == HOOK && ps_look_ups_answered() == PS_LOOK_UPS_ALL)
        return true;
    return ps_look_ups_answered() != PS_LOOK_UPS_NONE && !is_nvidias(caller);
}

/* ---- dlsym ---- */

void *ps_dlsym_answer(void *handle, const char *name, const void *caller) __attribute__((visibility("hidden"), used));

#define UNINSTRUMENTED __attribute__((no_sanitize("address", "thread", "undefined")))

void *ps_symbol_behind(const char *name, void *looked_up, const void *caller)
{
    Dl_info info;
    void *library =
        dladdr(caller, &info) && info.dli_fname ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD) : NULL;
    void *found = library ? ps_real_dlsym(library, name) : NULL;

    if (library)
        dlclose(library); /* the caller is running, so its library stays */
    if (!found)
        found = looked_up;
    return found ? found : ps_real_dlsym(RTLD_NEXT, name);
}

/*
 * Returns whether the name is "cu" or "cuda" and a capital letter. Besides the driver's and the
 * runtime's functions, few looked-up names are.
 */
UNINSTRUMENTED static bool may_be_cuda(const char *name)
{
    if (!name || name[0] != 'c' || name[1] != 'u')
        return false;
    if (name[2] == 'd' && name[3] == 'a')
        name += 2;
    return name[2] >= 'A' && name[2] <= 'Z';
}

/* Returns whether the name begins with "nccl" and a capital letter. */
UNINSTRUMENTED static bool may_be_nccls(const char *name)
{
    return name && name[0] == 'n' && name[1] == 'c' && name[2] == 'c' && name[3] == 'l' && name[4] >= 'A' &&
           name[4] <= 'Z';
}

/* Returns whether the name begins with cuptiSubscribe, which tools ask CUPTI for first. */
UNINSTRUMENTED static bool may_be_cuptis(const char *name)
{
    static const char start[] = "cuptiSubscribe";
    size_t i = 0;

    while (name && start[i] && name[i] == start[i])
        i++;
    return name && !start[i];
}

static void *replacement(void *found, const void *caller);
static void *runtime_replacement(void *found, const char *name, const void *caller);

static __attribute__((noinline)) void *answer(void *handle, const char *name, const void *caller)
{
    void *found = ps_real_dlsym(handle, name);

    if (!found)
        return NULL;
    if (begins_with(name, "cuFile"))
        return ps_cufile_stand_in(name, found);
    return name[2] == 'd' ? runtime_replacement(found, name, caller) : replacement(found, caller);
}

static __attribute__((noinline)) void *answer_others(void *handle, const char *name)
{
    void *found = ps_real_dlsym(handle, name);

    if (!found)
        return NULL;
    return name[0] == 'n' ? ps_nccl_stand_in(name, found) : ps_cupti_stand_in(name, found);
}

/*
 * Returns the result for dlsym, or NULL if the real dlsym must be asked on the caller's behalf. The
 * meaning of RTLD_NEXT and RTLD_DEFAULT depends on where the call comes from. With RTLD_DEFAULT our
 * exported functions are found anyway.
 */
UNINSTRUMENTED void *ps_dlsym_answer(void *handle, const char *name, const void *caller)
{
    ps_dlsym_find();
    bool is_others = may_be_nccls(name) || may_be_cuptis(name);

    if (handle == RTLD_NEXT || handle == RTLD_DEFAULT || !(is_others || may_be_cuda(name)) ||
        ps_look_ups_answered() == PS_LOOK_UPS_NONE)
        return NULL;
    return is_others ? answer_others(handle, name) : answer(handle, name, caller);
}

#ifdef __x86_64__
/* A jump, not a call, leaves the real dlsym the return address by which it knows its caller. */
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        "dlsym:\n"
        "    .cfi_startproc\n"
        "    endbr64\n"
        "    movq (%rsp), %rdx\n"
        "    pushq %rdi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %rsi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    subq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    call ps_dlsym_answer\n"
        "    addq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rsi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rdi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    testq %rax, %rax\n"
        "    jnz 1f\n"
        "    movq ps_dlsym_behind(%rip), %rax\n"
        "    jmp *%rax\n"
        "1:  ret\n"
        "    .cfi_endproc\n"
        ".size dlsym, .-dlsym\n");
#else
#error "dlsym has to be written for this processor"
#endif

/* ---- real functions and ours ---- */

static bool is_launch(size_t which)
{
    return which == PS_DRIVER_FUNCTION_cuLaunchKernel || which == PS_DRIVER_FUNCTION_cuLaunchKernelEx;
}

/* Returns our function in place of `found`, or `found` itself. */
static void *replacement(void *found, const void *caller)
{
    ps_driver_functions_look();
    for (size_t i = 0; i < PS_DRIVER_FUNCTIONS; i++)
        if (found == atomic_load_explicit(&ps_driver_found[i], memory_order_relaxed)) {
            if (!is_given_to(functions[i].kind, caller))
                return found;
            if (is_launch(i))
                ps_look_ups_give_launch();
            return functions[i].ours;
        }
    return found;
}

/*
 * The same for the shared runtime, which is known by its file. The hooks find the loaded runtime by
 * its file too.
 */
static void *runtime_replacement(void *found, const char *name, const void *caller)
{
    Dl_info info;

    if (is_nvidias(caller) || !dladdr(found, &info) || !info.dli_fname)
        return found;
    const char *slash = strrchr(info.dli_fname, '/');
    if (!begins_with(slash ? slash + 1 : info.dli_fname, "libcudart."))
        return found;
    for (size_t i = 0; i < sizeof runtime_functions / sizeof *runtime_functions; i++)
        if (!strcmp(name, runtime_functions[i].name))
            return runtime_functions[i].ours;
    return found;
}

/* ---- cuGetProcAddress ---- */

static CUresult answered(CUresult result, void **function, const void *caller)
{
    if (result == CUDA_SUCCESS && function && *function)
        *function = replacement(*function, caller);
    return result;
}

/*
 * Answers inside Penstock too: the runtime makes its look-ups when the first call is ours. The
 * version before CUDA 12 has no status.
 */
PS_EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                                       CUdriverProcAddressQueryResult *status)
{
    CUresult (*real)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *) =
        (CUresult(*)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *))ps_driver_function(
            PS_DRIVER_FUNCTION_cuGetProcAddress_v2);

    return real ? answered(real(symbol, function, version, flags, status), function, __builtin_return_address(0))
                : CUDA_ERROR_NOT_INITIALIZED;
}

#undef cuGetProcAddress
PS_EXPORT CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
    CUresult (*real)(const char *, void **, int, cuuint64_t) =
        (CUresult(*)(const char *, void **, int, cuuint64_t))ps_driver_function(PS_DRIVER_FUNCTION_cuGetProcAddress);

    return real ? answered(real(symbol, function, version, flags), function, __builtin_return_address(0))
                : CUDA_ERROR_NOT_INITIALIZED;
}

/* ---- cudaGetDriverEntryPoint: a look-up by the runtime, which the driver sees as caller ---- */

#define ENTRY_POINT(name, parameters, arguments)                                                                       \
    PS_EXPORT cudaError_t name parameters                                                                              \
    {                                                                                                                  \
        cudaError_t result = ps_real_cudart()->name arguments;                                                         \
                                                                                                                       \
        answered(result == cudaSuccess ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN, function, __builtin_return_address(0));    \
        return result;                                                                                                 \
    }

ENTRY_POINT(cudaGetDriverEntryPoint,
            (const char *symbol, void **function, unsigned long long flags,
             enum cudaDriverEntryPointQueryResult *status),
            (symbol, function, flags, status))
ENTRY_POINT(cudaGetDriverEntryPoint_ptsz,
            (const char *symbol, void **function, unsigned long long flags,
             enum cudaDriverEntryPointQueryResult *status),
            (symbol, function, flags, status))
ENTRY_POINT(cudaGetDriverEntryPointByVersion,
            (const char *symbol, void **function, unsigned int version, unsigned long long flags,
             enum cudaDriverEntryPointQueryResult *status),
            (symbol, function, version, flags, status))
ENTRY_POINT(cudaGetDriverEntryPointByVersion_ptsz,
            (const char *symbol, void **function, unsigned int version, unsigned long long flags,
             enum cudaDriverEntryPointQueryResult *status),
            (symbol, function, version, flags, status))
