/*
 * Variables of which each managed device has its own: budget, registry, slab, copy streams, learner, plans, and what else decides about one device's
 * memory. Written as if there were one device,
 *
 *     static PS_PER_DEVICE unsigned held_of;
 *     #define held PS_HERE(held_of)
 *
 * `held` is that of the device that the calling thread is at. All such variables lie in one section of the library, which is the first device's; each
 * further one has a copy of the section as it was when the library was loaded, elsewhere. A thread is at a device by the distance between the two. (The
 * per-CPU variables of operating systems' kernels are made so.)
 *
 * A thread of the program's is at the first device until it goes to another (devices.h); a helper thread is at the device of who started it, for good.
 */
#ifndef PS_PER_DEVICE_H
#define PS_PER_DEVICE_H

#include <stddef.h>

#define PS_PER_DEVICE __attribute__((section("ps_per_device")))

/* Bytes from the first device's variables to those of the device that the thread is at; 0: it is the first. */
extern __thread ptrdiff_t ps_here __attribute__((tls_model("initial-exec")));

/* The address goes through the empty statement so that no compiler takes it to be within the variable that it is computed from. */
#define PS_HERE(variable)                                                                                                                  \
    (*({                                                                                                                                   \
        __typeof__(&(variable)) at_first_;                                                                                                 \
        __asm__("" : "=r"(at_first_) : "0"(&(variable)));                                                                                  \
        (__typeof__(&(variable)))((char *)at_first_ + ps_here);                                                                            \
    }))

#endif
