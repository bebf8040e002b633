/*
 * The playback: plays a step through with some of its spans moved. It simulates the device, its
 * memory and the two directions of the link. penstock_predict and the planner share it. It models
 * the execution of a plan like this:
 *
 * Two clocks. On the device's clock, launches run one after the other. Allocations and frees
 * between two launches happen when the first of the two is over. The host makes them earlier, but
 * the program can't use their memory sooner.
 *
 * The host takes host_ns from one launch to the next. An allocation makes it wait until the pages
 * are there. A launch that uses a reloaded span makes it wait until the reload has begun. The host
 * is at most PS_RUN_AHEAD_NS ahead. A launch begins no sooner than the host has come to it. So
 * after a wait, launches that are shorter on the device than on the host take their host time.
 *   - An eviction is queued when its launch is over. One D2H runs at a time, in the order of
 *     queueing. The pages are free `evict_overhead_ns` after it. The D2H of a guarded span takes
 *     half as long again.
 *   - A reload may begin once the launch `reload_from` begins, its own eviction is over, and its
 *     pages are there. Reloads begin in the order of reload_from; among equals the one needed
 *     soonest begins first. The first reload holds up the others. The H2D is ready
 *     `reload_overhead_ns` later. One H2D runs at a time. A reload that has not begun when its
 *     launch comes begins there, out of turn.
 *   - An allocation waits until it fits. If nothing under way would ever make it fit, it is granted
 *     all the same, and the peak shows it.
 *   - While both directions are busy, both run at their rates for that.
 *   - Where pages must be mapped (`paged` says so), each part takes mapping_ns. Meanwhile the D2H
 *     under way stands still (shim/cuda/copy_gate.h), and the H2D goes on. The host takes that time
 *     for an allocation, and one mapping_ns more to unmap the pages that give way. The mapping of a
 *     reload is part of its overhead.
 *
 * The playback plays rounds until two take the same time.
 *
 * Pure: memory from the caller. A round takes about one operation for each moment and move.
 * Threads: one at a time for each playback.
 */
#ifndef PS_PLAYBACK_H
#define PS_PLAYBACK_H

#include <stdbool.h>

#include "penstock/policy.h"

/*
 * The most rounds played to judge a plan. If the known rates of the link are wrong, rounds go on
 * changing for a while.
 */
#define PS_PREDICT_ROUNDS 24

/* The least rounds played when the watch has `paged`. */
#define PS_PAGED_ROUNDS 4

/*
 * The run-ahead allowed while spans move, in work that the device has yet to do. It lets the host
 * be slow now and then, as when it allocates a dozen spans of small kernels. (A CNN at 10 of 11
 * GiB: 65 ms a step with 6 ms, 62 ms with 12 ms.)
 */
#define PS_RUN_AHEAD_NS 12000000u

struct ps_playback;

/* The outcome of a round. */
struct ps_outcome {
    double round_ns;
    double alloc_wait_ns;  /* the part in which allocations wait for pages */
    double reload_wait_ns; /* the part in which launches wait for reloads */
    int64_t peak_bytes;    /* the most bytes held */
};

/*
 * The events of a move: its D2H is queued, its pages are free, its reload has begun (pages taken),
 * its H2D is over.
 */
enum ps_played { PS_PLAYED_LEAVES, PS_PLAYED_GONE, PS_PLAYED_COMES, PS_PLAYED_BACK };

/* The events of pages: a span is allocated, its reload has begun, it is freed with its pages. */
enum ps_paged { PS_PAGED_NEW, PS_PAGED_BACK, PS_PAGED_FREED };

/*
 * Functions that the playback calls as it plays, for details beyond the outcome. Each may be NULL.
 * Times are in ns since the begin of the first round.
 */
struct ps_playback_watch {
    void (*round)(void *ctx, double at); /* a round begins */
    /* The launch begins: its waits are over. */
    void (*launch)(void *ctx, uint32_t launch, double at);
    /*
     * At that moment of the step, spans held `held` bytes from one time to the other. The two times
     * may be the same. Copies moved out_bytes to the host and in_bytes to the device.
     */
    void (*passed)(void *ctx, double from, double to, uint32_t moment, int64_t held, double out_bytes, double in_bytes);
    void (*moved)(void *ctx, enum ps_played what, uint32_t move, double at);
    /*
     * The span gets pages, or is freed with its pages; `held` bytes are held then. Returns the
     * number of parts in which pages are mapped for it. If this is set, at least PS_PAGED_ROUNDS
     * are played, because pages freed in one round serve the next.
     */
    uint32_t (*paged)(void *ctx, enum ps_paged what, uint32_t span, int64_t held);
    void *ctx;
};

/* Returns the bytes of memory that ps_playback_init wants. */
size_t ps_playback_bytes(const struct penstock_step *step);

/*
 * Prepares `memory`, which has that size and is aligned for any type, to play this step. The caller
 * owns `step` and `demand` (gaps.h), and does not change them.
 */
struct ps_playback *ps_playback_init(const struct penstock_step *step, const int64_t *demand, void *memory);

/*
 * Calls the functions of `watch` from now on; NULL: none. The caller owns it and does not change
 * it.
 */
void ps_playback_show(struct ps_playback *playback, const struct ps_playback_watch *watch);

/*
 * Plays up to `rounds` rounds of valid moves, ordered by evict_after, and fills their
 * predicted_wait_ns. `moves` is at most step->uses. Returns the outcome of the last round.
 */
struct ps_outcome ps_playback_run(struct ps_playback *playback, struct penstock_move *move, uint32_t moves,
                                  unsigned rounds);

#endif
