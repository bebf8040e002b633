/*
 * Made-up programs for the tests of modules that watch launches. A trainer has some layers, and its
 * spans are followed one by one. So the time since the last use of each span, which a launch
 * reports, comes out of the trace itself. Events go to a sink, one call each, as the library would
 * see them.
 */
#ifndef PENSTOCK_TESTS_UNIT_TRACE_H
#define PENSTOCK_TESTS_UNIT_TRACE_H

#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "policy/steps/detector.h"

#define TRACE_NAMED_MAX 16

struct trace_span {
    uint64_t bytes;
    uint64_t last; /* the last launch that named it, or the one after its birth */
    int live;
};

struct trace {
    struct trace_span *span; /* by number, from 1 */
    uint64_t spans, capacity;
    uint64_t launches;
    uint64_t random;
    void *context;
    void (*allocated)(void *context, uint64_t span, uint64_t bytes); /* each may be NULL */
    void (*freed)(void *context, uint64_t span);
    void (*launched)(void *context, struct ps_step_launch launch, const uint64_t *span, const uint64_t *bytes, int n);
    /* A launch held back, so that it can change places with the next one. */
    int swap, held;
    /*
     * `visitors` extra launches come before the launch that is `visitors_in` launches away;
     * negative: that many are left out.
     */
    int visitors, visitors_in, absent;
    uint64_t held_kernel, held_span[TRACE_NAMED_MAX];
    int held_n;
};

static inline uint64_t trace_mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* A number below `below`. */
static inline uint64_t trace_random(struct trace *trace, uint64_t below)
{
    return trace_mix(trace->random++) % below;
}

static inline uint64_t trace_alloc(struct trace *trace, uint64_t bytes)
{
    if (trace->spans + 1 >= trace->capacity) {
        trace->capacity = trace->capacity ? 2 * trace->capacity : 1024;
        trace->span = realloc(trace->span, trace->capacity * sizeof *trace->span);
        if (!trace->span)
            abort();
    }
    uint64_t span = ++trace->spans;
    trace->span[span] = (struct trace_span){bytes, trace->launches, 1};
    if (trace->allocated)
        trace->allocated(trace->context, span, bytes);
    return span;
}

static inline void trace_free(struct trace *trace, uint64_t *span)
{
    if (*span == 0)
        return;
    trace->span[*span].live = 0;
    if (trace->freed)
        trace->freed(trace->context, *span);
    *span = 0;
}

static inline void trace_emit(struct trace *trace, uint64_t kernel, const uint64_t *named, int n)
{
    struct ps_step_launch launch = {.fingerprint = trace_mix(kernel)};
    uint64_t bytes[TRACE_NAMED_MAX];

    for (int i = 0; i < n; i++) {
        struct trace_span *span = &trace->span[named[i]];
        uint64_t reach = trace->launches - span->last;
        if (reach > launch.reach)
            launch.reach = reach;
        bytes[i] = span->bytes;
        launch.fingerprint = trace_mix(launch.fingerprint ^ span->bytes);
    }
    for (int i = 0; i < n; i++)
        trace->span[named[i]].last = trace->launches;
    trace->launches++;
    trace->launched(trace->context, launch, named, bytes, n);
}

/* A launch of `kernel` that names n spans; zeroes are left out. */
static inline void trace_launch(struct trace *trace, uint64_t kernel, int n, ...)
{
    uint64_t named[TRACE_NAMED_MAX];
    int count = 0;
    va_list list;

    va_start(list, n);
    for (int i = 0; i < n; i++) {
        uint64_t span = va_arg(list, uint64_t);
        if (span != 0)
            named[count++] = span;
    }
    va_end(list);
    if (trace->visitors_in && --trace->visitors_in == 0) {
        for (int i = 0; i < trace->visitors; i++)
            trace_emit(trace, 1000 + (uint64_t)i, NULL, 0);
        trace->absent = trace->visitors < 0 ? -trace->visitors : 0;
    }
    if (trace->absent && trace->absent--)
        return;
    if (trace->held) {
        trace->held = 0;
        trace_emit(trace, kernel, named, count);
        trace_emit(trace, trace->held_kernel, trace->held_span, trace->held_n);
        return;
    }
    if (trace->swap && --trace->swap == 0) {
        trace->held = 1;
        trace->held_kernel = kernel;
        trace->held_n = count;
        memcpy(trace->held_span, named, sizeof named);
        return;
    }
    trace_emit(trace, kernel, named, count);
}

static inline void trace_destroy(struct trace *trace)
{
    free(trace->span);
    memset(trace, 0, sizeof *trace);
}

/* ---- a trainer ---- */

#define TRAINER_LAYERS_MAX 128
#define TRAINER_LIVE_BATCHES 4 /* micro-batches in flight at most */

enum trainer_kernel {
    K_COPY_IN = 1,
    K_FILL,
    K_EMBED,
    K_NORM,
    K_MATMUL,
    K_ATTEND,
    K_MLP,
    K_HEAD,
    K_LOSS,
    K_LOSS_BACK,
    K_MATMUL_BACK,
    K_WEIGHT_BACK,
    K_ATTEND_BACK,
    K_MLP_BACK,
    K_NORM_BACK,
    K_EMBED_BACK,
    K_ACCUMULATE,
    K_CHECK,
    K_ADAM,
    K_METRIC,
    K_OTHER
};

struct trainer_parameter {
    uint64_t bytes, weight, gradient, state[2];
};

struct trainer_batch {
    uint64_t input, x, saved[TRAINER_LAYERS_MAX][4], logits, unit;
};

struct trainer {
    struct trace *trace;
    int layers;
    struct trainer_parameter parameter[2 * TRAINER_LAYERS_MAX + 2];
    struct trainer_batch batch[TRAINER_LIVE_BATCHES];
};

static inline void trainer_init(struct trainer *trainer, struct trace *trace, int layers)
{
    memset(trainer, 0, sizeof *trainer);
    trainer->trace = trace;
    trainer->layers = layers;
    for (int i = 0; i < 2 * layers + 2; i++) {
        struct trainer_parameter *parameter = &trainer->parameter[i];
        parameter->bytes = i == 2 * layers ? 900 : i == 2 * layers + 1 ? 800 : i % 2 ? 400 : 300;
        parameter->weight = trace_alloc(trace, parameter->bytes);
        trace_launch(trace, K_FILL, 1, parameter->weight);
    }
}

/*
 * Activations have `unit` bytes (the shape). Those of a training are kept for backward, those of an
 * evaluation are not.
 */
static inline void trainer_forward(struct trainer *trainer, int which, uint64_t unit, int keep)
{
    struct trace *t = trainer->trace;
    struct trainer_batch *b = &trainer->batch[which];

    b->unit = unit;
    b->input = trace_alloc(t, unit + 1);
    trace_launch(t, K_COPY_IN, 1, b->input);
    b->x = trace_alloc(t, unit);
    trace_launch(t, K_EMBED, 3, b->input, trainer->parameter[2 * trainer->layers].weight, b->x);
    for (int i = 0; i < trainer->layers; i++) {
        uint64_t *saved = b->saved[i];
        uint64_t q = trace_alloc(t, 3 * unit), middle;
        saved[0] = b->x;
        trace_launch(t, K_NORM, 2, b->x, q);
        saved[1] = q;
        saved[2] = trace_alloc(t, 2 * unit);
        trace_launch(t, K_MATMUL, 3, q, trainer->parameter[2 * i].weight, saved[2]);
        middle = trace_alloc(t, 5 * unit);
        trace_launch(t, K_ATTEND, 2, saved[2], middle);
        saved[3] = trace_alloc(t, unit);
        trace_launch(t, K_MLP, 3, middle, trainer->parameter[2 * i + 1].weight, saved[3]);
        trace_free(t, &middle);
        b->x = trace_alloc(t, unit);
        trace_launch(t, K_NORM, 2, saved[3], b->x);
        if (!keep) {
            for (int j = 0; j < 4; j++)
                trace_free(t, &saved[j]);
        }
    }
    b->logits = trace_alloc(t, 7 * unit);
    trace_launch(t, K_HEAD, 3, b->x, trainer->parameter[2 * trainer->layers + 1].weight, b->logits);
    trace_launch(t, K_LOSS, 1, b->logits);
    if (!keep) {
        trace_launch(t, K_METRIC, 1, b->logits);
        trace_free(t, &b->logits);
        trace_free(t, &b->x);
        trace_free(t, &b->input);
    }
}

/* The first gradient of a step is born; the others are added to it. */
static inline void trainer_gradient(struct trainer *trainer, int i, uint64_t a, uint64_t b)
{
    struct trace *t = trainer->trace;
    struct trainer_parameter *parameter = &trainer->parameter[i];

    if (parameter->gradient == 0) {
        parameter->gradient = trace_alloc(t, parameter->bytes);
        trace_launch(t, K_WEIGHT_BACK, 3, a, b, parameter->gradient);
        return;
    }
    uint64_t more = trace_alloc(t, parameter->bytes);
    trace_launch(t, K_WEIGHT_BACK, 3, a, b, more);
    trace_launch(t, K_ACCUMULATE, 2, parameter->gradient, more);
    trace_free(t, &more);
}

static inline void trainer_backward(struct trainer *trainer, int which)
{
    struct trace *t = trainer->trace;
    struct trainer_batch *b = &trainer->batch[which];
    uint64_t unit = b->unit;
    uint64_t dlogits = trace_alloc(t, 7 * unit), dx = trace_alloc(t, unit);

    trace_launch(t, K_LOSS_BACK, 2, b->logits, dlogits);
    trace_free(t, &b->logits);
    trace_launch(t, K_MATMUL_BACK, 3, dlogits, trainer->parameter[2 * trainer->layers + 1].weight, dx);
    trainer_gradient(trainer, 2 * trainer->layers + 1, dlogits, b->x);
    trace_free(t, &dlogits);
    trace_free(t, &b->x);
    for (int i = trainer->layers; i-- > 0;) {
        uint64_t *saved = b->saved[i];
        uint64_t dq = trace_alloc(t, 2 * unit), next = trace_alloc(t, unit);
        trace_launch(t, K_MLP_BACK, 3, dx, trainer->parameter[2 * i + 1].weight, dq);
        trainer_gradient(trainer, 2 * i + 1, dx, saved[3]);
        trace_free(t, &saved[3]);
        trace_launch(t, K_ATTEND_BACK, 2, saved[2], dq);
        trace_free(t, &saved[2]);
        trace_launch(t, K_MATMUL_BACK, 3, dq, trainer->parameter[2 * i].weight, next);
        trainer_gradient(trainer, 2 * i, dq, saved[1]);
        trace_free(t, &saved[1]);
        trace_launch(t, K_NORM_BACK, 2, saved[0], next);
        trace_free(t, &saved[0]);
        trace_free(t, &dq);
        trace_free(t, &dx);
        dx = next;
    }
    trace_launch(t, K_EMBED_BACK, 2, dx, b->input);
    trainer_gradient(trainer, 2 * trainer->layers, dx, b->input);
    trace_free(t, &dx);
    trace_free(t, &b->input);
}

/* The optimizer's state is made at its first use. */
/* The optimizer's state of one parameter, made once. */
static inline void trainer_make_state(struct trainer *trainer, int parameter)
{
    struct trainer_parameter *p = &trainer->parameter[parameter];

    for (int j = 0; j < 2; j++) {
        if (p->state[j] == 0) {
            p->state[j] = trace_alloc(trainer->trace, p->bytes);
            trace_launch(trainer->trace, K_FILL, 1, p->state[j]);
        }
    }
}

static inline void trainer_update(struct trainer *trainer)
{
    for (int i = 0; i < 2 * trainer->layers + 2; i++) {
        struct trainer_parameter *p = &trainer->parameter[i];
        trainer_make_state(trainer, i);
        trace_launch(trainer->trace, K_ADAM, 4, p->weight, p->gradient, p->state[0], p->state[1]);
    }
}

static inline void trainer_zero(struct trainer *trainer)
{
    for (int i = 0; i < 2 * trainer->layers + 2; i++)
        trace_free(trainer->trace, &trainer->parameter[i].gradient);
}

static inline void trainer_step(struct trainer *trainer, uint64_t unit)
{
    trainer_forward(trainer, 0, unit, 1);
    trainer_backward(trainer, 0);
    trainer_update(trainer);
    trainer_zero(trainer);
}

#endif
