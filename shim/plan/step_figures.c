#include "plan/step_figures.h"

#include <stdlib.h>
#include <string.h>

#include "policy/planner/gaps.h"

struct layer {
    const char *name;
    uint32_t number;
    enum penstock_direction direction;
    uint64_t device_ns, born_bytes, evicted_bytes, reloaded_bytes;
};

struct ps_step_figures {
    uint32_t launches, layers;
    struct layer *layer;
    uint32_t *layer_of;                /* by launch */
    uint64_t *waited;                  /* ns; by round kept, then by launch */
    uint64_t round_of[PS_ROUNDS_KEPT]; /* the round that each place holds; 0: none (rounds count from 1) */
};

void ps_step_figures_free(struct ps_step_figures *f)
{
    if (!f)
        return;
    free(f->layer);
    free(f->layer_of);
    free(f->waited);
    free(f);
}

static void fill(struct ps_step_figures *f, const struct penstock_step *step, const struct penstock_plan *plan)
{
    for (uint32_t i = 0; i < f->layers; i++) {
        f->layer[i].name = step->layer[i].name;
        f->layer[i].number = step->layer[i].number;
        f->layer[i].direction = step->layer[i].direction;
    }
    for (uint32_t i = 0; i < f->launches; i++) {
        f->layer_of[i] = step->launch[i].layer;
        f->layer[step->launch[i].layer].device_ns += step->launch[i].duration_ns;
    }
    for (uint32_t i = 0; i < step->spans; i++)
        if (step->span[i].born != PENSTOCK_NEVER)
            f->layer[f->layer_of[ps_launch_from(step, step->span[i].born) % f->launches]].born_bytes +=
                step->span[i].bytes;
    for (uint32_t i = 0; i < plan->moves; i++) {
        const struct penstock_move *m = &plan->move[i];
        f->layer[f->layer_of[m->evict_after]].evicted_bytes += step->span[m->span].bytes;
        if (m->needed_by != PENSTOCK_NEVER)
            f->layer[f->layer_of[m->needed_by]].reloaded_bytes += step->span[m->span].bytes;
    }
}

struct ps_step_figures *ps_step_figures_make(const struct penstock_step *step, const struct penstock_plan *plan)
{
    struct ps_step_figures *f = calloc(1, sizeof *f);

    if (!f)
        return NULL;
    f->launches = step->launches;
    f->layers = step->layers;
    f->layer = calloc(f->layers, sizeof *f->layer);
    f->layer_of = calloc(f->launches, sizeof *f->layer_of);
    f->waited = calloc((size_t)PS_ROUNDS_KEPT * f->launches, sizeof *f->waited);
    if (!f->layer || !f->layer_of || !f->waited) {
        ps_step_figures_free(f);
        return NULL;
    }
    fill(f, step, plan);
    return f;
}

void ps_step_figures_waited(struct ps_step_figures *f, uint64_t round, uint32_t place, uint64_t ns)
{
    uint64_t *waited = f->waited + round % PS_ROUNDS_KEPT * f->launches;

    if (f->round_of[round % PS_ROUNDS_KEPT] > round)
        return; /* reported too late */
    if (f->round_of[round % PS_ROUNDS_KEPT] != round) {
        memset(waited, 0, f->launches * sizeof *waited);
        f->round_of[round % PS_ROUNDS_KEPT] = round;
    }
    waited[place] += ns;
}

const uint64_t *ps_step_figures_waits(const struct ps_step_figures *f, uint64_t round)
{
    return f->round_of[round % PS_ROUNDS_KEPT] == round ? f->waited + round % PS_ROUNDS_KEPT * f->launches : NULL;
}

uint64_t ps_step_figures_exposed_ns(const struct ps_step_figures *f, uint64_t round)
{
    const uint64_t *waited = ps_step_figures_waits(f, round);
    uint64_t ns = 0;

    for (uint32_t i = 0; waited && i < f->launches; i++)
        ns += waited[i];
    return ns;
}

void ps_step_figures_layer(const struct ps_step_figures *f, uint32_t place, struct ps_recorded_layer *out)
{
    uint32_t i = f->layer_of[place];
    const struct layer *layer = &f->layer[i];

    *out = (struct ps_recorded_layer){
        .stretch = i + 1u, .number = layer->number, .direction = layer->direction, .name = layer->name};
}

void ps_step_figures_write(const struct ps_step_figures *f, uint64_t round, const struct ps_step_profile *profile,
                           struct ps_json *json)
{
    static const char *const directions[] = {"none", "forward", "backward"};
    const uint64_t *waited = ps_step_figures_waits(f, round);
    uint32_t at = 0;

    ps_json_begin_array(json, "layers");
    for (uint32_t i = 0; i < f->layers; i++) {
        const struct layer *l = &f->layer[i];
        uint64_t exposed = 0;
        uint32_t first = at;
        for (; at < f->launches && f->layer_of[at] == i; at++)
            exposed += waited ? waited[at] : 0;
        ps_json_begin_object(json, NULL);
        if (l->name)
            ps_json_string(json, "name", l->name);
        if (l->number == PENSTOCK_NEVER)
            ps_json_null(json, "number");
        else
            ps_json_u64(json, "number", l->number);
        ps_json_string(json, "direction", directions[l->direction]);
        ps_json_u64(json, "first_launch", first);
        if (profile)
            ps_json_u64(json, "begin_ns", i ? ps_step_profile_at_ns(profile, first) : 0);
        ps_json_u64(json, "device_ns", l->device_ns);
        ps_json_u64(json, "born_bytes", l->born_bytes);
        ps_json_u64(json, "evicted_bytes", l->evicted_bytes);
        ps_json_u64(json, "reloaded_bytes", l->reloaded_bytes);
        ps_json_u64(json, "exposed_ns", exposed);
        ps_json_end(json);
    }
    ps_json_end(json);
}
