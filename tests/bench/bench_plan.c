/*
 * The cost of planning. A made-up training step has the given number of uses, one span to twenty of
 * them. Under its budget it must wait for its links. For each number of uses, prints a line of JSON
 * with the fastest and the median of several plannings.
 *
 *   bench_plan USES...
 */
#include <errno.h>
#include <string.h>

#include "bench.h"
#include "penstock/policy.h"

#define LAYERS 32

struct made_step {
    struct penstock_step step;
    struct penstock_launch *launch;
    struct penstock_step_span *span;
    uint32_t *use;
    struct penstock_layer layer;
    struct penstock_plan plan;
    void *workspace;
    int rc;
};

static void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);

    if (!memory) {
        fputs("bench_plan: out of memory\n", stderr);
        exit(1);
    }
    return memory;
}

/*
 * Forward and backward have half of the launches each. Half of the spans are activations: born in
 * forward, used for a while, and used again at the mirrored place of backward. The other half are
 * parameters, used at the same two places in every step. Ten launches name a span at each place,
 * and one launch names two or three spans.
 */
static void make_step(struct made_step *m, uint32_t uses)
{
    uint32_t spans = uses / 20, launches = uses * 2 / 5, activations = spans / 2, at = 0, moment = 0;
    uint32_t half = launches / 2;

    m->launch = allocate(launches * sizeof *m->launch);
    m->span = allocate(spans * sizeof *m->span);
    m->use = allocate((size_t)uses * sizeof *m->use);
    for (uint32_t i = 0; i < spans; i++) {
        struct penstock_step_span *span = &m->span[i];
        uint32_t place = (uint32_t)((uint64_t)(i < activations ? i : i - activations) * (half - 10) / activations);
        span->bytes = (uint64_t)(2 + i % 7) << 21;
        span->born = span->freed = PENSTOCK_NEVER;
        span->first_use = at;
        span->uses = 20;
        for (uint32_t u = 0; u < 10; u++)
            m->use[at + u] = place + u;
        for (uint32_t u = 0; u < 10; u++)
            m->use[at + 10 + u] = launches - place - 10 + u;
        at += 20;
    }
    /* A birth comes before the first launch that names the span, a free after the last. */
    uint32_t born = 0, freed = activations;
    for (uint32_t l = 0; l < launches; l++) {
        while (born < activations && m->use[m->span[born].first_use] == l)
            m->span[born++].born = moment++;
        m->launch[l] = (struct penstock_launch){.duration_ns = 6000 + 1000 * (l % 5), .moment = moment};
        moment++;
        while (freed > 0 && m->use[m->span[freed - 1].first_use + 19] == l)
            m->span[--freed].freed = moment++;
    }
    m->step = (struct penstock_step){.moments = moment,
                                     .launches = launches,
                                     .spans = spans,
                                     .layers = 1,
                                     .uses = at,
                                     .launch = m->launch,
                                     .span = m->span,
                                     .use = m->use,
                                     .layer = &m->layer,
                                     .links = {55400000000, 55500000000, 50900000000, 52000000000, 100000, 60000},
                                     .budget_bytes = UINT64_MAX,
                                     .slab_bytes = UINT64_MAX};
    m->plan = (struct penstock_plan){.move = allocate(at * sizeof *m->plan.move), .capacity = at};
    size_t predicting = penstock_predict_workspace_bytes(&m->step),
           planning = penstock_policy_plan.workspace_bytes(&m->step);
    m->workspace = allocate(predicting > planning ? predicting : planning);
    if (penstock_predict(&m->step, m->workspace, &m->plan, NULL) != 0)
        exit(1);
    m->step.budget_bytes = m->plan.peak_bytes * 3 / 5;
}

static void plan_once(void *context, int i)
{
    struct made_step *m = context;

    (void)i;
    m->rc = penstock_policy_plan.plan(&m->step, NULL, m->workspace, &m->plan);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fputs("usage: bench_plan USES...\n", stderr);
        return 2;
    }
    for (int i = 1; i < argc; i++) {
        struct made_step m = {.rc = 0};
        uint32_t uses = (uint32_t)bench_number(argv[i]);
        make_step(&m, uses < 1000 ? 1000 : uses);
        struct bench_figure figure = bench_measure(15, 1, plan_once, NULL, &m);
        if (m.rc != 0 || m.plan.moves == 0) {
            fprintf(stderr, "bench_plan: no plan: %s\n", strerror(-m.rc));
            return 1;
        }
        printf(
            "{\"name\": \"plan %u uses\", \"uses\": %u, \"spans\": %u, \"moves\": %u, \"median_ns\": %.0f, \"low_ns\": %.0f, \"ratio\": %.4f}\n",
            m.step.uses, m.step.uses, m.step.spans, m.plan.moves, figure.median_ns, figure.low_ns,
            (double)m.plan.predicted_ns / (double)m.plan.plain_ns);
        free(m.launch);
        free(m.span);
        free(m.use);
        free(m.plan.move);
        free(m.workspace);
    }
    return 0;
}
