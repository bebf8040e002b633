/*
 * Those who watch what happens below them: the trace, and `penstock verify`. They fill this table in the set-up, and are called through it.
 *
 * Threads: as at each; the table itself is constant after the set-up.
 */
#ifndef PS_OBSERVERS_H
#define PS_OBSERVERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct CUfunc_st;
struct CUstream_st;
struct penstock_step;
struct ps_event_record;
struct ps_span;
struct ps_span_facts;

struct ps_observers {
    /* Penstock stands aside; `why` may be NULL. Any thread. */
    void (*stands_aside)(const char *why);

    /* A record for the trace (observe/trace.h); false: there is no room for it. Any thread, with the registry lock or without it. */
    bool (*event)(struct ps_event_record *record);

    /* The rest is for `penstock verify`, and is called only while ps_verify_is_on(). */

    /* A span begins a life. [locked] */
    void (*born)(const struct ps_span *span);
    /*
     * Around a launch of a kernel, or of a graph (function NULL): when its spans are ready and it is about to be queued; when it is queued. Parameters as the
     * launch has them; `stream` may be CU_STREAM_PER_THREAD. [unlocked]
     */
    void (*launch)(struct CUstream_st *stream, struct CUfunc_st *function, void **parameters, void **extra);
    void (*launched)(void);
    /*
     * A step was recorded. First each span of it, by its number in the round that was recorded, with what rules go by; then its launches, the first of which
     * has the number `first` among those that are learnt from. [locked]
     */
    void (*judged)(uint64_t number, const struct ps_span_facts *facts, bool may_move);
    void (*step)(const struct penstock_step *step, uint64_t first);
};

/* Nobody watches until an entry is set: each does nothing. */
extern struct ps_observers ps_observers;

#endif
