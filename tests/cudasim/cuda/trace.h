/*
 * CUDASIM_TRACE=FILE: one line for each API call and for each operation queued, started and ended,
 * all numbered in one sequence. Thread-safe.
 */
#ifndef CUDASIM_TRACE_H
#define CUDASIM_TRACE_H

#include <cuda.h>
#include <stdbool.h>

struct cudasim_operation;

/*
 * Writes the line of a call that ended. `within` is the call in whose callback it was made, or
 * NULL. The caller may hold the device lock or not.
 */
void cudasim_trace_call(const char *name, CUresult result, const char *within);
/* Writes the line of an operation; `what` is queued, start or end. */
void cudasim_trace_operation(const char *what, const struct cudasim_operation *operation);
/* Called around fork. The child starts with the lock free, and writes no lines. */
void cudasim_trace_before_fork(void);
void cudasim_trace_after_fork(bool in_child);
/* Writes out the buffered lines. */
void cudasim_trace_flush(void);

#endif
