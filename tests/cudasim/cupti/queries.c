/* The rest of the simulated CUPTI: versions, names, identities. */
#include <cupti.h>
#include <string.h>
#include <time.h>

#include "../../../shim/cuda/newer_cuda.h"
#include "../callbacks.h"

#define EXPORTED __attribute__((visibility("default")))

EXPORTED CUptiResult CUPTIAPI cuptiGetVersion(uint32_t *version)
{
    if (!version)
        return CUPTI_ERROR_INVALID_PARAMETER;
    *version = CUPTI_API_VERSION;
    return CUPTI_SUCCESS;
}

struct named_result {
    CUptiResult result;
    const char *name;
};

#define NAMED(result)                                                                                                  \
    {                                                                                                                  \
        result, #result                                                                                                \
    }

static const struct named_result results[] = {
    NAMED(CUPTI_SUCCESS),
    NAMED(CUPTI_ERROR_INVALID_PARAMETER),
    NAMED(CUPTI_ERROR_INVALID_CONTEXT),
    NAMED(CUPTI_ERROR_INVALID_STREAM),
    NAMED(CUPTI_ERROR_NOT_SUPPORTED),
    NAMED(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED),
};

EXPORTED CUptiResult CUPTIAPI cuptiGetResultString(CUptiResult result, const char **str)
{
    if (!str)
        return CUPTI_ERROR_INVALID_PARAMETER;
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (results[i].result == result) {
            *str = results[i].name;
            return CUPTI_SUCCESS;
        }
    return CUPTI_ERROR_INVALID_PARAMETER;
}

/* Only calls for which the simulator can make a callback have a name here. */
struct named_cbid {
    uint32_t cbid;
    const char *name;
};

#define NAMED_CBID(entry) {CUPTI_DRIVER_TRACE_CBID_##entry, #entry},
#define CUDASIM_ENTRY(needs, name, parameters, arguments) NAMED_CBID(name)
#define CUDASIM_ENTRY_PTSZ(needs, name, parameters, arguments) NAMED_CBID(name) NAMED_CBID(name##_ptsz)
#define CUDASIM_ENTRY_PTDS(needs, name, parameters, arguments) NAMED_CBID(name) NAMED_CBID(name##_ptds)
#define CUDASIM_ENTRY_BARE(needs, name) NAMED_CBID(name)
static const struct named_cbid driver_names[] = {
#include "../cuda/entry_points.def"
};

static const struct named_cbid resource_names[] = {
    {CUPTI_CBID_RESOURCE_CONTEXT_CREATED, "CONTEXT_CREATED"},
    {CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING, "CONTEXT_DESTROY_STARTING"},
    {CUPTI_CBID_RESOURCE_STREAM_CREATED, "STREAM_CREATED"},
    {CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING, "STREAM_DESTROY_STARTING"},
    {CUPTI_CBID_RESOURCE_MODULE_LOADED, "MODULE_LOADED"},
};

static const char *name_of(const struct named_cbid *names, size_t count, uint32_t cbid)
{
    for (size_t i = 0; i < count; i++)
        if (names[i].cbid == cbid)
            return names[i].name;
    return NULL;
}

EXPORTED CUptiResult CUPTIAPI cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t cbid, const char **name)
{
    if (!name)
        return CUPTI_ERROR_INVALID_PARAMETER;
    const char *found = NULL;
    if (domain == CUPTI_CB_DOMAIN_DRIVER_API)
        found = name_of(driver_names, sizeof driver_names / sizeof *driver_names, cbid);
    else if (domain == CUPTI_CB_DOMAIN_RESOURCE)
        found = name_of(resource_names, sizeof resource_names / sizeof *resource_names, cbid);
    if (!found)
        return CUPTI_ERROR_INVALID_PARAMETER;
    *name = found;
    return CUPTI_SUCCESS;
}

EXPORTED CUptiResult CUPTIAPI cuptiSupportedDomains(size_t *domainCount, CUpti_DomainTable *domainTable)
{
    static CUpti_CallbackDomain domains[] = {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_CB_DOMAIN_RESOURCE};
    if (!domainCount || !domainTable)
        return CUPTI_ERROR_INVALID_PARAMETER;
    *domainCount = sizeof domains / sizeof *domains;
    *domainTable = domains;
    return CUPTI_SUCCESS;
}

EXPORTED CUptiResult CUPTIAPI cuptiGetTimestamp(uint64_t *timestamp)
{
    if (!timestamp)
        return CUPTI_ERROR_INVALID_PARAMETER;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *timestamp = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return CUPTI_SUCCESS;
}

EXPORTED CUptiResult CUPTIAPI cuptiGetContextId(CUcontext context, uint32_t *contextId)
{
    unsigned long long id = 0;
    if (!contextId)
        return CUPTI_ERROR_INVALID_PARAMETER;
    if (!context || cuCtxGetId(context, &id) != CUDA_SUCCESS)
        return CUPTI_ERROR_INVALID_CONTEXT;
    *contextId = (uint32_t)id;
    return CUPTI_SUCCESS;
}

EXPORTED CUptiResult CUPTIAPI cuptiGetStreamIdEx(CUcontext context, CUstream stream, uint8_t perThreadStream,
                                                 uint32_t *streamId)
{
    unsigned long long id = 0;
    if (!context)
        return CUPTI_ERROR_INVALID_CONTEXT;
    if (!streamId)
        return CUPTI_ERROR_INVALID_PARAMETER;
    if (cuStreamGetId(!stream && perThreadStream ? CU_STREAM_PER_THREAD : stream, &id) != CUDA_SUCCESS)
        return CUPTI_ERROR_INVALID_STREAM;
    *streamId = (uint32_t)id;
    return CUPTI_SUCCESS;
}

EXPORTED CUptiResult CUPTIAPI cuptiGetStreamId(CUcontext context, CUstream stream, uint32_t *streamId)
{
    return cuptiGetStreamIdEx(context, stream, 0, streamId);
}

EXPORTED CUptiResult CUPTIAPI cuptiFinalize(void)
{
    return CUPTI_ERROR_NOT_SUPPORTED;
}
