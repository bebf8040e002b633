/*
 * The real CUPTI library (libcupti.so.13, or .12): the entry points that the tracer calls, resolved once, at the program's first CUDA call.
 */
#ifndef PS_CUPTI_H
#define PS_CUPTI_H

#include <cupti.h>

struct ps_real_cupti {
    __typeof__(&cuptiSubscribe) cuptiSubscribe;
    __typeof__(&cuptiUnsubscribe) cuptiUnsubscribe;
    __typeof__(&cuptiEnableCallback) cuptiEnableCallback;
    __typeof__(&cuptiGetResultString) cuptiGetResultString;
};

#define PS_CUPTI_PLACES 7u

/*
 * Opens CUPTI as it is found in one place after the other: `place` 0 is `path` (PENSTOCK_CUPTI; may be NULL), then a copy that the process has
 * loaded or the loader's search path has, and if there is none the toolkit's usual places; everywhere first the release of the program's runtime. NULL
 * where there is none at that place, or at PS_CUPTI_PLACES, which is past the last. The tracer's start, one thread at a time.
 */
const struct ps_real_cupti *ps_real_cupti_open(const char *path, unsigned place);

#endif
