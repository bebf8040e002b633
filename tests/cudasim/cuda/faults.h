/*
 * CUDASIM_FAULT="call[@device|@host]:kind@n[+],...": failures on request. `call` is a driver entry
 * point's exported name (a _ptsz or _ptds twin counts as the same call; a version suffix may be
 * left out), `kind` is oom, error, notsupported or delay, and it strikes at the n-th call, or with
 * a plus at that and every later one. Thread-safe.
 */
#ifndef CUDASIM_FAULTS_H
#define CUDASIM_FAULTS_H

#include <cuda.h>

/*
 * Counts the call for the fault list and answers the error that it shall have, CUDA_SUCCESS for
 * none.
 */
CUresult cudasim_fault_for(unsigned int entry, const void *params);

#endif
