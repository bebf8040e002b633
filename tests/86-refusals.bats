#!/usr/bin/env bats
# What the driver, or the machine, goes on refusing while work is under way: waits for copies, mappings, contexts and threads of Penstock's own. The results
# are right, nothing is unmapped or used again under work whose end nobody knows, nothing hangs, and what is said is true.

load helper
load small_trainer

setup() {
    # A fault makes a program slower at most; a minute is a hang.
    helper_setup 20
    requires sim samples jq
}

# stands_aside PATTERN: the last run was that of the plain program, one line says why, and so does the report
stands_aside() {
    right_results && said "standing aside, the program runs as without Penstock: .*$1" && sound &&
        contains "$(report stands_aside)" "$1"
}

# --- helper threads --------------------------------------------------------------------------------------------------------------------------
# The thread was parked for ever, silently, and what it does was waited for.
@test "a helper thread that is refused its context tries again" {
    local fault
    for fault in cuCtxSetCurrent:error@{2..6} cuCtxSetCurrent:error@3,cuCtxPushCurrent:error@1 cuCtxSetCurrent:error@3+; do
        train CUDASIM_FAULT="$fault"
        right_results
        sound
        said
        counted evictions
        at_most 5000000000 "$(report host_wait_ns)" "time waited with $fault"
    done
}

@test "helper threads that never get a context: at the start the program runs as without Penstock, later without what they do" {
    local at
    # Those that others wait for begin first, four at once; some of them may have theirs already.
    for at in {2..12}; do
        train CUDASIM_FAULT="cuCtxSetCurrent:error@$at+,cuCtxPushCurrent:error@1+"
        [ "$at" -ne 2 ] || stands_aside "its helper threads can't have the device's context"
        right_results
        sound
        at_most 5000000000 "$(report host_wait_ns)" "time waited, refused from call $at on"
    done
}

# few_threads: a library that lets Penstock's own threads be started up to the FEW-th
few_threads() {
    build_probe few.so -shared -fPIC <<'END'
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *given)
{
    static atomic_int started;
    __typeof__(&pthread_create) real = (__typeof__(real))dlsym(RTLD_NEXT, "pthread_create");
    Dl_info info;

    if (dladdr(__builtin_return_address(0), &info) && strstr(info.dli_fname, "libpenstock") &&
        atomic_fetch_add(&started, 1) >= atoi(getenv("FEW")))
        return EAGAIN;
    return real(thread, attributes, run, given);
}
END
}

# A thread that lacked was said to be left out, and what it does was waited for, 30 s each time.
@test "threads that can't be started: the program runs as without Penstock, or without what they do" {
    requires cc
    local few
    few_threads
    for few in {0..20}; do
        train "LD_PRELOAD=${SANITIZER:+$SANITIZER:}$PENSTOCK_SO:$WORK/few.so" FEW="$few"
        if [ "$few" -lt 12 ]; then
            stands_aside "its helper threads can't be started, the limit of processes \(ulimit -u\) is too low"
        fi
        right_results
        sound
        at_most 5000000000 "$(report host_wait_ns)" "time waited with $few threads"
    done
    counted evictions
    # Under `auto` they begin when memory becomes short.
    for few in {0..14}; do
        train "LD_PRELOAD=${SANITIZER:+$SANITIZER:}$PENSTOCK_SO:$WORK/few.so" FEW="$few" PENSTOCK_BUDGET=auto CUDASIM_MEMORY="$(share 140)"
        right_results
        sound
        at_most 5000000000 "$(report host_wait_ns)" "time waited with $few threads, which begin late"
    done
}
