/*
 * The real CUPTI library (libcupti.so.13 or .12): the entry points that the tracer calls. They are
 * resolved once, at the program's first CUDA call.
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
 * Opens the CUPTI of one place; the caller tries one place after the other. Place 0 is `path`
 * (PENSTOCK_CUPTI; may be NULL). The next ones are a loaded copy, or the copy that the loader's
 * search path has. The last are the toolkit's usual places, which count only if the former had no
 * CUPTI. In each, the release of the program's runtime comes first. Returns NULL if the place has
 * no CUPTI, and for PS_CUPTI_PLACES, which is past the last place. Called at the tracer's start, by
 * one thread at a time.
 */
const struct ps_real_cupti *ps_real_cupti_open(const char *path, unsigned place);

#endif
