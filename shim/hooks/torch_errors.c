/*
 * What torch refuses on the backend that Penstock asks it for. Its own allocator can do a few
 * things more (memory history, sharing tensors with other processes, pools, what graphs of
 * torch.compile share), and TORCH_CHECK ends a program that wants them with a text that says
 * nothing of Penstock. The command may not say so beforehand (torch_settings.h), so the line that
 * says what to do stands in front of torch's.
 *
 * TORCH_CHECK throws by two functions of libc10.so, c10::detail::torchCheckFail(const char
 * *function, const char *file, uint32_t line, message), of which one takes a const char * and one a
 * const std::string & (libc10.so of torch 2.11.0 and 2.15.0). They are C++, so they stand here by
 * their mangled names. What is thrown is theirs: the exception passes through no frame that has
 * anything to do.
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

/* How libstdc++'s std::string begins, in the ABI that the name above says (cxx11). */
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
 * The one that the caller would have found without `ours`. It is libc10.so's, which Python opens
 * for torch alone, so it is looked for where the caller's object looks; what is linked with the
 * program is found behind us. Once for all callers: libraries of torch's share one libc10.so, which
 * stays loaded (it has unique symbols). A look through torch's libraries takes 0.4 ms, and there
 * are programs (torch.compile) for which such an error is no event.
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
 * Never returns, as what it calls. That a caller links with what we don't find can't be; it would
 * get a std::runtime_error of that text.
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
    abort(); /* C++ without its library */
}

/*
 * The first time that torch refuses something of its cudaMallocAsync backend's, and that backend
 * was not the user's choice.
 */
static void say_what_helps(const char *text)
{
    static atomic_bool said;
    static const char of[] = "llocAsync",
                      not_yet[] = "does not yet support "; /* cudaMallocAsync, CUDAMallocAsyncAllocator */
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
