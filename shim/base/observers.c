#include "base/observers.h"

static bool ignore_event(struct ps_event_record *record)
{
    (void)record;
    return false;
}

static void ignore_end(void) {}

static void ignore_standing_aside(const char *why)
{
    (void)why;
}

static void ignore_birth(const struct ps_span *span)
{
    (void)span;
}

static void ignore_launch(struct CUstream_st *stream, struct CUfunc_st *function, void **parameters, void **extra)
{
    (void)stream;
    (void)function;
    (void)parameters;
    (void)extra;
}

static void ignore_launched(void) {}

static void ignore_judgement(uint64_t number, const struct ps_span_facts *facts, bool may_move)
{
    (void)number;
    (void)facts;
    (void)may_move;
}

static void ignore_step(const struct penstock_step *step, uint64_t first)
{
    (void)step;
    (void)first;
}

struct ps_observers ps_observers = {
    .event = ignore_event,
    .trace_ends = ignore_end,
    .aside = ignore_standing_aside,
    .born = ignore_birth,
    .launch = ignore_launch,
    .launched = ignore_launched,
    .judged = ignore_judgement,
    .step = ignore_step,
};
