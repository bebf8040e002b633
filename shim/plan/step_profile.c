#include "plan/step_profile.h"

#include <stdlib.h>

#include "policy/planner/profile.h"
#include "policy/recording/classes.h"

/* A span's facts that the report adds to the profile. */
struct named {
    uint64_t bytes;
    enum penstock_class class_;
};

struct ps_step_profile {
    struct ps_profile profile;
    struct named shown[PS_PROFILE_SPANS]; /* same index as profile.span */
    struct reloads {
        uint32_t layer;
        struct named largest;
    } * reloads; /* by launch */
};

void ps_step_profile_free(struct ps_step_profile *p)
{
    if (!p)
        return;
    free(p->profile.launch);
    free(p->reloads);
    free(p);
}

struct ps_step_profile *ps_step_profile_make(const struct penstock_step *step, const struct penstock_plan *plan)
{
    struct ps_step_profile *p = calloc(1, sizeof *p);
    void *workspace = aligned_alloc(64, (ps_profile_workspace_bytes(step, plan) + 63) & ~(size_t)63);

    if (p) {
        p->profile.launch = calloc(step->launches, sizeof *p->profile.launch);
        p->reloads = calloc(step->launches, sizeof *p->reloads);
    }
    if (!p || !workspace || !p->profile.launch || !p->reloads) {
        ps_step_profile_free(p);
        free(workspace);
        return NULL;
    }
    ps_profile_make(step, plan, workspace, &p->profile);
    for (uint32_t i = 0; i < p->profile.spans; i++) {
        const struct penstock_step_span *span = &step->span[p->profile.span[i].span];
        p->shown[i] = (struct named){span->bytes, span->class_};
    }
    for (uint32_t l = 0; l < step->launches; l++) {
        uint32_t largest = p->profile.launch[l].largest;
        p->reloads[l].layer = step->launch[l].layer;
        if (largest != PENSTOCK_NEVER)
            p->reloads[l].largest = (struct named){step->span[largest].bytes, step->span[largest].class_};
    }
    free(workspace);
    return p;
}

uint64_t ps_step_profile_at_ns(const struct ps_step_profile *p, uint32_t launch)
{
    return p->profile.launch[launch].at_ns;
}

void ps_step_profile_write_reloads(const struct ps_step_profile *p, uint32_t launch, struct ps_json *json)
{
    ps_json_u64(json, "layer", p->reloads[launch].layer);
    ps_json_u64(json, "bytes", p->profile.launch[launch].reloads_bytes);
    ps_json_u64(json, "largest_bytes", p->reloads[launch].largest.bytes);
    ps_json_string(json, "class", ps_class_names[p->reloads[launch].largest.class_]);
}

static void write_time(struct ps_json *json, const char *key, uint64_t ns)
{
    if (ns == PS_PROFILE_NEVER)
        ps_json_null(json, key);
    else
        ps_json_u64(json, key, ns);
}

static void write_span(const struct ps_profile_span *s, const struct named *named, struct ps_json *json)
{
    ps_json_begin_object(json, NULL);
    ps_json_u64(json, "bytes", named->bytes);
    ps_json_string(json, "class", ps_class_names[named->class_]);
    if (s->born_layer == PENSTOCK_NEVER)
        ps_json_null(json, "layer");
    else
        ps_json_u64(json, "layer", s->born_layer);
    write_time(json, "born_ns", s->born_ns);
    write_time(json, "freed_ns", s->freed_ns);
    ps_json_u64(json, "uses", s->uses);
    ps_json_u64(json, "moves", s->moves);
    ps_json_begin_array(json, "gaps");
    for (uint32_t i = 0; i < s->gaps; i++) {
        ps_json_begin_object(json, NULL);
        ps_json_pack(json, true);
        write_time(json, "from_ns", s->gap[i].from_ns);
        write_time(json, "to_ns", s->gap[i].to_ns);
        write_time(json, "leaves_ns", s->gap[i].leaves_ns);
        write_time(json, "gone_ns", s->gap[i].gone_ns);
        write_time(json, "comes_ns", s->gap[i].comes_ns);
        write_time(json, "back_ns", s->gap[i].back_ns);
        ps_json_end(json);
        ps_json_pack(json, false);
    }
    ps_json_end(json);
    ps_json_end(json);
}

static void begin_list(struct ps_json *json, const char *key)
{
    ps_json_begin_array(json, key);
    ps_json_pack(json, true);
}

static void end_list(struct ps_json *json)
{
    ps_json_end(json);
    ps_json_pack(json, false);
}

void ps_step_profile_write(const struct ps_step_profile *p, struct ps_json *json)
{
    ps_json_begin_object(json, "profile");
    ps_json_u64(json, "step_ns", p->profile.round_ns);
#define LIST(field)                                                                                                    \
    begin_list(json, #field);                                                                                          \
    for (uint32_t i = 0; i < PS_PROFILE_BINS; i++)                                                                     \
        ps_json_u64(json, NULL, p->profile.bin[i].field);                                                              \
    end_list(json)
    LIST(demand_bytes);
    LIST(held_bytes);
    LIST(out_bytes);
    LIST(in_bytes);
#undef LIST
    ps_json_begin_array(json, "spans");
    for (uint32_t i = 0; i < p->profile.spans; i++)
        write_span(&p->profile.span[i], &p->shown[i], json);
    ps_json_end(json);
    ps_json_end(json);
}
