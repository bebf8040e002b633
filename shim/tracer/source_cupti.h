/* The tracer's first source: a CUPTI subscriber. */
#ifndef PS_SOURCE_CUPTI_H
#define PS_SOURCE_CUPTI_H

#include <stdbool.h>

/*
 * Starts CUPTI as the source. Returns 0; -ENOENT: no CUPTI; -EBUSY: another subscriber; -EIO. After
 * an error `*why` is its reason in words.
 */
int ps_source_cupti_start(const char *cupti_path, const char **why);

/*
 * Leaves CUPTI to another tool, and returns whether it did. It does so only if CUPTI was ours. The
 * other source must also have seen every launch and copy that CUPTI saw while tracing was on. Any
 * thread, one at a time.
 */
bool ps_source_cupti_give_way(void);

#endif
