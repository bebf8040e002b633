/*
 * cuptiSubscribe, by which tools (torch.profiler and its kin) become CUPTI's one subscriber. CUPTI
 * refuses a tool where Penstock is the subscriber. The tool then gets CUPTI after all, if functions
 * in front of the driver's see every launch too (start.h). A refused tool may never ask again.
 *
 * Reached by symbol, or because our function answers a look-up by dlsym.
 */
#ifndef PS_CUPTI_SUBSCRIBE_H
#define PS_CUPTI_SUBSCRIBE_H

/* Returns our function of that name, or `found`, the result of the look-up. Any thread. */
void *ps_cupti_stand_in(const char *name, void *found);

#endif
