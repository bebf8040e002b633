#include "guard.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>

#include "closed_pages.h"

/*
 * The signal handler reads this without a lock. So `size` is written last when a range is added,
 * and first when it is removed.
 */
struct guarded_range {
    _Atomic uintptr_t base;
    _Atomic size_t size;
};

#define RANGE_ROOM 1024
static struct guarded_range ranges[RANGE_ROOM];

struct guard_frame {
    sigjmp_buf back;
    volatile uintptr_t address;
    struct guard_frame *outer;
    struct cudasim_open_pages open;
};

static __thread struct guard_frame *volatile innermost;

static struct sigaction previous_segv, previous_bus;
static pthread_once_t install_once = PTHREAD_ONCE_INIT;

bool cudasim_guard_add_range(uintptr_t base, size_t size)
{
    for (size_t i = 0; i < RANGE_ROOM; i++) {
        if (atomic_load(&ranges[i].size))
            continue;
        atomic_store(&ranges[i].base, base);
        atomic_store(&ranges[i].size, size);
        return true;
    }
    return false;
}

void cudasim_guard_remove_range(uintptr_t base)
{
    for (size_t i = 0; i < RANGE_ROOM; i++)
        if (atomic_load(&ranges[i].size) && atomic_load(&ranges[i].base) == base)
            atomic_store(&ranges[i].size, 0);
}

bool cudasim_guard_covers(uintptr_t address)
{
    for (size_t i = 0; i < RANGE_ROOM; i++) {
        size_t size = atomic_load(&ranges[i].size);
        if (size && address - atomic_load(&ranges[i].base) < size)
            return true;
    }
    return false;
}

static void on_fault(int signal_number, siginfo_t *info, void *machine_state)
{
    struct guard_frame *frame = innermost;
    uintptr_t address = (uintptr_t)info->si_addr;
    if (frame && cudasim_closed_pages_open(address, &frame->open))
        return; /* the instruction runs again */
    if (frame && cudasim_guard_covers(address)) {
        frame->address = address;
        siglongjmp(frame->back, 1);
    }
    const struct sigaction *previous = signal_number == SIGSEGV ? &previous_segv : &previous_bus;
    if (previous->sa_flags & SA_SIGINFO) {
        previous->sa_sigaction(signal_number, info, machine_state);
    } else if (previous->sa_handler == SIG_DFL || previous->sa_handler == SIG_IGN) {
        /*
         * A return runs the faulting instruction again. It now ends the process as without the
         * simulator.
         */
        signal(signal_number, SIG_DFL);
    } else {
        previous->sa_handler(signal_number);
    }
}

static void install(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &previous_segv);
    sigaction(SIGBUS, &action, &previous_bus);
}

void cudasim_guard_install(void)
{
    pthread_once(&install_once, install);
}

bool cudasim_guarded(void (*work)(void *argument), void *argument, uintptr_t *fault_address)
{
    struct guard_frame frame;
    frame.address = 0;
    frame.open.count = 0;
    frame.outer = innermost;
    if (sigsetjmp(frame.back, 1)) {
        innermost = frame.outer;
        cudasim_closed_pages_close(&frame.open);
        *fault_address = frame.address;
        return false;
    }
    innermost = &frame;
    work(argument);
    innermost = frame.outer;
    cudasim_closed_pages_close(&frame.open);
    return true;
}
