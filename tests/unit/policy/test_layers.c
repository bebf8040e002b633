/*
 * The policy `layers`. The tests read the plan for each distance. They check the spans that are
 * taken, and the launch that queues each eviction or reload. Strays among the markers, and the
 * begin of the recorded ring, change nothing.
 */
#include <errno.h>
#include <stdlib.h>

#include "expect.h"
#include "penstock/policy.h"

#define LAUNCHES_MAX 512
#define MIB (UINT64_C(1) << 20)

/* A step as a recording has it, made launch by launch. */
struct model {
    struct penstock_launch launch[LAUNCHES_MAX];
    struct penstock_step_span span[LAUNCHES_MAX];
    uint32_t use[4 * LAUNCHES_MAX];
    struct penstock_layer layer[LAUNCHES_MAX];
    struct penstock_step step;
};

static struct penstock_move moves[4 * LAUNCHES_MAX];
static struct penstock_plan plan;

static int make_plan(const struct model *m, struct penstock_policy_options options)
{
    size_t bytes = penstock_policy_layers.workspace_bytes(&m->step);
    char *workspace = malloc(bytes + 1);

    memset(workspace, 0xa5, bytes + 1);
    memset(moves, 0xa5, sizeof moves);
    plan = (struct penstock_plan){.move = moves, .capacity = m->step.uses};
    int r = penstock_policy_layers.plan(&m->step, &options, workspace, &plan);
    EXPECT_INT((char)0xa5, workspace[bytes]);
    free(workspace);
    return r;
}

static void begin(struct model *m, uint32_t number, enum penstock_direction direction)
{
    m->layer[m->step.layers++] = (struct penstock_layer){
        .first_launch = m->step.launches, .number = number, .direction = direction, .name = NULL};
}

/*
 * Adds a launch to the layer begun last. Each launch has two moments: allocations before it take
 * the even one, frees after it the odd one.
 */
static uint32_t launch(struct model *m)
{
    uint32_t i = m->step.launches++;

    m->launch[i] = (struct penstock_launch){.duration_ns = 1000 + i, .moment = 3 * i + 1, .layer = m->step.layers - 1};
    return i;
}

/* Adds a span born right before launch `uses[0]` and freed right after the last one. */
static uint32_t span(struct model *m, uint64_t bytes, enum penstock_class class_, const uint32_t *uses, uint32_t n)
{
    struct penstock_step_span *s = &m->span[m->step.spans];

    *s = (struct penstock_step_span){.bytes = bytes,
                                     .born = 3 * uses[0],
                                     .freed = 3 * uses[n - 1] + 2,
                                     .first_use = m->step.uses,
                                     .uses = n,
                                     .class_ = class_};
    memcpy(&m->use[m->step.uses], uses, n * sizeof *uses);
    m->step.uses += n;
    return m->step.spans++;
}

static void finish(struct model *m)
{
    m->step.moments = 3 * m->step.launches;
    m->step.launch = m->launch;
    m->step.span = m->span;
    m->step.use = m->use;
    m->step.layer = m->layer;
    m->step.budget_bytes = 0;
    m->step.slab_bytes = UINT64_MAX;
}

/*
 * Layers have 3 launches in forward and 4 in backward; the loss has 2 and the update 3. Span l is
 * layer l's. The first two launches of its forward and the second of its backward use it.
 */
#define F 3
#define B 4
#define LOSS 2
#define UPDATE 3

static uint32_t forward_of(uint32_t layer)
{
    return F * layer;
}

static uint32_t backward_of(uint32_t layers, uint32_t layer)
{
    return F * layers + LOSS + B * (layers - 1 - layer);
}

static struct model *plain_model(uint32_t layers, enum penstock_class class_)
{
    struct model *m = calloc(1, sizeof *m);

    for (uint32_t l = 0; l < layers; l++) {
        begin(m, l, PENSTOCK_DIRECTION_FORWARD);
        for (int i = 0; i < F; i++)
            launch(m);
    }
    begin(m, PENSTOCK_NEVER, PENSTOCK_DIRECTION_NONE);
    for (int i = 0; i < LOSS; i++)
        launch(m);
    for (uint32_t l = layers; l-- > 0;) {
        begin(m, l, PENSTOCK_DIRECTION_BACKWARD);
        for (int i = 0; i < B; i++)
            launch(m);
    }
    begin(m, PENSTOCK_NEVER, PENSTOCK_DIRECTION_NONE);
    for (int i = 0; i < UPDATE; i++)
        launch(m);
    for (uint32_t l = 0; l < layers; l++)
        span(m, MIB, class_, (uint32_t[]){forward_of(l), forward_of(l) + 1, backward_of(layers, l) + 1}, 3);
    finish(m);
    return m;
}

static const struct penstock_move *move_of(uint32_t span_number)
{
    const struct penstock_move *found = NULL;

    for (uint32_t i = 0; i < plan.moves; i++) {
        if (moves[i].span != span_number)
            continue;
        EXPECT(!found);
        found = &moves[i];
    }
    return found;
}

static void test_distances(void)
{
    static const uint32_t distances[] = {0, 1, 2, 3, 5, 6, 100, UINT32_MAX};
    enum { LAYERS = 6 };
    struct model *m = plain_model(LAYERS, PENSTOCK_CLASS_ACTIVATION);

    for (size_t i = 0; i < sizeof distances / sizeof distances[0]; i++) {
        for (uint32_t keep = 0; keep < 4; keep++) {
            uint64_t n = distances[i];
            EXPECT_INT(-ERANGE, make_plan(m, (struct penstock_policy_options){.prefetch_layers = distances[i],
                                                                              .keep_last = keep}));
            EXPECT_U64(LAYERS - keep, plan.moves);
            for (uint32_t l = 0; l < LAYERS; l++) {
                const struct penstock_move *move = move_of(l);
                if (!EXPECT((move != NULL) == (l < LAYERS - keep)) || !move)
                    continue;
                /*
                 * The launch right before backward of the layer that comes n earlier in backward,
                 * but never before backward itself.
                 */
                uint64_t ahead = l + n < LAYERS - 1 ? l + n : LAYERS - 1;
                if (l == LAYERS - keep - 1)
                    ahead = LAYERS - 1; /* the highest evicted layer: before backward's first kernel */
                EXPECT_U64(forward_of(l) + 1, move->evict_after);
                EXPECT_U64(backward_of(LAYERS, (uint32_t)ahead) - 1, move->reload_from);
                EXPECT_U64(backward_of(LAYERS, l) + 1, move->needed_by);
            }
        }
    }
    free(m);
}

static void test_deferral(void)
{
    enum { LAYERS = 6 };
    struct model *m = plain_model(LAYERS, PENSTOCK_CLASS_ACTIVATION);

    for (uint32_t defer = 0; defer < 14; defer++) {
        make_plan(m, (struct penstock_policy_options){.prefetch_layers = 0, .defer_layers = defer, .keep_last = 1});
        uint32_t expected_moves = 0;
        for (uint32_t l = 0; l < LAYERS - 1; l++) {
            const struct penstock_move *move = move_of(l);
            /*
             * The end of the layer `defer` layers later. The last layer of forward ends after the
             * loss; then backward's layers follow.
             */
            uint32_t at = l + defer;
            uint32_t end = at + 1 < LAYERS       ? forward_of(at + 1) - 1
                           : at < 2 * LAYERS - 1 ? backward_of(LAYERS, 2 * LAYERS - 2 - at) - 1
                                                 : UINT32_MAX;
            if (!defer)
                end = forward_of(l) + 1;
            uint32_t reload = l == LAYERS - 2 && end < backward_of(LAYERS, LAYERS - 1) - 1
                                  ? backward_of(LAYERS, LAYERS - 1) - 1
                                  : backward_of(LAYERS, l) - 1;
            bool worth_it = end < backward_of(LAYERS, l) - 1;
            expected_moves += worth_it;
            if (!EXPECT((move != NULL) == worth_it) || !move)
                continue;
            EXPECT_U64(end, move->evict_after);
            /* With deferral, another layer may be the highest evicted one. */
            EXPECT(move->reload_from == reload || move->reload_from == backward_of(LAYERS, LAYERS - 1) - 1);
            EXPECT(move->evict_after < move->reload_from);
        }
        EXPECT_U64(expected_moves, plan.moves);
        EXPECT(defer > 1 || expected_moves == LAYERS - 1);
    }
    EXPECT_U64(0, plan.moves); /* deferred beyond backward: nothing leaves */
    free(m);
}

/*
 * A model of one layer keeps it only if the budget allows, not because the last layer stays by
 * default.
 */
static void test_few_layers(void)
{
    for (uint32_t layers = 1; layers < 4; layers++) {
        for (uint32_t keep = 0; keep < 6; keep++) {
            struct model *m = plain_model(layers, PENSTOCK_CLASS_UNKNOWN);
            uint32_t kept = keep < layers ? keep : layers - 1;
            make_plan(m, (struct penstock_policy_options){.prefetch_layers = 1, .keep_last = keep});
            EXPECT_U64(layers - kept, plan.moves);
            EXPECT(move_of(0) != NULL);
            free(m);
        }
    }
}

/*
 * Copies a model, with some stretches cut in two by strays: stretches of one launch that have
 * another layer's number.
 */
static struct model *with_strays(const struct model *m, const uint32_t (*strays)[2], uint32_t n)
{
    struct model *copy = malloc(sizeof *copy);

    *copy = *m;
    copy->step.layers = 0;
    for (uint32_t i = 0; i < m->step.launches; i++) {
        struct penstock_layer now = m->layer[m->launch[i].layer];
        for (uint32_t k = 0; k < n; k++)
            if (strays[k][0] == i)
                now.number = strays[k][1];
        const struct penstock_layer *last = copy->step.layers ? &copy->layer[copy->step.layers - 1] : NULL;
        if (!last || last->number != now.number || last->direction != now.direction) {
            now.first_launch = i;
            copy->layer[copy->step.layers++] = now;
        }
        copy->launch[i].layer = copy->step.layers - 1;
    }
    finish(copy);
    return copy;
}

/*
 * Transitions count, not stretches. Gradient accumulation of other layers within a layer's backward
 * is no transition.
 */
static void test_strays(void)
{
    enum { LAYERS = 5 };
    struct model *m = plain_model(LAYERS, PENSTOCK_CLASS_ACTIVATION);
    uint32_t b3 = backward_of(LAYERS, 3), b2 = backward_of(LAYERS, 2), b1 = backward_of(LAYERS, 1);
    const uint32_t strays[][2] = {
        {b3 + 2, 4},              /* the previous layer comes back for one launch */
        {b2 + 1, 3}, {b2 + 3, 4}, /* twice, once at the end: another layer follows */
        {b1 + 1, 2},              /* [1][2][1 1]: the rest of layer 1 at its beginning is still its own */
        {b3 + 3, 0},              /* a later layer appears for one launch */
    };
    struct model *strayed = with_strays(m, strays, sizeof strays / sizeof strays[0]);

    EXPECT_U64(m->step.layers + 7, strayed->step.layers); /* the strays do cut the stretches */
    for (uint32_t n = 0; n < 6; n++) {
        struct penstock_move expected[16];
        make_plan(m, (struct penstock_policy_options){.prefetch_layers = n});
        uint32_t count = plan.moves;
        memcpy(expected, moves, count * sizeof *expected);
        make_plan(strayed, (struct penstock_policy_options){.prefetch_layers = n});
        EXPECT_U64(count, plan.moves);
        for (uint32_t i = 0; i < count; i++) {
            EXPECT_U64(expected[i].evict_after, moves[i].evict_after);
            EXPECT_U64(expected[i].reload_from, moves[i].reload_from);
        }
    }
    free(strayed);
    free(m);
}

/* The same step, recorded from launch `from` on. */
static struct model *turned(const struct model *m, uint32_t from)
{
    struct model *t = calloc(1, sizeof *t);
    uint32_t n = m->step.launches;

    *t = *m;
    t->step.layers = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t old = (from + i) % n;
        t->launch[i] = m->launch[old];
        t->launch[i].moment = 3 * i + 1;
        if (!i || old == m->layer[m->launch[old].layer].first_launch) {
            t->layer[t->step.layers] = m->layer[m->launch[old].layer];
            t->layer[t->step.layers++].first_launch = i;
        }
        t->launch[i].layer = t->step.layers - 1;
    }
    for (uint32_t s = 0; s < m->step.spans; s++) {
        struct penstock_step_span *span_ = &t->span[s];
        uint32_t *use = &t->use[span_->first_use];
        uint32_t sorted = 0;
        if (span_->born != PENSTOCK_NEVER) {
            span_->born = (span_->born + 3 * (n - from)) % (3 * n);
            span_->freed = (span_->freed + 3 * (n - from)) % (3 * n);
        }
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t k = 0; k < span_->uses; k++)
                if ((m->use[span_->first_use + k] + n - from) % n == i)
                    use[sorted++] = i;
        EXPECT_U64(span_->uses, sorted);
    }
    finish(t);
    t->step.budget_bytes = m->step.budget_bytes;
    t->step.slab_bytes = m->step.slab_bytes;
    return t;
}

static void check_ring(struct penstock_policy_options options)
{
    struct model *m = plain_model(4, PENSTOCK_CLASS_UNKNOWN);
    struct penstock_move expected[16];
    uint32_t n = m->step.launches;

    m->step.budget_bytes = 3 * MIB; /* some spans move, but not all that may */
    EXPECT_INT(0, make_plan(m, options));
    uint32_t count = plan.moves;
    uint64_t peak = plan.peak_bytes;
    EXPECT(count > 0 && count < 3);
    memcpy(expected, moves, count * sizeof *expected);
    for (uint32_t from = 1; from < n; from++) {
        struct model *t = turned(m, from);
        EXPECT_INT(0, make_plan(t, options));
        EXPECT_U64(count, plan.moves);
        EXPECT_U64(peak, plan.peak_bytes);
        for (uint32_t i = 0; i < count; i++) {
            const struct penstock_move *move = move_of(expected[i].span);
            if (!EXPECT(move != NULL))
                continue;
            EXPECT_U64((expected[i].evict_after + n - from) % n, move->evict_after);
            EXPECT_U64((expected[i].reload_from + n - from) % n, move->reload_from);
            EXPECT_U64((expected[i].needed_by + n - from) % n, move->needed_by);
        }
        free(t);
    }
    free(m);
}

static void test_ring(void)
{
    check_ring((struct penstock_policy_options){.prefetch_layers = 1, .keep_last = 1});
    check_ring((struct penstock_policy_options){.prefetch_layers = 0, .defer_layers = 1, .keep_last = 1});
}

/*
 * An evaluation before the training step. Its forward is a phase of its own, and spans born and
 * freed in it stay.
 */
static void test_evaluation_before(void)
{
    enum { LAYERS = 3 };
    struct model *m = calloc(1, sizeof *m);
    uint32_t first[2][LAYERS], back[LAYERS];

    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t l = 0; l < LAYERS; l++) {
            begin(m, l, PENSTOCK_DIRECTION_FORWARD);
            first[pass][l] = launch(m);
            launch(m);
        }
    }
    for (uint32_t l = LAYERS; l-- > 0;) {
        begin(m, l, PENSTOCK_DIRECTION_BACKWARD);
        back[l] = launch(m);
        launch(m);
    }
    for (uint32_t l = 0; l < LAYERS; l++) {
        span(m, MIB, PENSTOCK_CLASS_UNKNOWN, (uint32_t[]){first[0][l], first[0][l] + 1}, 2);
        span(m, MIB, PENSTOCK_CLASS_UNKNOWN, (uint32_t[]){first[1][l], back[l]}, 2);
    }
    finish(m);
    make_plan(m, (struct penstock_policy_options){.prefetch_layers = 1, .keep_last = 1});
    EXPECT_U64(2, plan.moves);
    for (uint32_t l = 0; l < 2; l++) {
        const struct penstock_move *move = move_of(2 * l + 1);
        if (!EXPECT(move != NULL))
            continue;
        EXPECT_U64(first[1][l], move->evict_after);
        EXPECT_U64(l == 1 ? back[2] - 1 : back[1] - 1, move->reload_from);
    }
    /* There are three layers, not six: no more than two stay. */
    make_plan(m, (struct penstock_policy_options){.prefetch_layers = 1, .keep_last = 5});
    EXPECT_U64(1, plan.moves);
    EXPECT(move_of(1) != NULL);
    free(m);
}

static void test_what_stays(void)
{
    struct model *m = plain_model(4, PENSTOCK_CLASS_UNKNOWN);
    struct penstock_policy_options options = {.prefetch_layers = 1};

    m->span[0].fixed = true;
    m->span[1].class_ = PENSTOCK_CLASS_WORKSPACE;
    m->span[2].born = m->span[2].freed = PENSTOCK_NEVER; /* a parameter: older than the step */
    make_plan(m, options);
    EXPECT_U64(1, plan.moves);
    EXPECT(move_of(3) != NULL);

    /*
     * No span is evicted unless the budget requires it. Without markers, or without backward, none
     * is evicted.
     */
    m->step.budget_bytes = 4 * MIB;
    EXPECT_INT(0, make_plan(m, options));
    EXPECT_U64(0, plan.moves);
    EXPECT_U64(4 * MIB, plan.peak_bytes);
    m->step.budget_bytes = 0;
    m->step.layers = 4;
    EXPECT_INT(-ERANGE, make_plan(m, options));
    EXPECT_U64(0, plan.moves);
    m->layer[0].number = PENSTOCK_NEVER;
    m->step.layers = 1;
    EXPECT_INT(-ERANGE, make_plan(m, options));
    EXPECT_U64(0, plan.moves);
    free(m);
}

/* The largest come first, as many as the slab holds. */
static void test_slab(void)
{
    struct model *m = plain_model(5, PENSTOCK_CLASS_ACTIVATION);

    for (uint32_t l = 0; l < 5; l++)
        m->span[l].bytes = (uint64_t[]){3, 1, 4, 2, 5}[l] * MIB;
    m->step.slab_bytes = 9 * MIB + 1;
    make_plan(m, (struct penstock_policy_options){.prefetch_layers = 1});
    /* 5 and 4 fit, and nothing more beside them. */
    EXPECT_U64(2, plan.moves);
    EXPECT(move_of(2) && move_of(4));
    EXPECT_U64(9 * MIB, plan.evicted_bytes);
    m->step.slab_bytes = 10 * MIB;
    make_plan(m, (struct penstock_policy_options){.prefetch_layers = 1});
    EXPECT(plan.moves == 3 && move_of(1));
    m->step.slab_bytes = 0;
    make_plan(m, (struct penstock_policy_options){.prefetch_layers = 1});
    EXPECT_U64(0, plan.moves);
    free(m);
}

/*
 * --- random steps: the plan is one, and its figures are what counting gives
 * -----------------------------------------------------------------
 */

static uint64_t random_state = 88172645463325252u;

static uint32_t below(uint32_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 20) % n;
}

/* Returns the number of launches from a to b, around the ring. */
static uint32_t distance(uint32_t n, uint32_t a, uint32_t b)
{
    return (b + n - a) % n;
}

static uint64_t counted_peak(const struct model *m, uint64_t *host_peak)
{
    uint32_t n = m->step.launches;
    uint64_t peak = 0;

    *host_peak = 0;
    for (uint32_t l = 0; l < n; l++) {
        uint64_t held = 0, host = 0;
        for (uint32_t s = 0; s < m->step.spans; s++) {
            const struct penstock_step_span *sp = &m->span[s];
            /* The span is alive at some moment between the previous launch and this one. */
            uint32_t now = 3 * l + 1, before = (now + 3 * n - 3) % (3 * n);
            bool there = sp->born == PENSTOCK_NEVER ||
                         distance(3 * n, sp->born, now) < distance(3 * n, sp->born, sp->freed) ||
                         distance(3 * n, before, sp->freed) <= 3;
            held += there ? sp->bytes : 0;
        }
        for (uint32_t i = 0; i < plan.moves; i++) {
            const struct penstock_move *move = &moves[i];
            uint64_t bytes = m->span[move->span].bytes;
            if (l != move->evict_after &&
                distance(n, move->evict_after, l) <= distance(n, move->evict_after, move->reload_from))
                held -= bytes;
            if (l != move->evict_after &&
                distance(n, move->evict_after, l) <= distance(n, move->evict_after, move->needed_by))
                host += bytes;
        }
        peak = held > peak ? held : peak;
        *host_peak = host > *host_peak ? host : *host_peak;
    }
    return peak;
}

static int ascending(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

static void check_random(void)
{
    uint32_t layers = 1 + below(6);
    struct model *m = plain_model(layers, PENSTOCK_CLASS_UNKNOWN);
    uint32_t n = m->step.launches;

    for (uint32_t extra = below(20); extra > 0; extra--) {
        uint32_t uses[4], count = 0;
        for (uint32_t l = below(n), end = l + n; l < end && count < 4; l += 1 + below(n))
            uses[count++] = l % n;
        uint32_t s = span(m, (1 + below(8)) * MIB, (enum penstock_class)below(PENSTOCK_CLASSES), uses, count);
        qsort(&m->use[m->span[s].first_use], count, sizeof uses[0], ascending);
        m->span[s].fixed = below(5) == 0;
        if (below(5) == 0)
            m->span[s].born = m->span[s].freed = PENSTOCK_NEVER;
    }
    finish(m);
    m->step.budget_bytes = below(40) * MIB;
    m->step.slab_bytes = below(40) * MIB;
    struct model *t = turned(m, below(n));
    free(m);

    struct penstock_policy_options options = {
        .prefetch_layers = below(5), .defer_layers = below(3), .keep_last = below(4)};
    int r = make_plan(t, options);
    uint64_t host_peak, bytes = 0, peak = counted_peak(t, &host_peak);
    EXPECT_U64(peak, plan.peak_bytes);
    EXPECT(host_peak <= t->step.slab_bytes);
    EXPECT_INT(peak > t->step.budget_bytes ? -ERANGE : 0, r);
    for (uint32_t i = 0; i < plan.moves; i++) {
        const struct penstock_move *move = &moves[i];
        const struct penstock_step_span *s = &t->span[move->span];
        uint32_t whole = distance(n, move->evict_after, move->needed_by), used = 0;
        EXPECT(!s->fixed && s->born != PENSTOCK_NEVER);
        EXPECT(distance(n, move->evict_after, move->reload_from) < whole && move->reload_from != move->evict_after);
        /* The span lives from the eviction to the use that ends the gap. */
        uint32_t evicted_at = t->launch[move->evict_after].moment;
        EXPECT(distance(3 * n, evicted_at, s->freed) > distance(3 * n, evicted_at, t->launch[move->needed_by].moment));
        EXPECT(!i || moves[i - 1].evict_after <= move->evict_after);
        for (uint32_t k = 0; k < s->uses; k++) {
            uint32_t at = distance(n, move->evict_after, t->use[s->first_use + k]);
            EXPECT(at == 0 || at >= whole);
            used += at == whole;
        }
        EXPECT_U64(1, used);
        bytes += s->bytes;
    }
    EXPECT_U64(bytes, plan.evicted_bytes);
    free(t);
}

int main(void)
{
    test_distances();
    test_deferral();
    test_few_layers();
    test_strays();
    test_ring();
    test_evaluation_before();
    test_what_stays();
    test_slab();
    for (int i = 0; i < 3000; i++)
        check_random();
    return expect_status();
}
