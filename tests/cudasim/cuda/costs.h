/* The time that calls take on the calling thread (CUDASIM_CALL_NS). Thread-safe, without locks. */
#ifndef CUDASIM_COSTS_H
#define CUDASIM_COSTS_H

/* Spends the time of a call of this entry point. */
void cudasim_call_takes_time(unsigned int entry);

#endif
