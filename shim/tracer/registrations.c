#include "tracer/registrations.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/counters.h"
#include "base/log.h"
#include "base/ordering_rules.h"
#include "cuda/managed_context.h"
#include "memory/blocks.h"
#include "memory/registry.h"
#include "residency/residency.h"
#include "tracer/collectives.h"

struct ps_registration {
    struct ps_registration *next;
    ncclComm_t communicator;
    enum ps_registration_sort sort;
    const void *handle;
    /*
     * The handle is there when the group of `thread` is over. NULL: the handle is known, or never
     * will be.
     */
    void *const *where;
    bool ends; /* with that group */
    pthread_t thread;
    unsigned device; /* the device of the buffer */
    size_t count, room;
    struct ps_span **span; /* the spans of the buffer's first and last byte, or all pieces of its block */
};

/* A leaf: with it held, nothing of Penstock or the driver is called. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ps_registration *registrations;

static void forget(struct ps_registration *r)
{
    if (r)
        free(r->span);
    free(r);
}

/*
 * Lists the span at the address, if there is one and it is not listed yet. Returns false if there
 * is no memory.
 */
static bool add_span(struct ps_registration *r, CUdeviceptr address)
{
    struct ps_span *span = ps_address_span(address);

    for (size_t i = 0; i < r->count; i++)
        if (r->span[i] == span)
            return true;
    struct ps_span **grown = span ? ps_grown_array(r->span, r->count, &r->room, 2, sizeof(struct ps_span *)) : NULL;
    if (!grown)
        return !span;
    r->span = grown;
    r->span[r->count++] = span;
    return true;
}

struct ps_registration *ps_registration_begins(const void *buffer, size_t bytes)
{
    CUdeviceptr first = (CUdeviceptr)buffer, last = first + (bytes ? bytes - 1 : 0);

    if ((!ps_address_span(first) && !ps_address_span(last)) || !ps_ordering_rule(NCCL_REGISTERED_STAYS))
        return NULL;
    struct ps_registration *r = calloc(1, sizeof *r);
    bool listed = r && add_span(r, first) && add_span(r, last);
    /* NCCL asks the driver where the allocation begins and ends, and keeps all of it. */
    CUdeviceptr at = first;
    size_t requested;
    for (ps_residency_look_up(first, &at, &requested); listed && (at = ps_block_next_piece(at));)
        listed = add_span(r, at);
    if (!listed) {
        ps_log_warn_once(TRACER, "no memory to record a buffer that NCCL registers: it may be moved while "
                                 "NCCL uses it; a lower PENSTOCK_HOST_BUDGET makes the slab smaller");
        forget(r);
        return NULL;
    }
    r->device = r->span[0]->device;
    struct ps_managed_context context = ps_managed_context_enter_at(r->device);
    ps_residency_hold(r->span, &r->count);
    ps_managed_context_leave(context);
    ps_count(nccl_registrations);
    return r;
}

static void let_go_all(struct ps_registration *r)
{
    while (r) {
        struct ps_registration *next = r->next;
        struct ps_managed_context context = ps_managed_context_enter_at(r->device);
        ps_residency_let_go(r->span, r->count, NULL);
        ps_managed_context_leave(context);
        forget(r);
        r = next;
    }
}

void ps_registration_failed(struct ps_registration *registration)
{
    let_go_all(registration);
}

static void add(struct ps_registration *r, ncclComm_t communicator, enum ps_registration_sort sort)
{
    r->communicator = communicator;
    r->sort = sort;
    r->thread = pthread_self();
    pthread_mutex_lock(&lock);
    r->next = registrations;
    registrations = r;
    pthread_mutex_unlock(&lock);
}

void ps_registration_is_made(struct ps_registration *registration, ncclComm_t communicator,
                             enum ps_registration_sort sort, const void *handle)
{
    if (!registration)
        return;
    registration->handle = handle;
    add(registration, communicator, sort);
}

void ps_registration_is_made_in_group(struct ps_registration *registration, ncclComm_t communicator,
                                      enum ps_registration_sort sort, void *const *where)
{
    if (!registration)
        return;
    registration->where = where;
    add(registration, communicator, sort);
}

/* Takes the registrations for which `is_meant` returns true off the list. */
static struct ps_registration *take(bool (*is_meant)(struct ps_registration *r, const struct ps_registration *asked),
                                    const struct ps_registration *asked)
{
    struct ps_registration *taken = NULL;

    pthread_mutex_lock(&lock);
    for (struct ps_registration **at = &registrations; *at;) {
        struct ps_registration *r = *at;
        if (!is_meant(r, asked)) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        r->next = taken;
        taken = r;
    }
    pthread_mutex_unlock(&lock);
    return taken;
}

static bool has_handle(struct ps_registration *r, const struct ps_registration *asked)
{
    bool is_it = r->handle && !r->ends && r->communicator == asked->communicator && r->sort == asked->sort &&
                 r->handle == asked->handle;

    if (!is_it || !asked->ends)
        return is_it;
    r->ends = true; /* when the group is over */
    r->thread = asked->thread;
    return false;
}

void ps_registration_ends(ncclComm_t communicator, enum ps_registration_sort sort, const void *handle)
{
    struct ps_registration asked = {.communicator = communicator,
                                    .sort = sort,
                                    .handle = handle,
                                    .ends = ps_collective_is_in_group(),
                                    .thread = pthread_self()};

    let_go_all(take(has_handle, &asked));
}

/* Also reads the handles that NCCL has written by now. */
static bool ended_in_group(struct ps_registration *r, const struct ps_registration *asked)
{
    if (!pthread_equal(r->thread, asked->thread))
        return false;
    if (r->where) {
        r->handle = asked->ends ? *r->where : NULL;
        r->where = NULL;
    }
    return r->ends && asked->ends;
}

void ps_registrations_group_ended(int result)
{
    /*
     * If a thread of NCCL goes on with the group, it may write the handle later. The handle's place
     * may be gone before we could read it. So the spans are held until the communicator ends.
     */
    struct ps_registration asked = {.ends = result == PS_NCCL_SUCCESS, .thread = pthread_self()};

    pthread_mutex_lock(&lock);
    bool any = registrations != NULL;
    pthread_mutex_unlock(&lock);
    if (any)
        let_go_all(take(ended_in_group, &asked));
}

static bool is_of_communicator(struct ps_registration *r, const struct ps_registration *asked)
{
    return r->communicator == asked->communicator;
}

struct ps_registration *ps_registrations_communicator_ends(ncclComm_t communicator)
{
    struct ps_registration asked = {.communicator = communicator};

    return take(is_of_communicator, &asked);
}

void ps_registrations_communicator_ended(struct ps_registration *ended)
{
    let_go_all(ended);
}
