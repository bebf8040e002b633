/*
 * Buffers that NCCL keeps: registered with a communicator (ncclCommRegister), windows
 * (ncclCommWindowRegister), and the scalar of an operator in device memory. NCCL hands network
 * cards and other GPUs the pages behind the addresses at that time. So a registered span stays on
 * the device pages that it has then. If it could get none, it stays on its slot. It stays until it
 * is deregistered or its communicator ends. Longer does no harm.
 *
 * Two clocks: host order alone. Registering launches nothing, so no stream waits. Each use of the
 * bytes is an access of its own.
 *
 * Any thread that is not inside Penstock, without the registry lock.
 */
#ifndef PS_REGISTRATIONS_H
#define PS_REGISTRATIONS_H

#include "cuda/nccl_types.h"

/* NCCL's handle for a buffer is of one of these sorts. */
enum ps_registration_sort {
    PS_REGISTRATION_BUFFER,
    PS_REGISTRATION_WINDOW,
    PS_REGISTRATION_OPERATOR,
};

struct ps_registration;

/*
 * NCCL is about to be given this buffer to keep: holds the spans there. Returns NULL if no span
 * lies there, or if memory to note it is missing; then nothing is held.
 */
struct ps_registration *ps_registration_begins(const void *buffer, size_t bytes);

/*
 * NCCL has the buffer, under that handle. `handle` NULL: it will be known later, or never; the
 * spans are held until the communicator ends. Takes `registration`; NULL does no harm.
 */
void ps_registration_is_made(struct ps_registration *registration, ncclComm_t communicator,
                             enum ps_registration_sort sort, const void *handle);

/*
 * NCCL has the buffer, and writes the handle to `*where` by the end of the thread's group. Takes
 * `registration`; NULL does no harm.
 */
void ps_registration_is_made_in_group(struct ps_registration *registration, ncclComm_t communicator,
                                      enum ps_registration_sort sort, void *const *where);

/* NCCL refused the buffer. Takes `registration`; NULL does no harm. */
void ps_registration_failed(struct ps_registration *registration);

/* NCCL's handle ends. In a group, it ends with the group. */
void ps_registration_ends(ncclComm_t communicator, enum ps_registration_sort sort, const void *handle);

/* The thread's outermost group is over, with that result. */
void ps_registrations_group_ended(int result);

/* As ps_collective_communicator_ends, for the communicator's registrations. */
struct ps_registration *ps_registrations_communicator_ends(ncclComm_t communicator);
void ps_registrations_communicator_ended(struct ps_registration *ended);

#endif
