/*
 * What the rooms below tell the observers: the trace and `penstock verify`. Each fills its part of
 * this table in the set-up, if the user asked for it. Report and live page have no part: they read
 * counters and state, and nothing below calls them.
 *
 * Threads: each entry says its own; the table is constant after the set-up.
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
    /* ---- the trace (observe/event_trace.c) ---- */

    /*
     * Takes a record for the trace; returns false if there is no trace or no room for it. Any
     * thread, with the registry lock or without it.
     */
    bool (*event)(struct ps_event_record *record);
    /*
     * Called when Penstock begins to stand aside: the trace's thread makes driver calls in a
     * context that may be about to go. Any thread.
     */
    void (*trace_ends)(void);

    /* ---- `penstock verify` (verify/verify.c) ---- */

    /* The same, if there is a reason; `why` says it. Any thread. */
    void (*aside)(const char *why);

    /* The entries below are called only while ps_verify_is_on(). */

    /* Called when a span begins a life. [locked] */
    void (*born)(const struct ps_span *span);
    /*
     * Called before a launch of a kernel, or of a graph (`function` NULL), is queued, when its
     * spans are ready. `parameters` and `extra` are the launch's; `stream` may be
     * CU_STREAM_PER_THREAD. [unlocked]
     */
    void (*launch)(struct CUstream_st *stream, struct CUfunc_st *function, void **parameters, void **extra);
    /* Called when a traced call is over; a launch of this thread is then queued. [unlocked] */
    void (*launched)(void);
    /*
     * Called for each span of a recorded step, before `step`. `number` is the span's number in the
     * round that was recorded, and rules judge by `facts`. [locked]
     */
    void (*judged)(uint64_t number, const struct ps_span_facts *facts, bool may_move);
    /*
     * Called when a step was recorded. Its first launch has the number `first` among the launches
     * that are learnt from. [locked]
     */
    void (*step)(const struct penstock_step *step, uint64_t first);
};

/* The table in force. Each entry does nothing until it is set. */
extern struct ps_observers ps_observers;

#endif
