/*
 * Buffers that NCCL keeps: registered with a communicator (ncclCommRegister), windows (ncclCommWindowRegister), and the scalar of an operator in device
 * memory. What NCCL hands to network cards and other GPUs is the pages that lie behind the addresses at that time, so a span stays on the device pages
 * (or, where none could be had, on the slot) that it is on when it is registered, until it is deregistered or its communicator ends. Longer does no
 * harm.
 *
 * Two clocks: host order alone. Registering launches nothing, so no stream waits; whoever uses the bytes has an access of its own.
 *
 * Any thread that is not inside Penstock, without the registry lock.
 */
#ifndef PS_REGISTRATIONS_H
#define PS_REGISTRATIONS_H

#include "cuda/nccl_types.h"

/* What NCCL gives for it is a handle of one of these sorts. */
enum ps_registration_sort {
    PS_REGISTRATION_BUFFER,
    PS_REGISTRATION_WINDOW,
    PS_REGISTRATION_OPERATOR,
};

struct ps_registration;

/* NCCL is about to be given this buffer to keep: what lies there is held. NULL: no span does, or there is no memory to note it (it is not held then). */
struct ps_registration *ps_registration_begins(const void *buffer, size_t bytes);

/* It has it, under that handle. `handle` NULL: it will be known later, or never: held until the communicator ends. Takes `registration`; NULL is no harm. */
void ps_registration_is_made(struct ps_registration *registration, ncclComm_t communicator, enum ps_registration_sort sort,
                             const void *handle);

/* A handle that will be written to `*where` by the end of the thread's group. */
void ps_registration_is_made_in_group(struct ps_registration *registration, ncclComm_t communicator, enum ps_registration_sort sort,
                                      void *const *where);

/* It refused. */
void ps_registration_failed(struct ps_registration *registration);

/* The handle is NCCL's no more; in a group, when that is over. */
void ps_registration_ends(ncclComm_t communicator, enum ps_registration_sort sort, const void *handle);

/* The thread's outermost group is over. */
void ps_registrations_group_ended(int result);

/* The communicator is gone. */
void ps_registrations_communicator_ended(ncclComm_t communicator);

#endif
