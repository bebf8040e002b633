/*
 * The policy interface: structures in, decisions out. A policy knows no CUDA, does no I/O, reads no
 * clock and allocates nothing. Any thread may call its functions. The caller owns the data, and
 * does not change it during the call.
 *
 * A span is a device address range that Penstock manages, normally one allocation of the program.
 * The slab is pinned host memory; a slot is a part of it. An eviction copies a span's bytes to its
 * slot and releases its device pages. A reload brings the bytes back. D2H and H2D are the copies
 * from device to host and from host to device. A gap is a stretch of a step in which a span is
 * idle.
 *
 * A policy makes two kinds of decision. Reacting (penstock_choose_fn): memory is short now, and the
 * policy chooses the spans that leave. Planning (penstock_policy.plan): a step has been recorded,
 * and is expected to come again. The policy chooses the gaps in which spans leave, and when they
 * come back.
 *
 * Users can write their own policy: PENSTOCK_POLICY=/path/to/policy.so names a shared object that
 * exports
 *
 *     const struct penstock_policy *penstock_policy(void);
 */
#ifndef PENSTOCK_POLICY_H
#define PENSTOCK_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "direction.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. It grows with each change of a structure or a meaning here. */
#define PENSTOCK_POLICY_VERSION 4

/* ---- reacting ---- */

/*
 * A span that could give up its device pages now. The caller leaves out spans that can't: spans in
 * use, pinned, already moving, or in grace (a recent launch may still use them without naming
 * them).
 */
struct penstock_candidate {
    uint64_t bytes; /* device bytes that its eviction frees */
    /* The number of the launch that last named it, counted from the start of the program. */
    uint64_t last_access;
};

/*
 * Chooses the candidates to evict, and returns their number. The function writes their indices into
 * `chosen`, which has room for n, in the order of eviction. The chosen candidates cover
 * `need_bytes` if all candidates together do. If not, the function chooses every candidate that has
 * bytes. The caller sees from their sum that bytes are missing.
 */
typedef size_t (*penstock_choose_fn)(const struct penstock_candidate *candidates, size_t n, uint64_t need_bytes,
                                     size_t *chosen);

/*
 * Least recently used: takes the candidates idle longest (by last_access) until they cover the
 * need. Among equals the larger comes first, then the lower index. Candidates that the need is
 * covered without are dropped again, most recently used first. So no chosen candidate is
 * superfluous. Takes about n + k log n operations for k candidates taken.
 */
size_t penstock_lru_choose(const struct penstock_candidate *candidates, size_t n, uint64_t need_bytes, size_t *chosen);

/* ---- a recorded step ---- */

/*
 * A step is one period of the training loop, and a ring: after its last moment comes its first one,
 * in the next round. Moments are numbered from 0, in the order in which the host issued them. A
 * moment is an allocation of a span, a free of a span, or a launch. A launch is a kernel, copy or
 * memset that names spans. A moment may also be empty: a span came or went that is no steady part
 * of the step.
 */
#define PENSTOCK_NEVER UINT32_MAX

enum penstock_class {
    PENSTOCK_CLASS_UNKNOWN,
    PENSTOCK_CLASS_ACTIVATION,      /* saved for backward: born, idle, used and freed in a step */
    PENSTOCK_CLASS_GRADIENT,        /* born in backward, used by the update */
    PENSTOCK_CLASS_PARAMETER,       /* outlives the step, used in forward and backward */
    PENSTOCK_CLASS_OPTIMIZER_STATE, /* outlives the step, used by the update alone */
    PENSTOCK_CLASS_WORKSPACE,       /* born and freed within a few launches */
    PENSTOCK_CLASSES,
};

/*
 * A stretch of consecutive launches between two boundary markers. Layers follow each other in order
 * and cover the step.
 */
struct penstock_layer {
    uint32_t first_launch; /* the layer ends where the next begins, the last at the step's end */
    /* The number of the model's layer, the same in forward and backward; PENSTOCK_NEVER: none. */
    uint32_t number;
    enum penstock_direction direction;
    const char *name; /* may be NULL; the caller owns it */
};

struct penstock_launch {
    /* Device time from its start to the start of the next launch, without waits for transfers. */
    uint64_t duration_ns;
    uint32_t moment;
    uint32_t layer; /* index into penstock_step.layer */
    /*
     * Host time from the previous launch until this one is queued, if nothing makes the program
     * wait; 0: not known. The device catches up with the host, for example, while the host waits
     * for pages. A launch then takes this time.
     */
    uint64_t host_ns;
};

struct penstock_step_span {
    uint64_t bytes;
    /* The moment of its allocation. PENSTOCK_NEVER: it is older than the step and lives on. */
    uint32_t born;
    /*
     * The moment of its free. A free before `born` comes in the next round. PENSTOCK_NEVER exactly
     * if `born` is.
     */
    uint32_t freed;
    /*
     * The launches that name the span stand in penstock_step.use[first_use ... first_use + uses),
     * in ascending order and without repeats.
     */
    uint32_t first_use;
    uint32_t uses;
    enum penstock_class class_;
    bool fixed; /* never moves: the user has pinned or excluded it. Its bytes still count */
    /*
     * After its eviction the span's addresses are mapped to its slot. The driver takes as long for
     * that mapping as for the copy: 1.7 ms for 86 MiB on an H200, with copies under way. The
     * mapping runs beside the next eviction and delays it. So the playback lets the D2H of a
     * guarded span take half as long again.
     */
    bool guarded;
};

/* The rates of the two copy directions, and the time that each transfer takes beside its bytes. */
struct penstock_links {
    uint64_t d2h_bytes_per_s, h2d_bytes_per_s;           /* while the other direction is idle */
    uint64_t d2h_bytes_per_s_both, h2d_bytes_per_s_both; /* while both directions are busy */
    /* The time from the end of a D2H until the pages serve another span. */
    uint64_t evict_overhead_ns;
    /* The time from the decision to the begin of the H2D, if nothing delays it. */
    uint64_t reload_overhead_ns;
    /*
     * The time to map one part of a span's pages while the step's copies run; at most 1e9. A part
     * has 128 MiB, or a 16th of the span if that is more.
     */
    uint64_t mapping_ns;
};

struct penstock_step {
    /* The number of moments, and the lengths of the arrays; launches >= 1, layers >= 1. */
    uint32_t moments, launches, spans, layers, uses;
    const struct penstock_launch *launch;
    const struct penstock_step_span *span;
    const uint32_t *use; /* launch numbers */
    const struct penstock_layer *layer;
    struct penstock_links links;
    uint64_t budget_bytes; /* device bytes that the step's spans may hold at any time */
    uint64_t slab_bytes;   /* host bytes that evicted spans may hold at any time */
};

/* ---- planning ---- */

/*
 * One eviction of a span in one of its gaps, with its reload. The three launches follow one another
 * round the ring in the order of the fields. When the gap ends with the span's free, the move has
 * no reload, and `reload_from` and `needed_by` are PENSTOCK_NEVER.
 */
struct penstock_move {
    uint32_t span;
    /*
     * The D2H is queued when this launch is. The launch names the span and opens the gap, or lies
     * later inside the gap (then the release is deferred).
     */
    uint32_t evict_after;
    /*
     * The reload may begin when this launch has been queued and pages are there. Reloads that share
     * a `reload_from` are queued in the order of their `needed_by`.
     */
    uint32_t reload_from;
    uint32_t needed_by;         /* the launch that ends the gap */
    uint64_t predicted_wait_ns; /* the predicted wait of needed_by's stream for this reload */
};

struct penstock_plan {
    /* The caller's array, ordered by evict_after; among equals, in the order to queue them. */
    struct penstock_move *move;
    uint32_t capacity;     /* of `move`; a plan never needs more than step.uses */
    uint32_t moves;        /* the number of moves in the plan */
    uint64_t plain_ns;     /* the step's device time when no span moves */
    uint64_t predicted_ns; /* its predicted time under this plan, in the steady state */
    /* The part of predicted_ns that mappings cost: pages go to other spans, and to reloads. */
    uint64_t mapping_ns;
    uint64_t peak_bytes;    /* the most bytes that spans are predicted to hold */
    uint64_t evicted_bytes; /* in a round */
};

/* The user's settings for the policy. */
struct penstock_policy_options {
    uint32_t prefetch_layers; /* reload this many layers ahead of the one that needs it */
    uint32_t defer_layers;    /* release this many layers after the one that used it last */
    uint32_t keep_last;       /* layers at the end of forward that stay */
};

struct penstock_policy {
    uint32_t version; /* PENSTOCK_POLICY_VERSION; Penstock refuses a policy with another value */
    const char *name;
    /* Reacts. NULL: Penstock uses penstock_lru_choose. */
    penstock_choose_fn choose;
    /* Returns the bytes of scratch memory that `plan` wants for this step. NULL: never plans. */
    size_t (*workspace_bytes)(const struct penstock_step *step);
    /*
     * Fills *plan; the caller has set `plan->move` and `plan->capacity`. `workspace` is aligned for
     * any type and has the bytes that workspace_bytes returned. `plan` need not fill the predicted
     * waits and predicted_ns: the caller calls penstock_predict for them. Returns 0 or a negative
     * errno. -ERANGE: the step does not fit the budget, even with everything movable evicted.
     * Penstock then uses the plan, as the best one possible. After any other error Penstock does
     * not use the plan.
     */
    int (*plan)(const struct penstock_step *step, const struct penstock_policy_options *options, void *workspace,
                struct penstock_plan *plan);
};

/*
 * Penstock's own policies: `plan` (least predicted time of waiting for transfers), `layers` (by
 * hand, from penstock_policy_options), `lru` (never plans).
 */
extern const struct penstock_policy penstock_policy_plan, penstock_policy_layers, penstock_policy_lru;

/*
 * Returns the bytes of workspace that penstock_predict wants for this step. The caller aligns the
 * workspace for any type.
 */
size_t penstock_predict_workspace_bytes(const struct penstock_step *step);

/*
 * Simulates a plan: predicts the device time of one round in the steady state, with the links and
 * the budget of the step. Fills the predicted fields of *plan and of its moves. Returns 0, or
 * -EINVAL when the plan is not valid for this step; *why is then a constant string.
 */
int penstock_predict(const struct penstock_step *step, void *workspace, struct penstock_plan *plan, const char **why);

#ifdef __cplusplus
}
#endif

#endif
