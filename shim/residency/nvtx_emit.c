#include "residency/nvtx_emit.h"

#include <dlfcn.h>

#include "base/real_dlsym.h"

/*
 * Our own copy of NVTX; none of its functions is exported. It looks for the tool's library at its
 * first call.
 */
#define NVTX_SUPPORT_STATIC_INJECTION_LIBRARY 0
#define dlsym ps_real_dlsym /* the header looks up functions in that library */
#include <nvtx3/nvToolsExt.h>
#undef dlsym

bool ps_nvtx_emit_wanted;

static nvtxDomainHandle_t domain;

void ps_nvtx_emit_open(bool there_is_a_tool)
{
    if (!there_is_a_tool)
        return;
    domain = nvtxDomainCreateA("penstock"); /* a tool may return NULL: the default domain */
    ps_nvtx_emit_wanted = true;
}

void ps_nvtx_range_push(enum ps_nvtx_range what, const struct ps_slot *row)
{
    static const char *const names[] = {[PS_NVTX_EVICT] = "evict", [PS_NVTX_RELOAD] = "reload"};
    const nvtxEventAttributes_t range = {
        .version = NVTX_VERSION,
        .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
        .payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64,
        .payload.ullValue = ps_slab_row_bytes(row),
        .messageType = NVTX_MESSAGE_TYPE_ASCII,
        .message.ascii = names[what],
    };

    nvtxDomainRangePushEx(domain, &range);
}

void ps_nvtx_range_pop(void)
{
    nvtxDomainRangePop(domain);
}
