/*
 * Variables that each managed device has for itself: those that decide about one device's memory.
 * Examples are budget, registry, slab, copy streams, learner and plans. The code is written as if
 * there were one device:
 *
 *     static PS_PER_DEVICE unsigned held_of;
 *     #define held PS_HERE(held_of)
 *
 * `held` belongs to the device that the calling thread is at. A module with several such variables
 * keeps them in one structure, which its .c file calls `dev`:
 *
 *     static PS_PER_DEVICE struct { ... } first_dev;
 *     #define dev (&PS_HERE(first_dev))
 *
 * All such variables lie in one section of the library, which is the first device's. Each further
 * device has a copy of the section elsewhere, as it was when the library was loaded. The distance
 * between the two says which device a thread is at. Kernels of operating systems make per-CPU
 * variables in the same way.
 *
 * A thread of the program is at the first device until it goes to another (devices.h). A helper
 * thread stays at the device of the thread that started it.
 */
#ifndef PS_PER_DEVICE_H
#define PS_PER_DEVICE_H

#include <stddef.h>

#define PS_PER_DEVICE __attribute__((section("ps_per_device")))

/* Bytes from the first device's variables to those of the thread's device; 0: the first device. */
extern __thread ptrdiff_t ps_here __attribute__((tls_model("initial-exec")));

/*
 * The variable of the thread's device. The address goes through an empty assembly statement.
 * Otherwise a compiler could take it to be within the first device's variable.
 */
#define PS_HERE(variable)                                                                                              \
    (*({                                                                                                               \
        __typeof__(&(variable)) at_first_;                                                                             \
        __asm__("" : "=r"(at_first_) : "0"(&(variable)));                                                              \
        (__typeof__(&(variable)))((char *)at_first_ + ps_here);                                                        \
    }))

#endif
