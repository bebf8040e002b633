/*
 * CUDASIM_TRACE=FILE: one line for each API call and each operation queued, started and ended, with
 * one running number. Thread-safe.
 */
#ifndef CUDASIM_TRACE_H
#define CUDASIM_TRACE_H

#include <cuda.h>
#include <stdbool.h>

struct cudasim_operation;

/*
 * A call that ended; `within`: the call that it was made in, by somebody who is told of calls, or
 * NULL. The device lock may be held or not.
 */
void cudasim_trace_call(const char *name, CUresult result, const char *within);
/* `what` is queued, start or end. */
void cudasim_trace_operation(const char *what, const struct cudasim_operation *operation);
/* Around fork: the child starts with the lock free and writes no lines. */
void cudasim_trace_before_fork(void);
void cudasim_trace_after_fork(bool in_child);
/* Writes out what is buffered. */
void cudasim_trace_flush(void);

#endif
