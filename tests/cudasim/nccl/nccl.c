/*
 * The simulated NCCL's calls. As in NCCL, requests are collected until the outermost group ends,
 * and launched then.
 */
#include "nccl.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "communicator.h"

#define EXPORT __attribute__((visibility("default")))

/* ---- groups ---- */

static __thread struct {
    unsigned depth;
    ncclResult_t error; /* of the first call that failed; then nothing of the group is done */
    struct request *requests;
    size_t count, room;
} group;

/* Requests that a thread launches for communicators that don't block. */
struct job {
    struct request *requests;
    size_t count;
};

static void set_state(const struct request *requests, size_t count, ncclResult_t state)
{
    for (size_t i = 0; i < count; i++)
        atomic_store(&requests[i].comm->state, state);
}

static void rest(const char *variable, useconds_t us)
{
    const char *delay = getenv(variable);

    usleep(delay ? (useconds_t)atoi(delay) : us);
}

static void *launch_later(void *argument)
{
    struct job *job = argument;

    rest("CUDASIM_NCCL_DELAY_US", 2000);
    set_state(job->requests, job->count, cudasim_nccl_carry_out(job->requests, job->count));
    free(job->requests);
    free(job);
    return NULL;
}

static ncclResult_t leave_to_thread(struct request *requests, size_t count)
{
    struct job *job = malloc(sizeof *job);
    pthread_t thread;

    if (!job)
        return ncclSystemError;
    *job = (struct job){requests, count};
    set_state(requests, count, ncclInProgress);
    if (pthread_create(&thread, NULL, launch_later, job)) {
        set_state(requests, count, ncclSystemError);
        free(job);
        return ncclSystemError;
    }
    pthread_detach(thread);
    return ncclInProgress;
}

static ncclResult_t finish_group(void)
{
    struct request *requests = group.requests;
    size_t count = group.count;
    ncclResult_t result = group.error;
    bool blocking = true;

    group.requests = NULL;
    group.count = group.room = 0;
    group.error = ncclSuccess;
    for (size_t i = 0; i < count; i++)
        blocking &= requests[i].comm->blocking;
    if (result == ncclSuccess && count && !blocking) {
        result = leave_to_thread(requests, count);
        if (result == ncclInProgress)
            return result;
    } else if (result == ncclSuccess && count) {
        result = cudasim_nccl_carry_out(requests, count);
    }
    free(requests);
    return result;
}

EXPORT ncclResult_t ncclGroupStart(void)
{
    group.depth++;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclGroupEnd(void)
{
    if (!group.depth)
        return ncclInvalidUsage;
    return --group.depth ? ncclSuccess : finish_group();
}

EXPORT ncclResult_t ncclGroupSimulateEnd(void *info)
{
    (void)info;
    if (!group.depth)
        return ncclInvalidUsage;
    if (!--group.depth) {
        free(group.requests);
        group.requests = NULL;
        group.count = group.room = 0;
        group.error = ncclSuccess;
    }
    return ncclSuccess;
}

static ncclResult_t fail(ncclResult_t error)
{
    if (group.depth && group.error == ncclSuccess)
        group.error = error;
    return error;
}

static ncclResult_t ready(ncclComm_t comm)
{
    if (!comm)
        return ncclInvalidArgument;
    int state = atomic_load(&comm->state);
    return state == ncclInProgress ? ncclInvalidArgument : (ncclResult_t)state;
}

static ncclResult_t ask_for(struct request request)
{
    ncclResult_t r = ready(request.comm);

    if (r != ncclSuccess)
        return fail(r);
    if (group.count == group.room) {
        size_t room = group.room ? 2 * group.room : 8;
        struct request *more = realloc(group.requests, room * sizeof *more);
        if (!more)
            return fail(ncclSystemError);
        group.requests = more;
        group.room = room;
    }
    group.requests[group.count++] = request;
    return group.depth ? ncclSuccess : finish_group();
}

/* ---- transfers ---- */

static size_t size_of(ncclDataType_t datatype)
{
    switch (datatype) {
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
        return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
        return 8;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
        return 1;
    default:
        return 0;
    }
}

static bool is_peer(ncclComm_t comm, int rank)
{
    return comm && rank >= 0 && rank < comm->nranks;
}

static ncclResult_t reduce(const char *sent, void *received, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, CUstream stream)
{
    struct request r = {.comm = comm, .stream = stream};

    if (!comm || !sent || !received || (datatype != ncclInt32 && datatype != ncclUint32 && datatype != ncclFloat32))
        return fail(ncclInvalidArgument);
    r.work = (struct work){
        .kind = WORK_REDUCE, .sent = sent, .received = received, .bytes = 4 * count, .datatype = datatype};
    r.work.factor = op == ncclAvg ? 1 : (uint32_t)comm->nranks;
    int own = (int)op - ncclNumOps;
    if (own >= 0 && own < SCALARS_MAX && comm->operators[own].used)
        r.work.scalar = comm->operators[own].scalar;
    else if (op != ncclSum && op != ncclAvg)
        return fail(ncclInvalidArgument);
    return ask_for(r);
}

static ncclResult_t copy(const char *sent, void *received, size_t count, size_t blocks, ncclDataType_t datatype,
                         ncclComm_t comm, CUstream stream)
{
    struct request r = {.comm = comm, .stream = stream};
    struct work w = {
        .kind = WORK_COPY, .sent = sent, .received = received, .bytes = count * size_of(datatype), .blocks = blocks};

    if (!sent || !received || !size_of(datatype))
        return fail(ncclInvalidArgument);
    r.work = w;
    return ask_for(r);
}

/* Returns this rank's own block of several. */
static const char *own_block(const void *blocks, size_t count, ncclDataType_t datatype, ncclComm_t comm)
{
    return comm ? (const char *)blocks + (size_t)comm->rank * count * size_of(datatype) : NULL;
}

static size_t ranks(ncclComm_t comm)
{
    return comm ? (size_t)comm->nranks : 0;
}

/*
 * Returns whether this rank is the root, where the others' data comes in. Other ranks have no
 * visible work.
 */
static bool root_takes(ncclComm_t comm, int root)
{
    return comm && root == comm->rank;
}

static ncclResult_t ask_for_nothing(ncclComm_t comm, int root)
{
    return is_peer(comm, root) ? ready(comm) : fail(ncclInvalidArgument);
}

/* Each call exists twice: plain, and with a configuration, which changes nothing here. */
EXPORT ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                  ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return reduce(sendbuff, recvbuff, count, datatype, op, comm, stream);
}

EXPORT ncclResult_t ncclAllReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const void *config);
ncclResult_t ncclAllReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                 ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const void *config)
{
    (void)config;
    return ncclAllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream);
}

EXPORT ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                                  ncclComm_t comm, cudaStream_t stream)
{
    return is_peer(comm, root) ? copy(sendbuff, recvbuff, count, 1, datatype, comm, stream) : fail(ncclInvalidArgument);
}

EXPORT ncclResult_t ncclBroadcastConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                        int root, ncclComm_t comm, cudaStream_t stream, const void *config);
ncclResult_t ncclBroadcastConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                                 ncclComm_t comm, cudaStream_t stream, const void *config)
{
    (void)config;
    return ncclBroadcast(sendbuff, recvbuff, count, datatype, root, comm, stream);
}

EXPORT ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                               ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    return root_takes(comm, root) ? reduce(sendbuff, recvbuff, count, datatype, op, comm, stream)
                                  : ask_for_nothing(comm, root);
}

EXPORT ncclResult_t ncclReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                     ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                                     const void *config);
ncclResult_t ncclReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                              ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream, const void *config)
{
    (void)config;
    return ncclReduce(sendbuff, recvbuff, count, datatype, op, root, comm, stream);
}

EXPORT ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
                                      ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return reduce(own_block(sendbuff, recvcount, datatype, comm), recvbuff, recvcount, datatype, op, comm, stream);
}

EXPORT ncclResult_t ncclReduceScatterConfig(const void *sendbuff, void *recvbuff, size_t recvcount,
                                            ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                            cudaStream_t stream, const void *config);
ncclResult_t ncclReduceScatterConfig(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
                                     ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const void *config)
{
    (void)config;
    return ncclReduceScatter(sendbuff, recvbuff, recvcount, datatype, op, comm, stream);
}

EXPORT ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                                  ncclComm_t comm, cudaStream_t stream)
{
    return copy(sendbuff, recvbuff, sendcount, ranks(comm), datatype, comm, stream);
}

EXPORT ncclResult_t ncclAllGatherConfig(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                                        ncclComm_t comm, cudaStream_t stream, const void *config);
ncclResult_t ncclAllGatherConfig(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                                 ncclComm_t comm, cudaStream_t stream, const void *config)
{
    (void)config;
    return ncclAllGather(sendbuff, recvbuff, sendcount, datatype, comm, stream);
}

EXPORT ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                 ncclComm_t comm, cudaStream_t stream)
{
    return copy(own_block(sendbuff, count, datatype, comm), recvbuff, count, ranks(comm), datatype, comm, stream);
}

EXPORT ncclResult_t ncclAlltoAllConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                       ncclComm_t comm, cudaStream_t stream, const void *config);
ncclResult_t ncclAlltoAllConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                ncclComm_t comm, cudaStream_t stream, const void *config)
{
    (void)config;
    return ncclAlltoAll(sendbuff, recvbuff, count, datatype, comm, stream);
}

EXPORT ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                               ncclComm_t comm, cudaStream_t stream)
{
    return root_takes(comm, root) ? copy(sendbuff, recvbuff, count, ranks(comm), datatype, comm, stream)
                                  : ask_for_nothing(comm, root);
}

EXPORT ncclResult_t ncclGatherConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                     int root, ncclComm_t comm, cudaStream_t stream, const void *config);
ncclResult_t ncclGatherConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                              ncclComm_t comm, cudaStream_t stream, const void *config)
{
    (void)config;
    return ncclGather(sendbuff, recvbuff, count, datatype, root, comm, stream);
}

EXPORT ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                                ncclComm_t comm, cudaStream_t stream)
{
    return is_peer(comm, root)
               ? copy(own_block(sendbuff, count, datatype, comm), recvbuff, count, 1, datatype, comm, stream)
               : fail(ncclInvalidArgument);
}

EXPORT ncclResult_t ncclScatterConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                      int root, ncclComm_t comm, cudaStream_t stream, const void *config);
ncclResult_t ncclScatterConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                               ncclComm_t comm, cudaStream_t stream, const void *config)
{
    (void)config;
    return ncclScatter(sendbuff, recvbuff, count, datatype, root, comm, stream);
}

EXPORT ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                              cudaStream_t stream)
{
    return ncclBroadcast(buff, buff, count, datatype, root, comm, stream);
}

EXPORT ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                             cudaStream_t stream)
{
    struct request r = {.comm = comm, .stream = stream, .peer = peer};

    r.work = (struct work){.kind = WORK_SEND, .sent = sendbuff, .bytes = count * size_of(datatype)};
    return is_peer(comm, peer) && sendbuff && size_of(datatype) ? ask_for(r) : fail(ncclInvalidArgument);
}

EXPORT ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                             cudaStream_t stream)
{
    struct request r = {.comm = comm, .stream = stream, .peer = peer};

    r.work = (struct work){.kind = WORK_RECEIVE, .received = recvbuff, .bytes = count * size_of(datatype)};
    return is_peer(comm, peer) && recvbuff && size_of(datatype) ? ask_for(r) : fail(ncclInvalidArgument);
}

/* One-sided transfers are not simulated. */
EXPORT ncclResult_t ncclPutSignal(const void *localbuff, size_t count, ncclDataType_t datatype, int peer,
                                  ncclWindow_t window, size_t offset, int signal, int context, unsigned int flags,
                                  ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclPutSignal(const void *localbuff, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t window,
                           size_t offset, int signal, int context, unsigned int flags, ncclComm_t comm,
                           cudaStream_t stream)
{
    (void)localbuff, (void)count, (void)datatype, (void)peer, (void)window, (void)offset;
    (void)signal, (void)context, (void)flags, (void)comm, (void)stream;
    return fail(ncclInvalidUsage);
}

/* ---- communicators ---- */

/*
 * Memory of a communicator that has ended, for the next one. The allocator would keep it for the
 * thread that ended it; here, a new communicator of any thread has the pointer of the last one.
 */
static struct ncclComm *_Atomic spare;

static struct ncclComm *new_communicator(void)
{
    struct ncclComm *c = atomic_exchange(&spare, NULL);

    if (!c)
        return calloc(1, sizeof *c);
    memset(c, 0, sizeof *c);
    return c;
}

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id, 7, sizeof *id);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
                                           ncclConfig_t *config)
{
    struct ncclComm *c = new_communicator();

    (void)id;
    if (!c || nranks < 1 || rank < 0 || rank >= nranks || cuCtxGetCurrent(&c->context) != CUDA_SUCCESS || !c->context ||
        cuEventCreate(&c->launched, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        free(c);
        return ncclInvalidArgument;
    }
    pthread_mutex_init(&c->lock, NULL);
    c->nranks = nranks;
    c->rank = rank;
    c->blocking = !config || config->blocking != 0;
    *comm = c;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
    return ncclCommInitRankConfig(comm, nranks, id, rank, NULL);
}

/* First waits until the device has finished its work. */
EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (!comm)
        return ncclInvalidArgument;
    while (atomic_load(&comm->state) == ncclInProgress)
        usleep(100);
    cuCtxSynchronize();
    pthread_mutex_lock(&comm->lock);
    while (comm->registrations)
        cudasim_nccl_deregister(comm, comm->registrations);
    pthread_mutex_unlock(&comm->lock);
    for (struct mail *letter = comm->mail, *next; letter; letter = next) {
        next = letter->next;
        free(letter);
    }
    for (struct queue *q = comm->queue, *next; q; q = next) {
        next = q->next;
        cuMemFreeHost(q);
    }
    cuEventDestroy(comm->launched);
    pthread_mutex_destroy(&comm->lock);
    free(atomic_exchange(&spare, comm));
    rest("CUDASIM_NCCL_END_US", 0);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    return ncclCommDestroy(comm);
}

EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    if (!comm || !state)
        return ncclInvalidArgument;
    *state = (ncclResult_t)atomic_load(&comm->state);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    ncclResult_t r = ready(comm);

    if (r == ncclSuccess)
        *count = comm->nranks;
    return r;
}

/* ---- registrations, windows and operators ---- */

EXPORT ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle)
{
    ncclResult_t r = ready(comm);

    if (r != ncclSuccess || !handle)
        return r != ncclSuccess ? r : ncclInvalidArgument;
    pthread_mutex_lock(&comm->lock);
    r = cudasim_nccl_register(comm, buff, size, handle);
    pthread_mutex_unlock(&comm->lock);
    return r;
}

EXPORT ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    if (!comm)
        return ncclInvalidArgument;
    pthread_mutex_lock(&comm->lock);
    cudasim_nccl_deregister(comm, handle);
    pthread_mutex_unlock(&comm->lock);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int flags)
{
    struct request r = {.comm = comm, .window = win, .work = {.received = buff, .bytes = size}};

    (void)flags;
    return comm && win && buff ? ask_for(r) : fail(ncclInvalidArgument);
}

EXPORT ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
    return ncclCommDeregister(comm, win);
}

EXPORT ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                             ncclScalarResidence_t residence, ncclComm_t comm)
{
    int free_one = 0;

    (void)datatype;
    if (!comm || !op || residence != ncclScalarDevice)
        return fail(ncclInvalidArgument);
    while (free_one < SCALARS_MAX && comm->operators[free_one].used)
        free_one++;
    if (free_one == SCALARS_MAX)
        return fail(ncclSystemError);
    comm->operators[free_one].used = true;
    comm->operators[free_one].scalar = scalar;
    *op = (ncclRedOp_t)(ncclNumOps + free_one);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    int own = (int)op - ncclNumOps;

    if (!comm || own < 0 || own >= SCALARS_MAX || !comm->operators[own].used)
        return ncclInvalidArgument;
    comm->operators[own].used = false;
    return ncclSuccess;
}
