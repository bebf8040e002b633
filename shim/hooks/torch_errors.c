/*
 * Logs a remedy when torch refuses something on the backend that Penstock asks it for. torch's own
 * allocator can do a few things more: memory history, sharing tensors with other processes, pools,
 * and memory that graphs of torch.compile share. TORCH_CHECK ends a program that wants one of
 * these, with a text that does not mention Penstock. The program's command may not show the need
 * beforehand (torch_settings.h). So a line with the remedy comes before torch's text.
 *
 * TORCH_CHECK throws by two functions of libc10.so: c10::detail::torchCheckFail(const char
 * *function, const char *file, uint32_t line, message). One takes the message as a const char *,
 * the other as a const std::string & (torch 2.11.0 and 2.15.0). They are C++, so they stand here by
 * their mangled names. The exception is torch's. It passes through no frame that has anything to
 * do.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/real_dlsym.h"
#include "hooks/frameworks.h"
#include "hooks/hooks.h"

#define FAIL_TEXT "_ZN3c106detail14torchCheckFailEPKcS2_jS2_"
#define FAIL_STRING "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"

/* The first fields of libstdc++'s std::string, in the ABI that the name above says (cxx11). */
struct string {
    const char *text;
    size_t bytes;
};

typedef void fail_function(const char *function, const char *file, uint32_t line, const void *message);

PS_EXPORT void ps_torch_check_fail(const char *function, const char *file, uint32_t line,
                                   const char *message) __asm__(FAIL_TEXT);
PS_EXPORT void ps_torch_check_fail_string(const char *function, const char *file, uint32_t line,
                                          const struct string *message) __asm__(FAIL_STRING);

/*
 * Returns the function that the caller would have found without `ours`. The function is
 * libc10.so's, which Python opens for torch alone. So the look-up searches where the caller's
 * object does. A function that is linked with the program is found behind us.
 *
 * One look-up serves all callers: torch's libraries share one libc10.so, which stays loaded (it has
 * unique symbols). A look-up through torch's libraries takes 0.4 ms. To some programs
 * (torch.compile) such an error is nothing unusual.
 */
static fail_function *real_function(fail_function *_Atomic *found, const char *name, const void *ours,
                                    const void *caller)
{
    fail_function *real = atomic_load_explicit(found, memory_order_relaxed);
    Dl_info object;

    if (real)
        return real;
    void *handle =
        dladdr(caller, &object) && object.dli_fname ? dlopen(object.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    void *there = handle ? ps_real_dlsym(handle, name) : NULL;
    if (handle)
        dlclose(handle);
    real = (fail_function *)(there && there != ours ? there : ps_real_dlsym(RTLD_NEXT, name));
    atomic_store_explicit(found, real, memory_order_relaxed);
    return real;
}

/*
 * Never returns, nor does `real`. A caller can't be linked with a function that we don't find. If
 * it were, it would get a std::runtime_error with that text.
 */
static void fail(fail_function *real, const char *function, const char *file, uint32_t line, const void *message,
                 const char *text)
{
    if (real)
        real(function, file, line, message);
    void (*throw_error)(const char *) =
        (void (*)(const char *))ps_real_dlsym(RTLD_DEFAULT, "_ZSt21__throw_runtime_errorPKc");
    if (throw_error)
        throw_error(text);
    abort(); /* a C++ caller without C++'s library */
}

/*
 * Logs the remedy once, if torch refuses something of its cudaMallocAsync backend. Logs nothing if
 * that backend was the user's choice.
 */
static void say_what_helps(const char *text)
{
    static atomic_bool said;
    /* `of` is in both of torch's names: cudaMallocAsync and CUDAMallocAsyncAllocator. */
    static const char of[] = "llocAsync", not_yet[] = "does not yet support ";
    const char *what = text ? strstr(text, not_yet) : NULL;

    if (!what || !strstr(text, of) || !ps_frameworks_chose_visible_tensors() ||
        atomic_exchange_explicit(&said, true, memory_order_relaxed))
        return;
    what += sizeof not_yet - 1;
    ps_log_warn(
        PROCESS,
        "torch has no %.*s with cudaMallocAsync, which Penstock asked it to use; "
        "PYTORCH_CUDA_ALLOC_CONF=backend:native keeps torch's own allocator, and Penstock then moves its segments, "
        "more slowly than tensors",
        (int)strcspn(what, ". "), what);
}

void ps_torch_check_fail(const char *function, const char *file, uint32_t line, const char *message)
{
    static fail_function *_Atomic found;

    say_what_helps(message);
    fail(real_function(&found, FAIL_TEXT, (void *)ps_torch_check_fail, __builtin_return_address(0)), function, file,
         line, message, message);
}

void ps_torch_check_fail_string(const char *function, const char *file, uint32_t line, const struct string *message)
{
    static fail_function *_Atomic found;

    say_what_helps(message->text);
    fail(real_function(&found, FAIL_STRING, (void *)ps_torch_check_fail_string, __builtin_return_address(0)), function,
         file, line, message, message->text);
}
