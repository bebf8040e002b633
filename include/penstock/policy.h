/*
 * The policy interface: structures in, decisions out. A policy knows no CUDA, does no I/O, reads no clock and allocates nothing; its functions
 * may be called from any thread, on data that the caller owns and keeps still during the call.
 *
 * There are two sorts of decision. Reacting: memory is short now, which spans leave (penstock_choose_fn). Planning: a step of the program has
 * been recorded and is expected to come again, which spans leave in which of their gaps, and when they come back (penstock_policy.plan).
 *
 * A policy of one's own is a shared object named by PENSTOCK_POLICY=/path/to/policy.so that exports
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

/* Grows whenever a structure or a meaning in this file changes. */
#define PENSTOCK_POLICY_VERSION 4

/* ---- reacting ---- */

/* A span that could give up its device pages now. The caller leaves out those that can't: in use, in grace, pinned, already moving. */
struct penstock_candidate {
    uint64_t bytes;       /* device bytes that evicting it sets free */
    uint64_t last_access; /* number of the kernel launch that last named it; launches are counted from the start of the program */
};

/*
 * Chooses what to evict. Writes the indices of the chosen candidates into `chosen`, which has room for n, in the order to evict them, and
 * returns how many there are. What is chosen covers `need_bytes` if all candidates together do; if they don't, every candidate with bytes
 * is chosen, and the caller sees from their sum that it wants more.
 */
typedef size_t (*penstock_choose_fn)(const struct penstock_candidate *candidates, size_t n, uint64_t need_bytes, size_t *chosen);

/*
 * Least recently used: the candidates idle longest (by last_access) are taken until the need is covered, larger first among equals, then by
 * index. Of those, the ones that the need is covered without are let go again, most recently used first, so that none of what is
 * chosen could be left out. About n + k log n operations for k taken.
 */
size_t penstock_lru_choose(const struct penstock_candidate *candidates, size_t n, uint64_t need_bytes, size_t *chosen);

/* ---- a recorded step ---- */

/*
 * A step is a ring: what comes after its last moment is its first one again, in the next round. Its moments are what the program did, in the
 * order in which the host issued it, numbered from 0: a span allocated, a span freed, or a launch (a kernel, copy or memset that names spans).
 * A moment may be none of these: a span came or went that is no steady part of the step.
 */
#define PENSTOCK_NEVER UINT32_MAX

enum penstock_class {
    PENSTOCK_CLASS_UNKNOWN,
    PENSTOCK_CLASS_ACTIVATION,      /* born in a step, idle, used again and freed in it: saved for backward */
    PENSTOCK_CLASS_GRADIENT,        /* born in backward, used by the update */
    PENSTOCK_CLASS_PARAMETER,       /* outlives the step, used in forward and backward */
    PENSTOCK_CLASS_OPTIMIZER_STATE, /* outlives the step, used by the update alone */
    PENSTOCK_CLASS_WORKSPACE,       /* born and freed within a few launches */
    PENSTOCK_CLASSES,
};

/* A stretch of consecutive launches between two boundary markers. Layers follow each other in order and cover the step. */
struct penstock_layer {
    uint32_t first_launch; /* the layer ends where the next one begins, the last one at the end of the step */
    uint32_t number;       /* which of the model's layers: the same in forward and backward; PENSTOCK_NEVER: none of them */
    enum penstock_direction direction;
    const char *name; /* may be NULL; the caller's */
};

struct penstock_launch {
    uint64_t duration_ns; /* device time from its start to the next launch's, without waits for transfers */
    uint32_t moment;
    uint32_t layer; /* index into penstock_step.layer */
    /*
     * Host time from the launch before it until it is queued, where nothing makes the program wait; 0: not known. Where the device catches up with the host,
     * as it does while the host waits for pages, it is this that a launch takes.
     */
    uint64_t host_ns;
};

struct penstock_step_span {
    uint64_t bytes;
    uint32_t born;  /* the moment of its allocation; PENSTOCK_NEVER: it is older than the step and lives on */
    uint32_t freed; /* the moment of its free; before `born`: in the next round. PENSTOCK_NEVER exactly if `born` is */
    uint32_t first_use;
    uint32_t uses; /* the launches that name it: penstock_step.use[first_use ... first_use + uses), ascending, no repeats */
    enum penstock_class class_;
    bool fixed; /* never to be moved: pinned or excluded by the user. Its bytes still count */
    /*
     * Once it is evicted its addresses are made to lead to its slot. The driver takes as long for that as the copy took (1.7 ms for 86 MiB on an
     * H200, with copies under way), beside the next eviction, and holds that up: its D2H is played as taking half as long again.
     */
    bool guarded;
};

/* Transfers: what the two copy directions reach, alone and while the other is busy too, and what each transfer takes beside its bytes. */
struct penstock_links {
    uint64_t d2h_bytes_per_s, h2d_bytes_per_s;
    uint64_t d2h_bytes_per_s_both, h2d_bytes_per_s_both;
    uint64_t evict_overhead_ns;  /* from the end of a D2H until the pages serve somebody else */
    uint64_t reload_overhead_ns; /* from the decision until the H2D begins, when nothing is in its way */
    uint64_t mapping_ns; /* what it takes to map a part of a span's pages (128 MiB, or a 16th), beside the step's copies; at most 1e9 */
};

struct penstock_step {
    uint32_t moments, launches, spans, layers, uses; /* lengths of the arrays; launches >= 1, layers >= 1 */
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
 * One span leaves in one of its gaps. The D2H is queued when launch `evict_after` is; it names the span, and is followed by a gap, or is a later
 * launch inside the gap (the release is deferred). The reload may begin when launch `reload_from` has been queued and pages are there; the
 * gap ends with launch `needed_by`. All three go round the ring in this order. When the gap ends with the span's free, there is no reload and both
 * are PENSTOCK_NEVER. Reloads that share a `reload_from` are queued in the order of their needed_by.
 */
struct penstock_move {
    uint32_t span;
    uint32_t evict_after;
    uint32_t reload_from;
    uint32_t needed_by;
    uint64_t predicted_wait_ns; /* how long the stream of needed_by is expected to wait for this reload */
};

struct penstock_plan {
    struct penstock_move *move; /* the caller's array; ordered by evict_after, among equals in the order to queue them */
    uint32_t capacity;          /* of it; a plan never needs more than step.uses */
    uint32_t moves;
    uint64_t plain_ns;      /* the step's device time when nothing moves */
    uint64_t predicted_ns;  /* its predicted time under this plan, in the steady state */
    uint64_t mapping_ns;    /* of it, what mappings cost: pages go from spans to others, and to what is reloaded */
    uint64_t peak_bytes;    /* the most that is predicted to be held */
    uint64_t evicted_bytes; /* in a round */
};

/* What the user asked of the policy. */
struct penstock_policy_options {
    uint32_t prefetch_layers; /* reload this many layers ahead of the one that needs it */
    uint32_t defer_layers;    /* release this many layers after the one that used it last */
    uint32_t keep_last;       /* layers at the end of forward that stay */
};

struct penstock_policy {
    uint32_t version; /* PENSTOCK_POLICY_VERSION as it was compiled with; another one is refused */
    const char *name;
    /* NULL: penstock_lru_choose */
    penstock_choose_fn choose;
    /* NULL: never plans. Scratch memory that `plan` wants for this step, in bytes. */
    size_t (*workspace_bytes)(const struct penstock_step *step);
    /*
     * Fills *plan; `plan->move` and `plan->capacity` are set. `workspace` is aligned for any type and holds what workspace_bytes said. The
     * predicted waits and predicted_ns may be left alone: whoever asked has penstock_predict fill them. 0, or a negative errno: then nothing
     * of the plan is used (-ERANGE: even with everything movable evicted, the step does not fit the budget; the plan is then the best there
     * is, and is used).
     */
    int (*plan)(const struct penstock_step *step, const struct penstock_policy_options *options, void *workspace,
                struct penstock_plan *plan);
};

/* Policies of the tree: `plan` (least predicted exposed time), `layers` (by hand), `lru` (never plans). */
extern const struct penstock_policy penstock_policy_plan, penstock_policy_layers, penstock_policy_lru;

/*
 * Plays a plan through: device time of one round in the steady state, with both links and the budget as the step says. Fills the predicted
 * fields of *plan and of its moves. 0, or -EINVAL with *why (a constant string) when the plan is no plan for this step. Workspace as above.
 */
size_t penstock_predict_workspace_bytes(const struct penstock_step *step);
int penstock_predict(const struct penstock_step *step, void *workspace, struct penstock_plan *plan, const char **why);

#ifdef __cplusplus
}
#endif

#endif
