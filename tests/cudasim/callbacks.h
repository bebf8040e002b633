/*
 * The interface by which the simulated driver (libcuda.so.1) reports events to the simulated CUPTI
 * (libcupti.so.13). The driver calls the sink on the thread that makes the API call. The only lock
 * that it then holds is a recursive one around resource callbacks (cuda/notify.h). So a sink may
 * call the driver.
 */
#ifndef CUDASIM_CALLBACKS_H
#define CUDASIM_CALLBACKS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One driver API call. The sink gets it twice: at the start of the call and at its end. */
struct cudasim_api_event {
    uint32_t cbid;      /* CUPTI_DRIVER_TRACE_CBID_... */
    bool at_exit;       /* false: before the call does anything; true: its result is known */
    const char *name;   /* the entry point's exported name; a constant */
    const void *params; /* the <name>_params structure of generated_cuda_meta.h, NULL for a call without parameters */
    CUresult *result;   /* the call's result; meaningful at the end only */
    const char *symbol; /* the kernel's name for a launch, else NULL */
    CUcontext context;  /* the thread's current context, or NULL */
    uint32_t context_id;
    uint32_t correlation_id;    /* the same in both events of a call */
    uint64_t *correlation_data; /* eight bytes that the sink may use between the two events */
};

/* A resource that was made or is about to go. `kind` is a CUpti_CallbackIdResource. */
struct cudasim_resource_event {
    int kind;
    CUcontext context;
    CUstream stream;    /* for stream events */
    uint32_t module_id; /* for module events */
    const void *cubin;
    size_t cubin_bytes;
};

struct cudasim_callback_sink {
    void (*api)(const struct cudasim_api_event *event);
    void (*resource)(const struct cudasim_resource_event *event);
};

/*
 * Installs the sink, which must live until the process ends; NULL removes it. Exported by
 * libcuda.so.1; thread-safe.
 */
void cudasim_set_callback_sink(const struct cudasim_callback_sink *sink);

#endif
