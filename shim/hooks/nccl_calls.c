/*
 * NCCL's calls. Each hook reports its call and the spans that it names (collectives.h,
 * registrations.h). A program reaches the hooks by symbol, or by looking NCCL's function up in the
 * library's handle (symbol_lookup.c).
 */
#include "hooks/nccl_calls.h"

#include <string.h>

#include "cuda/nccl.h"
#include "hooks/hooks.h"
#include "process.h"
#include "tracer/collectives.h"
#include "tracer/registrations.h"

/* The real function behind a hook, with its type; NULL if the loaded NCCL lacks it. */
#define REAL(name) ((__typeof__(&ps_hook_##name))ps_real_nccl(PS_NCCL_FUNCTION_##name))

/*
 * The result of a call that the program's NCCL lacks. Without us the linker would have refused the
 * program.
 */
#define LACKING PS_NCCL_INVALID_USAGE

/*
 * Returns whether there may be spans and the call is the program's. Returns false in a forked
 * child: a thread that the child lacks may hold a lock of ours.
 */
static bool is_looked_at(void)
{
    return !ps_inside && ps_process_has_begun();
}

/* ---- transfers ---- */

enum ranks { ONE, EACH };

static int ranks_of(ncclComm_t communicator)
{
    __typeof__(&ps_hook_ncclCommCount) real = REAL(ncclCommCount);
    int count = 1;

    if (!communicator || !real || real(communicator, &count) != PS_NCCL_SUCCESS || count < 1)
        return 1; /* the call will fail as this one did */
    return count;
}

/*
 * Returns the bytes of a buffer. Returns 0 if the size overflows: no memory is as large, and the
 * call will fail.
 */
static size_t bytes_of(size_t count, int datatype, enum ranks shares, ncclComm_t communicator)
{
    size_t bytes = count;

    if (__builtin_mul_overflow(bytes, ps_nccl_element_bytes(datatype), &bytes) ||
        (shares == EACH && __builtin_mul_overflow(bytes, (size_t)ranks_of(communicator), &bytes)))
        return 0;
    return bytes;
}

static struct ps_collective_buffer buffer(const void *address, size_t count, int datatype, enum ranks shares,
                                          ncclComm_t communicator)
{
    if (!ps_collective_concerns(address))
        return (struct ps_collective_buffer){0};
    return (struct ps_collective_buffer){address, bytes_of(count, datatype, shares, communicator)};
}

#define EXPORTED_AS(name, parameters)                                                                                  \
    extern int name parameters __attribute__((alias("ps_hook_" #name), visibility("default")));

#define PS_NCCL_TRANSFER(name, parameters, arguments, sent, of_sent, received, of_received)                            \
    int ps_hook_##name parameters                                                                                      \
    {                                                                                                                  \
        __typeof__(&ps_hook_##name) real = REAL(name);                                                                 \
                                                                                                                       \
        if (!real)                                                                                                     \
            return LACKING;                                                                                            \
        if (!is_looked_at() || (!ps_collective_concerns(sent) && !ps_collective_concerns(received)))                   \
            return real arguments;                                                                                     \
        const struct ps_collective_buffer buffers[] = {buffer(sent, count, datatype, of_sent, comm),                   \
                                                       buffer(received, count, datatype, of_received, comm)};          \
        ps_collective_begins(comm, stream, PS_NCCL_FUNCTION_##name, buffers, 2);                                       \
        int result = real arguments;                                                                                   \
        ps_collective_ended(result);                                                                                   \
        return result;                                                                                                 \
    }                                                                                                                  \
    EXPORTED_AS(name, parameters)
#define PS_NCCL_CALL(name, parameters, arguments) EXPORTED_AS(name, parameters)
#include "cuda/nccl.def"
#undef PS_NCCL_TRANSFER
#undef PS_NCCL_CALL

/* ---- groups: counted even before there are spans, which may be made before the group ends ---- */

int ps_hook_ncclGroupStart(void)
{
    __typeof__(&ps_hook_ncclGroupStart) real = REAL(ncclGroupStart);

    if (!real)
        return LACKING;
    int result = real();
    if (result == PS_NCCL_SUCCESS)
        ps_collective_group_starts();
    return result;
}

int ps_hook_ncclGroupEnd(void)
{
    __typeof__(&ps_hook_ncclGroupEnd) real = REAL(ncclGroupEnd);

    if (!real)
        return LACKING;
    ps_collective_group_ends(true);
    int result = real();
    if (!ps_collective_is_in_group() && is_looked_at()) {
        ps_collective_group_ended(result);
        ps_registrations_group_ended(result);
    }
    return result;
}

int ps_hook_ncclGroupSimulateEnd(void *simInfo)
{
    __typeof__(&ps_hook_ncclGroupSimulateEnd) real = REAL(ncclGroupSimulateEnd);

    if (!real)
        return LACKING;
    ps_collective_group_ends(false);
    int result = real(simInfo);
    if (!ps_collective_is_in_group() && is_looked_at())
        ps_registrations_group_ended(result);
    return result;
}

/* ---- communicators ---- */

int ps_hook_ncclCommCount(ncclComm_t comm, int *count)
{
    __typeof__(&ps_hook_ncclCommCount) real = REAL(ncclCommCount);

    return real ? real(comm, count) : LACKING;
}

int ps_hook_ncclCommGetAsyncError(ncclComm_t comm, int *asyncError)
{
    __typeof__(&ps_hook_ncclCommGetAsyncError) real = REAL(ncclCommGetAsyncError);

    if (!real)
        return LACKING;
    uint64_t mark = is_looked_at() ? ps_collective_mark() : 0;
    int result = real(comm, asyncError);
    if (mark && result == PS_NCCL_SUCCESS && asyncError)
        ps_collective_asked(comm, mark, *asyncError);
    return result;
}

static int end_communicator(int (*real)(ncclComm_t), ncclComm_t communicator)
{
    if (!real)
        return LACKING;
    const bool looks = is_looked_at();
    struct ps_collective *collectives = looks ? ps_collective_communicator_ends(communicator) : NULL;
    struct ps_registration *registrations = looks ? ps_registrations_communicator_ends(communicator) : NULL;
    int result = real(communicator);
    ps_collective_communicator_ended(collectives);
    ps_registrations_communicator_ended(registrations);
    return result;
}

int ps_hook_ncclCommDestroy(ncclComm_t comm)
{
    return end_communicator(REAL(ncclCommDestroy), comm);
}

int ps_hook_ncclCommAbort(ncclComm_t comm)
{
    return end_communicator(REAL(ncclCommAbort), comm);
}

/* ---- registrations that NCCL keeps ---- */

static struct ps_registration *keeps(const void *buffer, size_t bytes)
{
    return is_looked_at() && ps_collective_concerns(buffer) ? ps_registration_begins(buffer, bytes) : NULL;
}

int ps_hook_ncclCommRegister(ncclComm_t comm, void *buff, size_t size, void **handle)
{
    __typeof__(&ps_hook_ncclCommRegister) real = REAL(ncclCommRegister);

    if (!real)
        return LACKING;
    struct ps_registration *registration = keeps(buff, size);
    int result = real(comm, buff, size, handle);
    if (result == PS_NCCL_SUCCESS)
        ps_registration_is_made(registration, comm, PS_REGISTRATION_BUFFER, handle ? *handle : NULL);
    else
        ps_registration_failed(registration);
    return result;
}

int ps_hook_ncclCommDeregister(ncclComm_t comm, void *handle)
{
    __typeof__(&ps_hook_ncclCommDeregister) real = REAL(ncclCommDeregister);

    if (!real)
        return LACKING;
    int result = real(comm, handle);
    if (result == PS_NCCL_SUCCESS)
        ps_registration_ends(comm, PS_REGISTRATION_BUFFER, handle);
    return result;
}

int ps_hook_ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags)
{
    __typeof__(&ps_hook_ncclCommWindowRegister) real = REAL(ncclCommWindowRegister);

    if (!real)
        return LACKING;
    struct ps_registration *registration = keeps(buff, size);
    int result = real(comm, buff, size, win, winFlags);
    if (result == PS_NCCL_SUCCESS && win && ps_collective_is_in_group())
        ps_registration_is_made_in_group(registration, comm, PS_REGISTRATION_WINDOW, (void *const *)win);
    else if (result == PS_NCCL_SUCCESS)
        ps_registration_is_made(registration, comm, PS_REGISTRATION_WINDOW, win ? *win : NULL);
    else if (result == PS_NCCL_IN_PROGRESS)
        ps_registration_is_made(registration, comm, PS_REGISTRATION_WINDOW, NULL);
    else
        ps_registration_failed(registration);
    return result;
}

int ps_hook_ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
    __typeof__(&ps_hook_ncclCommWindowDeregister) real = REAL(ncclCommWindowDeregister);

    if (!real)
        return LACKING;
    int result = real(comm, win);
    if (result == PS_NCCL_SUCCESS)
        ps_registration_ends(comm, PS_REGISTRATION_WINDOW, win);
    return result;
}

/*
 * Returns a handle for an operator. Operators are small numbers, and each communicator gives out
 * the same ones.
 */
static const void *handle_of_operator(int op)
{
    return (const void *)((uintptr_t)(unsigned)op + 1);
}

int ps_hook_ncclRedOpCreatePreMulSum(int *op, void *scalar, int datatype, int residence, ncclComm_t comm)
{
    __typeof__(&ps_hook_ncclRedOpCreatePreMulSum) real = REAL(ncclRedOpCreatePreMulSum);

    if (!real)
        return LACKING;
    struct ps_registration *registration =
        residence == PS_NCCL_SCALAR_DEVICE ? keeps(scalar, ps_nccl_element_bytes(datatype)) : NULL;
    int result = real(op, scalar, datatype, residence, comm);
    if (result == PS_NCCL_SUCCESS)
        ps_registration_is_made(registration, comm, PS_REGISTRATION_OPERATOR, op ? handle_of_operator(*op) : NULL);
    else
        ps_registration_failed(registration);
    return result;
}

int ps_hook_ncclRedOpDestroy(int op, ncclComm_t comm)
{
    __typeof__(&ps_hook_ncclRedOpDestroy) real = REAL(ncclRedOpDestroy);

    if (!real)
        return LACKING;
    int result = real(op, comm);
    if (result == PS_NCCL_SUCCESS)
        ps_registration_ends(comm, PS_REGISTRATION_OPERATOR, handle_of_operator(op));
    return result;
}

/* ---- look-ups by name ---- */

static void *const ours[PS_NCCL_FUNCTIONS] = {
#define ENTRY(name) [PS_NCCL_FUNCTION_##name] = (void *)ps_hook_##name,
#define PS_NCCL_TRANSFER(name, parameters, arguments, sent, of_sent, received, of_received) ENTRY(name)
#define PS_NCCL_CALL(name, parameters, arguments) ENTRY(name)
#include "cuda/nccl.def"
#undef PS_NCCL_TRANSFER
#undef PS_NCCL_CALL
};

/*
 * A program may load NCCL under another file name, where only its own look-up finds it. Then the
 * function that the look-up found is the real one.
 */
void *ps_nccl_stand_in(const char *name, void *found)
{
    for (size_t i = 0; i < PS_NCCL_FUNCTIONS; i++)
        if (!strcmp(name, ps_nccl_name((enum ps_nccl_function)i)))
            return found != ours[i] && ps_real_nccl_or((enum ps_nccl_function)i, found) == found ? ours[i] : found;
    return found;
}
