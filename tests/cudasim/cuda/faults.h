/*
 * CUDASIM_FAULT="call[@device|@host]:kind@n[+],...": failures on request. `call` is a driver entry
 * point's exported name. A _ptsz or _ptds twin counts as the same call; a version suffix may be
 * omitted. `kind` is oom, error, notsupported or delay. It strikes at the n-th call, or with a plus
 * at that and every later call. Thread-safe.
 */
#ifndef CUDASIM_FAULTS_H
#define CUDASIM_FAULTS_H

#include <cuda.h>
#include <stdbool.h>

/* Counts the call for the fault list. Returns the error that it must answer, or CUDA_SUCCESS. */
CUresult cudasim_fault_for(unsigned int entry, const void *params);

/* Returns whether a user means this entry point by the name: its suffixes may be left out. */
bool cudasim_call_is(const char *asked, const char *name);

#endif
