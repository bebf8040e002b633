/*
 * Plays a step through with some of its spans moved: the simulator of the device, its memory and the two links that penstock_predict and the
 * planner share. How a plan is executed, as it is modelled here:
 *
 * Two clocks. The device's: launches run one after the other. What the program allocates or frees between two launches happens when the
 * first of them is over: the host is ahead of that, but what it is given there may not be used sooner.
 * And the host's: it takes its time (host_ns) from one launch to the next, and waits where it is given pages, until they are there, and before a launch
 * that uses what is reloaded, until that is begun. It is no further ahead than PS_RUN_AHEAD_NS, and a launch begins no sooner than the host has come to it:
 * behind a wait, launches that are shorter on the device than on the host take what they take there.
 *   - An eviction is queued when its launch is over. One D2H at a time, in the order of queueing; the pages are free `evict_overhead_ns`
 *     after it. That of a guarded span takes half as long again.
 *   - A reload may begin once the launch `reload_from` begins, when its own eviction is over and its pages are there. Reloads begin in the order
 *     of (reload_from, how soon it is needed), the first one holding up the others; the H2D is ready `reload_overhead_ns` later. One H2D at a
 *     time. What hasn't begun when its launch comes begins there, out of turn.
 *   - An allocation waits until it fits. When nothing under way would ever make it fit, it is granted all the same: the peak shows it.
 *   - While both links are busy, both run at their rates for that.
 *   - Where pages must be mapped (`paged` says so), each part takes mapping_ns, during which the D2H under way stands still (shim/cuda/copy_gate.h); the host of an allocation
 *     takes that, and as long again for the pages of what gives way. The H2D goes on meanwhile, and a reload's own mapping is part of its overhead.
 * Rounds are played until two take the same time.
 *
 * Pure: memory from the caller; a round costs about as many operations as there are moments and moves. Threads: one at a time per playback.
 */
#ifndef PS_PLAYBACK_H
#define PS_PLAYBACK_H

#include <stdbool.h>

#include "penstock/policy.h"

/* Rounds of a plan that is to be judged: the links' rates can be known badly, and rounds then go on changing for a while. */
#define PS_PREDICT_ROUNDS 24

#define PS_PAGED_ROUNDS 4

/*
 * How far ahead of the device the host may be while spans move, by work that the device has yet to do: enough for the host to be slow now and then, as it is where
 * it allocates a dozen spans of small kernels (a CNN at 10 of 11 GiB: 65 ms a step with 6 ms, 62 with 12).
 */
#define PS_RUN_AHEAD_NS 12000000u

struct ps_playback;

/* What a round came to. */
struct ps_outcome {
    double round_ns;
    double alloc_wait_ns;  /* of it, allocations waiting for pages */
    double reload_wait_ns; /* and launches waiting for reloads */
    int64_t peak_bytes;    /* the most held */
};

/* What becomes of a move: its D2H is queued, its pages are free, its reload is begun (pages taken), its H2D is over. */
enum ps_played { PS_PLAYED_LEAVES, PS_PLAYED_GONE, PS_PLAYED_COMES, PS_PLAYED_BACK };

/* What becomes of pages: a span is allocated, its reload is begun, it is freed with its pages. */
enum ps_paged { PS_PAGED_NEW, PS_PAGED_BACK, PS_PAGED_FREED };

/* Whoever wants to know more than the outcome; each may be NULL. All times are ns from the beginning of the first round on. */
struct ps_playback_watch {
    void (*round)(void *ctx, double at);
    void (*launch)(void *ctx, uint32_t launch, double at); /* it begins: what it waited for is over */
    /* From one time to the other, which may be the same, so much was held at that moment of the step, and so much was copied. */
    void (*passed)(void *ctx, double from, double to, uint32_t moment, int64_t held, double out_bytes, double in_bytes);
    void (*moved)(void *ctx, enum ps_played what, uint32_t move, double at);
    /*
     * So much is held then. Says in how many parts pages are mapped for the span. Where this is asked for at least PS_PAGED_ROUNDS are played: what is freed in
     * one serves the next.
     */
    uint32_t (*paged)(void *ctx, enum ps_paged what, uint32_t span, int64_t held);
    void *ctx;
};

size_t ps_playback_bytes(const struct penstock_step *step);
/* Prepares `memory`, of that size and aligned for any type, for playing this step, which stays the caller's and still. */
struct ps_playback *ps_playback_init(const struct penstock_step *step, const int64_t *demand, void *memory);

/* Tells `watch`, the caller's and still, of the rounds that are played from now on. */
void ps_playback_show(struct ps_playback *playback, const struct ps_playback_watch *watch);

/*
 * Plays up to `rounds` rounds of valid moves, which are ordered by evict_after; fills their predicted_wait_ns. `moves` is at most step->uses.
 */
struct ps_outcome ps_playback_run(struct ps_playback *playback, struct penstock_move *move, uint32_t moves, unsigned rounds);

#endif
