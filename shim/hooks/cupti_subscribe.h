/*
 * cuptiSubscribe, by which tools (torch.profiler and its kin) become CUPTI's one subscriber. A tool that is refused because Penstock is the
 * subscriber gets CUPTI after all, if functions in front of the driver's see every launch too (start.h): asked once, it may never ask again.
 *
 * Reached by symbol, or because a look-up by dlsym is answered with ours.
 */
#ifndef PS_CUPTI_SUBSCRIBE_H
#define PS_CUPTI_SUBSCRIBE_H

/* Our function of that name, or `found`, which the name was found to be. Any thread. */
void *ps_cupti_stand_in(const char *name, void *found);

#endif
