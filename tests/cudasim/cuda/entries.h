/*
 * The driver entry points: their numbers, their names, and the checks that every call passes. The
 * functions that do the work are declared here from the list in entry_points.def. Each takes the
 * device lock itself where it needs it.
 */
#ifndef CUDASIM_ENTRIES_H
#define CUDASIM_ENTRIES_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "../../../shim/cuda/newer_cuda.h"

/* A number for each exported function. */
enum cudasim_entry {
#define CUDASIM_ENTRY(needs, name, parameters, arguments) CUDASIM_CALL_##name,
#define CUDASIM_ENTRY_PTSZ(needs, name, parameters, arguments) CUDASIM_CALL_##name, CUDASIM_CALL_##name##_ptsz,
#define CUDASIM_ENTRY_PTDS(needs, name, parameters, arguments) CUDASIM_CALL_##name, CUDASIM_CALL_##name##_ptds,
#define CUDASIM_ENTRY_BARE(needs, name) CUDASIM_CALL_##name,
#include "entry_points.def"
    CUDASIM_CALL_COUNT
};

/* The functions behind the exported ones. */
#define CUDASIM_ENTRY(needs, name, parameters, arguments) CUresult cudasim_##name parameters;
#define CUDASIM_ENTRY_PTSZ(needs, name, parameters, arguments) CUresult cudasim_##name parameters;
#define CUDASIM_ENTRY_PTDS(needs, name, parameters, arguments) CUresult cudasim_##name parameters;
#define CUDASIM_ENTRY_BARE(needs, name) CUresult cudasim_##name(void);
#include "entry_points.def"

/* Returns the exported name of an entry point, a constant. */
const char *cudasim_entry_name(unsigned int entry);

/* Returns the name of the calling thread's call in progress, or "" outside a call. */
const char *cudasim_call_name(void);
/*
 * Returns whether that call takes stream 0 for the thread's own default stream. The _ptsz and _ptds
 * entry points do.
 */
bool cudasim_call_per_thread_default(void);

/*
 * Notes that the call in progress names a stream of a destroyed context. It answers
 * CUDA_ERROR_CONTEXT_IS_DESTROYED instead of its error for such a handle.
 */
void cudasim_call_met_dead_context(void);

/* What a call needs before it does anything, in the words of the list. */
enum cudasim_needs {
    CUDASIM_NEEDS_PLAIN,
    CUDASIM_NEEDS_INIT,
    CUDASIM_NEEDS_CONTEXT,
};

/* Returns CUDA_SUCCESS when the need is met now, otherwise the call's error. */
CUresult cudasim_check_needs(enum cudasim_needs needs);

#endif
