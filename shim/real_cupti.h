/*
 * The real CUPTI library (libcupti.so.13, or .12): the entry points that the tracer calls, resolved once, at the program's first CUDA call.
 */
#ifndef PS_REAL_CUPTI_H
#define PS_REAL_CUPTI_H

#include <cupti.h>

struct ps_real_cupti {
    __typeof__(&cuptiSubscribe) cuptiSubscribe;
    __typeof__(&cuptiUnsubscribe) cuptiUnsubscribe;
    __typeof__(&cuptiEnableCallback) cuptiEnableCallback;
    __typeof__(&cuptiGetResultString) cuptiGetResultString;
};

/*
 * Opens CUPTI and returns its table, or NULL where there is none. Looked for in this order: `path` (PENSTOCK_CUPTI; may be NULL), a copy
 * that the process has loaded, the loader's search path, the toolkit's usual places. Thread-safe; the first call's result is kept.
 */
const struct ps_real_cupti *ps_real_cupti_load(const char *path);

#endif
