#include "plan/learning.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/counters.h"
#include "base/log.h"
#include "base/observers.h"
#include "base/per_device.h"
#include "base/settings.h"
#include "base/state.h"
#include "base/waits.h"
#include "cuda/devices.h"
#include "cuda/helper_thread.h"
#include "memory/blocks.h"
#include "memory/budget.h"
#include "memory/registry.h"
#include "memory/shutdown.h"
#include "memory/slab.h"
#include "plan/apply_span_rules.h"
#include "plan/following.h"
#include "plan/host_pace.h"
#include "plan/layer_markers.h"
#include "plan/plan_making.h"
#include "plan/rank_timings.h"
#include "plan/recording_file.h"
#include "plan/settled_times.h"
#include "plan/step_log.h"
#include "plan/step_profile.h"
#include "policy/base/hash.h"
#include "policy/planner/least_budget.h"
#include "policy/recording/recorded_step.h"
#include "residency/events.h"
#include "residency/eviction.h"
#include "residency/guard.h"
#include "residency/link_speed.h"
#include "residency/stopwatch.h"

/* A step that is found and has no plan yet. */
struct wanted {
    bool is;
    uint64_t first; /* its first launch */
    uint32_t length;
    uint64_t since; /* ns */
};

/* Durations that are not known by then are guessed. */
#define DURATIONS_AFTER_NS (2ull * 1000000000u)
#define SAMPLES_AT_ONCE 256
#define SAMPLES_LOOKED_FOR_NS 10000000u
/* Under a plan, this round is timed for the next plan; up to TIMED_MAX where devices wait. */
#define TIMED_ROUND 2
#define TIMED_MAX 5
#define POSTPONED_MAX 16 /* rounds; limits the timing of a step that is never whole */
#define TRIES_MAX 5      /* tries at a first plan */
/*
 * While no step is found, this many launches are timed for a step that may come. After that
 * launches are timed only while something may have to move, because other plans need no durations.
 * (Batches of lengths that rarely repeat never give a step: timing all their launches took 1.7 % on
 * an H100.)
 */
#define TIMED_UNFOUND 8192u

/* Spans named since the last launch by launches of no step; further ones are not remembered. */
#define AWAITING_LAUNCH_MAX 64

/* A step, by the detector's slot for it. Guarded by the registry lock, except `shortest`. */
struct known_pattern {
    uint64_t found; /* the number of times that the slot was given to a new step */
    struct wanted wanted;
    bool planning; /* the planning thread plans it now */
    bool planned;
    uint32_t tries;                    /* tries at a first plan */
    bool moves;                        /* the plan moves something */
    bool fits;                         /* the plan keeps the step within the budget */
    uint64_t budget_bytes, slab_bytes; /* that the plan was made for */
    /* The first plan had little data: the step had not come round, or was timed in parts. */
    bool hasty;
    uint32_t rounds;      /* rounds since the first plan */
    uint64_t round_began; /* number of launches when the round began; 0: the step was left since */
    uint32_t timed_round; /* the round that is timed next, or was timed last */
    uint32_t times_timed;
    uint64_t plain_ns;                /* duration of the step when nothing moves, by the plan in force */
    struct ps_settled_times shortest; /* belongs to the planning thread */
};

static PS_PER_DEVICE struct {
    /* Constant once set up. */
    const struct penstock_policy *policy;
    struct penstock_policy_options options;

    /* Guarded by the registry lock. */
    struct ps_steps *steps;
    struct ps_recorder *recorder;
    uint64_t launches;
    uint64_t unfound_since; /* number of launches when learning began, or when a step was lost */
    bool timed_in_vain;     /* launches are not timed any more since then */
    uint32_t followed;      /* the pattern that the latest launch lies in; PENSTOCK_NEVER: none */
    uint64_t begun_at;      /* ns */
    struct ps_learning_cost cost;
    /* The least budget without loss, from the latest plan that loses time; 0: not known. */
    uint64_t enough_bytes;
    struct known_pattern pattern[PS_PATTERNS_MAX];
    struct {
        struct ps_span *span;
        uint64_t number;
    } awaiting_launch[AWAITING_LAUNCH_MAX];
    size_t awaiting;

    atomic_bool may_learn; /* the policy plans, and there is memory */
    atomic_bool begun;
} first_dev;
#define dev (&PS_HERE(first_dev))

static void plan_steps(void);

void ps_learning_open(const struct penstock_policy *with, const struct penstock_policy_options *by)
{
    dev->policy = with;
    dev->options = *by;
    if (!dev->policy->plan || ps_budget.limit == UINT64_MAX)
        return;
    dev->steps = calloc(1, ps_steps_bytes());
    dev->recorder = calloc(1, ps_recorder_bytes());
    if (!dev->steps || !dev->recorder) {
        ps_log_warn(POLICY, "no memory to learn steps: evictions are chosen by last use "
                            "alone; a lower PENSTOCK_HOST_BUDGET makes the slab smaller");
        return;
    }
    ps_steps_init(dev->steps);
    ps_recorder_init(dev->recorder);
    atomic_store(&dev->may_learn, true);
}

bool ps_learning_is_on(void)
{
    return atomic_load_explicit(&dev->may_learn, memory_order_relaxed) && ps_tracing_is_on();
}

/* Stops learning when the planning thread can't have its context. [unlocked] */
static void planner_is_gone(void *unused)
{
    (void)unused;
    atomic_store(&dev->may_learn, false);
}

/*
 * Begins learning. Takes in the spans that exist already: kernels may have kept their addresses
 * unseen. [locked]
 */
static void begin(void)
{
    struct ps_span *span;

    atomic_store(&dev->begun, true);
    dev->begun_at = ps_now_ns();
    for (CUdeviceptr a = ps_registry.start; (span = ps_registry_next(a)); a = span->address + span->bytes)
        if (span->life == PS_LIFE_LIVE) {
            ps_recorder_allocated(dev->recorder, span->number, span->bytes);
            atomic_store_explicit(&span->grace.known, true, memory_order_relaxed);
        }
    ps_stopwatch_learn(true);
    if (ps_helper_thread_start("penstock-plan", plan_steps, planner_is_gone, NULL))
        atomic_store(&dev->may_learn, false);
}

/* Returns whether events are recorded; begins learning at the first call. [locked] */
static bool is_learning(void)
{
    if (!ps_learning_is_on())
        return false;
    if (!atomic_load_explicit(&dev->begun, memory_order_relaxed))
        begin();
    return atomic_load_explicit(&dev->may_learn, memory_order_relaxed);
}

/* Turns the timing of launches on or off. [locked] */
static void time_launches(bool wanted)
{
    if (wanted && !ps_stopwatch_learns())
        ps_registry_call(PS_HELPER_PLAN); /* the planning thread must read the samples */
    ps_stopwatch_learn(wanted);
}

/*
 * Returns whether the program has used more bytes at once than a plan may count on. Returns true,
 * too, if the user wants a recording. [locked]
 */
static bool may_move(uint64_t budget_bytes)
{
    return ps_registry.peak_live_bytes > budget_bytes || *ps_settings.recording;
}

/*
 * Called while no step is followed. Ends the timing of launches if no step is found and nothing may
 * have to move, and else resumes it. [locked]
 */
static void look_whether_timed_in_vain(void)
{
    const bool in_vain =
        dev->launches - dev->unfound_since >= TIMED_UNFOUND && !may_move(ps_budget_for_plan(ps_budget_to_plan_for()));

    if (in_vain != dev->timed_in_vain)
        time_launches(!in_vain);
    dev->timed_in_vain = in_vain;
}

/* Returns whether a first plan is still to come. */
static bool is_awaited(const struct known_pattern *p)
{
    return !p->planned && p->tries < TRIES_MAX;
}

/* Asks the planning thread for a plan of the last `length` launches. [locked] */
static void want(struct known_pattern *p, uint32_t length)
{
    const uint64_t first = dev->launches - length;

    if (!p->planned && !ps_recorded_step_is_kept(dev->recorder, first, length)) {
        p->tries = TRIES_MAX;
        ps_log_warn_once(
            POLICY,
            "a step of %u launches, with the spans that they name, exceeds the %u events that are kept: it is not "
            "planned, and evictions are chosen by last use alone; a larger PENSTOCK_MIN_SPAN makes fewer spans",
            length, PS_RECORDER_MOMENTS);
        return;
    }
    p->wanted = (struct wanted){true, first, length, ps_now_ns()};
    ps_registry_call(PS_HELPER_PLAN);
}

/*
 * Returns whether memory is less than the plan counts on, by more than its margin. Other processes
 * use the device, or the host refuses memory. [locked]
 */
static bool has_less_memory(const struct known_pattern *p)
{
    return ps_budget_to_plan_for() < p->budget_bytes || ps_slab_limit() < p->slab_bytes - p->slab_bytes / 64;
}

/*
 * Returns whether the round that ended should give a new plan because the last one did not fit. The
 * last plan may come from an odd round.
 */
static bool is_tried_again(const struct known_pattern *p)
{
    return !p->fits && (p->rounds == 4 || p->rounds == 16 || p->rounds == 64);
}

/*
 * Returns whether later rounds are planned again. One plan will do where nothing moves. A recording
 * needs a later step, too: on the stack, the first step leaves pointers that name other spans than
 * later steps do.
 */
static bool is_planned_anew(const struct known_pattern *p)
{
    return p->moves || *ps_settings.recording;
}

/*
 * A round is over. The durations for the first plan were taken while memory was short and every
 * reload was waited for. So the second round under the plan is timed, and the step is planned again
 * from it. A step that was planned in haste is planned again after its first round. Where devices
 * wait for each other, rounds are timed as long as the step gets shorter: see is_still_settling.
 * The step is planned again, too, when less memory is left than the plan was made for. [locked]
 */
static void wrapped(struct ps_steps_state state)
{
    struct known_pattern *p = &dev->pattern[state.pattern];
    /*
     * A round that was interrupted holds other launches too, or not all of its own. Then the last
     * `length` launches are no round of the step.
     */
    bool is_whole = p->round_began && dev->launches - p->round_began == state.length;

    p->round_began = dev->launches;
    if (!p->planned) {
        if (is_awaited(p) && is_whole && !p->wanted.is && !p->planning)
            want(p, state.length); /* the recorded launches are gone, or the attempt failed */
        time_launches(is_awaited(p));
        return;
    }
    p->rounds++;
    bool is_timed = is_planned_anew(p), was_timed = is_timed && p->rounds == p->timed_round + 1;
    if (was_timed && !is_whole && p->rounds < POSTPONED_MAX)
        p->timed_round++; /* the next round is timed instead */
    else if (is_whole && ps_following_is_on() &&
             (was_timed || (p->rounds == 1 && p->hasty) ||
              (!p->wanted.is && !p->planning && (has_less_memory(p) || is_tried_again(p)))))
        want(p, state.length);
    time_launches(is_timed && p->rounds == p->timed_round);
}

/* The detector has found a new step. [locked] */
static void found(struct ps_steps_state state)
{
    struct known_pattern *p = &dev->pattern[state.pattern];

    ps_following_forget(state.pattern);
    p->planned = false;
    p->tries = 0;
    p->rounds = 0;
    p->timed_round = TIMED_ROUND;
    p->times_timed = 0;
    p->hasty = !state.come_round;
    p->found++;
    p->round_began = dev->launches;
    ps_step_log_begin(dev->launches - 1);
    ps_log_debug(POLICY, "a step of %u launches (pattern %u), found after %llu", state.length, state.pattern,
                 (unsigned long long)dev->launches);
    p->wanted.is = false;
    want(p, state.length);
    time_launches(is_awaited(p));
}

/* Updates timing and wanted plans after the detector's event. [locked] */
static void heed(struct ps_steps_state state)
{
    switch (state.event) {
    case PS_STEPS_FOUND:
        found(state);
        break;
    case PS_STEPS_LOST:
        for (uint32_t p = 0; p < PS_PATTERNS_MAX; p++)
            dev->pattern[p].round_began = 0;
        dev->unfound_since = dev->launches;
        time_launches(true);
        break;
    case PS_STEPS_RECOGNISED:
        time_launches(is_awaited(&dev->pattern[state.pattern]));
        break;
    case PS_STEPS_WRAPPED:
        wrapped(state);
        break;
    case PS_STEPS_NOTHING:
        break;
    }
}

void ps_learning_stale_launch(struct ps_span *const *spans, size_t count)
{
    if (!is_learning())
        return;
    for (size_t i = 0; i < count && dev->awaiting < AWAITING_LAUNCH_MAX; i++, dev->awaiting++) {
        dev->awaiting_launch[dev->awaiting].span = spans[i];
        dev->awaiting_launch[dev->awaiting].number = spans[i]->number;
    }
}

/* Records that the launch names the span. [locked] */
static void record_access(struct ps_span *span, uint64_t launch)
{
    span->plan.mentioned = launch;
    ps_recorder_access(dev->recorder, span->number, span->bytes, span->holds.pinned || span->holds.user_pins);
}

/*
 * Records the spans that earlier launches outside any step have named. Omits spans that are freed
 * and spans that this launch names itself. [locked]
 */
static void record_what_waited(uint64_t launch)
{
    for (size_t i = 0; i < dev->awaiting; i++) {
        struct ps_span *span = dev->awaiting_launch[i].span;
        if (span->number == dev->awaiting_launch[i].number && span->life == PS_LIFE_LIVE &&
            span->plan.mentioned != launch)
            record_access(span, launch);
    }
    dev->awaiting = 0;
}

uint64_t ps_learning_launch(struct ps_span *const *spans, size_t count, uint64_t fingerprint, uint32_t stream,
                            struct ps_recorded_layer layer)
{
    /*
     * The hash leaves out the spans. Structures passed by value hold earlier bytes of the stack,
     * stale pointers too. (Seen in torch's fused optimizers and in matrix products.) The spans that
     * those point to change from step to step.
     */
    struct ps_step_launch launch = {.fingerprint = ps_hash_u64(fingerprint)};

    if (!is_learning())
        return 0;
    if (ps_layer_markers_take_step())
        ps_steps_mark(dev->steps);
    const uint64_t number = dev->launches++;
    struct ps_recorder *recorder = dev->recorder;
    for (size_t i = 0; i < count; i++) {
        uint64_t ago = number - spans[i]->plan.mentioned;
        launch.reach = ago > launch.reach ? ago : launch.reach;
    }
    ps_recorder_launch(recorder, launch, stream, layer);
    ps_recorder_host(recorder, ps_host_pace_launched());
    for (size_t i = 0; i < count; i++)
        record_access(spans[i], number);
    /*
     * This comes last: a plan finds a span by its place among the spans that the launch names
     * itself.
     */
    record_what_waited(number);
    struct ps_steps_state state = ps_steps_observe(dev->steps, launch);
    dev->followed = state.following ? state.pattern : PENSTOCK_NEVER;
    if (state.event != PS_STEPS_NOTHING) {
        ps_events_step(state);
        heed(state);
    }
    if (state.following)
        dev->timed_in_vain = false; /* in a step, its rounds decide what is timed */
    else
        look_whether_timed_in_vain();
    ps_following_launch(state, number);
    if (state.event == PS_STEPS_WRAPPED)
        ps_step_log_ended(number);
    return number;
}

void ps_learning_allocated(struct ps_span *span)
{
    if (!is_learning())
        return;
    span->plan.born = span->plan.mentioned = dev->launches;
    ps_recorder_allocated(dev->recorder, span->number, span->bytes);
}

void ps_learning_freed(const struct ps_span *span)
{
    if (is_learning())
        ps_recorder_freed(dev->recorder, span->number);
}

uint64_t ps_learning_named(uint64_t launch, uint32_t place)
{
    return dev->recorder ? ps_recorder_named(dev->recorder, launch, place) : 0;
}

void ps_learning_summary(struct ps_steps_summary *out)
{
    *out = (struct ps_steps_summary){0};
    if (dev->steps)
        ps_steps_summary(dev->steps, out);
}

uint64_t ps_learning_enough_bytes(void)
{
    return dev->enough_bytes;
}

struct ps_learning_cost ps_learning_cost(void)
{
    return dev->cost;
}

/* ---- the planning thread ---- */

/* Takes in the samples that the device has reached. [unlocked] */
static void take_in_samples(void)
{
    struct ps_stopwatch_sample sample[SAMPLES_AT_ONCE];
    size_t n;

    do {
        n = ps_stopwatch_read(sample, SAMPLES_AT_ONCE);
        if (!n)
            return;
        ps_registry_lock();
        for (size_t i = 0; i < n; i++) {
            if (sample[i].waited) {
                ps_following_waited(sample[i].launch, sample[i].ns);
                ps_step_log_waited(sample[i].launch, sample[i].ns);
            } else {
                ps_recorder_duration(dev->recorder, sample[i].launch, sample[i].ns);
            }
        }
        ps_registry_unlock();
    } while (n == SAMPLES_AT_ONCE);
}

/* Called while the plan waits for other ranks. [unlocked] */
static bool is_over_for_planning(void)
{
    take_in_samples();
    return ps_shutdown_asked();
}

/* Returns the recorded step in memory of its own, or NULL. [locked] */
static void *record(const struct wanted *w, struct penstock_step *step, struct ps_recorded_details *details)
{
    size_t bytes = 0;
    void *memory = NULL;

    if (!ps_recorded_step_bytes(dev->recorder, w->first, w->length, &bytes))
        memory = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    if (memory && ps_recorded_step_make(dev->recorder, w->first, w->length, memory, step, details)) {
        free(memory);
        memory = NULL;
    }
    if (!memory)
        ps_log_debug(POLICY, "a step of %u launches could not be recorded", w->length);
    return memory;
}

/*
 * Returns whether the span's slot will be mapped while it is away, which takes the driver time.
 * [locked]
 */
static bool is_guarded(const struct penstock_step_span *span, uint64_t number)
{
    const struct ps_span *lives = ps_registry_numbered(number);
    bool is_piece = lives && ps_block_of(lives);

    return is_piece ? ps_settings.guard != PS_GUARD_UNMAP
                    : ps_guard_is_for(ps_settings.guard, ps_guard_sees_all(lives, span->born == PENSTOCK_NEVER));
}

/*
 * Keeps the profile of the plan that was just installed, for the report. [locked; releases the lock
 * meanwhile]
 */
static void keep_profile(uint32_t pattern, uint64_t found_as, const struct penstock_step *step,
                         const struct penstock_plan *plan)
{
    ps_registry_unlock();
    struct ps_step_profile *profile = ps_step_profile_make(step, plan);
    ps_registry_lock();
    if (dev->pattern[pattern].found == found_as)
        ps_following_profile(pattern, profile);
    else
        ps_step_profile_free(profile);
}

/* Returns whether more than an eighth of the step's launches were not timed. */
static bool is_barely_timed(const struct penstock_step *step, const bool *timed)
{
    uint32_t guessed = 0;

    for (uint32_t i = 0; i < step->launches; i++)
        guessed += !timed[i];
    return guessed > step->launches / 8;
}

/*
 * Returns whether another timed round will tell more of the step than the round that this plan was
 * made from. A launch's duration includes its waits for another device, in a collective or by an
 * event. That device may stand still for its own transfers. Then each device plans for more time
 * than it has, and delays the other. As plans get better, both durations shrink. [locked]
 */
static bool is_still_settling(const struct known_pattern *p, uint64_t plain_ns)
{
    bool waits_for_others = ps_devices_several || ps_counted(nccl_calls);

    return waits_for_others && p->times_timed < TIMED_MAX && plain_ns < p->plain_ns - p->plain_ns / 32;
}

/* Puts a new plan into force. Returns 0 or -errno. [locked; releases the lock meanwhile] */
static int plan_from(uint32_t pattern, struct wanted w)
{
    struct known_pattern *p = &dev->pattern[pattern];
    struct penstock_step step = {0};
    struct penstock_plan plan = {0};
    struct ps_recorded_details details = {0};
    const struct ps_plan_making making = {dev->policy, &dev->options, &step, take_in_samples};
    void *memory = record(&w, &step, &details);
    uint64_t found_as = p->found;

    if (!memory)
        return -ENODATA;
    const bool has_less = p->planned && has_less_memory(p),
               is_guess = !p->planned && is_barely_timed(&step, details.timed);
    p->budget_bytes = step.budget_bytes = ps_budget_for_plan(ps_budget_to_plan_for());
    p->slab_bytes = step.slab_bytes = ps_slab_limit();
    /* With enough memory no byte moves, not even to measure the link. */
    const bool moves = may_move(step.budget_bytes);
    ps_apply_span_rules(&step, (struct penstock_step_span *)step.span, details.number, w.first);
    if (ps_verify_is_on())
        ps_observers.step(&step, w.first);
    for (uint32_t i = 0; i < step.spans; i++)
        /* The array is in our memory. */
        ((struct penstock_step_span *)step.span)[i].guarded = is_guarded(&step.span[i], details.number[i]);
    ps_registry_unlock();
    ps_settled_times_take(&p->shortest, found_as, &step, details.timed);
    step.links = *ps_link_speed(moves);
    if (moves)
        ps_rank_timings_reach(&step, w.first, is_over_for_planning);
    ps_recording_file_write(&step);
    int r = ps_plan_make(&making, &plan);
    const bool fits = r != -ERANGE;
    r = fits ? r : 0;  /* the plan is the best possible, and reacting does the rest */
    take_in_samples(); /* planning took time */
    ps_registry_lock();
    /* A new step was found in the slot meanwhile, so this plan is void. */
    if (!r && (p->wanted.is || p->found != found_as))
        r = -EAGAIN;
    if (!r)
        r = ps_following_install(pattern, &step, &plan, details.number, details.ordinal,
                                 ps_settings.policy.kind == PS_POLICY_PLAN);
    if (!r) {
        if (p->planned && p->rounds > p->timed_round) {
            p->times_timed++;
            if (is_still_settling(p, plan.plain_ns))
                p->timed_round = p->rounds + TIMED_ROUND;
        }
        if (has_less)
            p->timed_round = p->rounds + TIMED_ROUND;
        p->plain_ns = plan.plain_ns;
        p->planned = true;
        p->fits = fits;
        if (!dev->cost.ns)
            dev->cost = (struct ps_learning_cost){dev->launches, ps_now_ns() - dev->begun_at, ps_waits_ns()};
        p->moves = plan.moves != 0;
        p->hasty |= is_guess && p->moves; /* a step that needs no moves fits by its bytes alone */
        if (dev->followed == pattern)
            time_launches(p->hasty && !p->rounds);
    }
    if (!r && *ps_settings.report)
        keep_profile(pattern, found_as, &step, &plan);
    /*
     * Finds the budget that the closing line may advise. No thread waits for it. For the first plan
     * it would be in vain: that one is soon replaced.
     */
    if (!r && p->rounds && ps_settings.policy.kind == PS_POLICY_PLAN && !ps_plan_waits_for_nothing(&plan)) {
        uint64_t limit = ps_budget_to_plan_for(), peak = ps_registry.peak_live_bytes;
        ps_registry_unlock();
        uint64_t enough = ps_plan_find_enough(&making, limit, peak);
        ps_registry_lock();
        dev->enough_bytes = enough;
    }
    free(plan.move);
    free(memory);
    return r;
}

/* Plans the step that this pattern wants. [locked; releases the lock meanwhile] */
static void plan_one(uint32_t pattern)
{
    struct known_pattern *p = &dev->pattern[pattern];
    const struct wanted w = p->wanted;
    const uint64_t found_as = p->found;

    p->wanted.is = false;
    p->planning = true;
    int r = plan_from(pattern, w);
    p->planning = false;
    if (p->planned || p->wanted.is || p->found != found_as)
        return;
    if (++p->tries == TRIES_MAX)
        ps_log_warn_once(POLICY,
                         "a step of %u launches could not be planned (%s) in %u tries: evictions in "
                         "it are chosen by last use alone; PENSTOCK_LOG=debug says more",
                         w.length, strerror(-r), p->tries);
}

/*
 * Returns whether the step should be planned now. Either all durations are known, or the wait was
 * long enough, or the recorded launches are about to be lost. [locked]
 */
static bool is_ripe(const struct wanted *w, uint64_t oldest)
{
    const uint64_t before = w->length / 8 < w->first ? w->length / 8 : w->first;

    return oldest >= w->first + w->length || ps_now_ns() - w->since > DURATIONS_AFTER_NS ||
           !ps_recorded_step_is_kept(dev->recorder, w->first - before, w->length);
}

static void plan_steps(void)
{
    static const struct timespec a_moment = {.tv_nsec = 1000000};
    bool has_begun = false;
    uint64_t oldest, launches = 0; /* number of launches before the samples were read */

    for (;;) {
        take_in_samples();
        size_t outstanding = ps_stopwatch_outstanding(&oldest);
        bool some_wanted = false;
        ps_registry_lock();
        if (!has_begun)
            ps_shutdown_helper_begins();
        has_begun = true;
        ps_shutdown_park_if_due();
        ps_following_all_told(outstanding ? oldest : launches);
        for (uint32_t p = 0; p < PS_PATTERNS_MAX; p++) {
            if (!dev->pattern[p].wanted.is)
                continue;
            some_wanted = true;
            if (is_ripe(&dev->pattern[p].wanted, oldest))
                plan_one(p);
        }
        if (!outstanding && !some_wanted)
            ps_registry_rest(PS_HELPER_PLAN, ps_stopwatch_learns() || ps_following_moves_spans() ? SAMPLES_LOOKED_FOR_NS
                                                                                                 : PS_HELPER_LOOKS_NS);
        launches = dev->launches;
        ps_registry_unlock();
        if (outstanding)
            nanosleep(&a_moment, NULL);
    }
}
