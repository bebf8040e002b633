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
#include "plan/layers.h"
#include "plan/plan_making.h"
#include "plan/rank_timings.h"
#include "plan/recording_file.h"
#include "plan/settled_times.h"
#include "plan/step_log.h"
#include "plan/step_profile.h"
#include "policy/hash.h"
#include "policy/planner/least_budget.h"
#include "residency/events.h"
#include "residency/eviction.h"
#include "residency/guard.h"
#include "residency/link_speed.h"
#include "residency/stopwatch.h"

/* A step that has been found and has no plan yet. */
struct wanted {
    bool is;
    uint64_t first; /* its first launch */
    uint32_t length;
    uint64_t since; /* ns */
};

/* Launches whose durations were not told by then are guessed. */
#define DURATIONS_AFTER_NS (2ull * 1000000000u)
#define SAMPLES_AT_ONCE 256
#define SAMPLES_LOOKED_FOR_NS 10000000u
/*
 * Which round under a plan is timed for the plan that takes its place; and how often at most, where
 * devices wait for each other.
 */
#define TIMED_ROUND 2
#define TIMED_MAX 5
#define POSTPONED_MAX 16 /* rounds; a step that is never whole is not timed for ever */
#define TRIES_MAX 5      /* at a first plan */
/*
 * While no step is found so many launches are timed for one that may be; then only while something
 * may have to move, for other plans want no durations. (Of batches of lengths that hardly come
 * again no step is ever found: timing all of their launches took 1.7 % on an H100.)
 */
#define TIMED_UNFOUND 8192u

/*
 * Spans named since the last launch by launches that no step is made of; more are not remembered.
 */
#define AWAITING_LAUNCH_MAX 64

/*
 * What is known of a step, by the detector's slot for it. Guarded by the registry lock, but for
 * `shortest`.
 */
struct pattern {
    uint64_t found; /* how often the slot was given to a new step */
    struct wanted wanted;
    bool planning; /* by the planning thread, now */
    bool planned;
    uint32_t tries;                    /* at a first plan */
    bool moves;                        /* the plan moves something */
    bool fits;                         /* it keeps the step within the budget */
    uint64_t budget_bytes, slab_bytes; /* that it was made for */
    /*
     * The first plan is made from little: found before it had come round, when much of it was the
     * program's first step, or timed in parts.
     */
    bool hasty;
    uint32_t rounds;      /* since the first plan */
    uint64_t round_began; /* launches so far; 0: the step was left since */
    uint32_t timed_round; /* which is timed next, or was last */
    uint32_t times_timed;
    uint64_t plain_ns;                /* what the step takes by the plan in force when nothing moves */
    struct ps_settled_times shortest; /* the planning thread's */
};

static PS_PER_DEVICE struct {
    /* Constant once set up. */
    const struct penstock_policy *policy;
    struct penstock_policy_options options;

    /* Guarded by the registry lock. */
    struct ps_steps *steps;
    struct ps_recorder *recorder;
    uint64_t launches;
    uint64_t unfound_since; /* of launches: learning began, or a step was lost */
    bool timed_in_vain;     /* launches are timed no more since then */
    uint32_t followed;      /* the pattern that the latest launch lies in; PENSTOCK_NEVER: none */
    uint64_t begun_at;      /* ns */
    struct ps_learning_cost cost;
    uint64_t
        /*
         * of the step planned last that loses time: the least budget under which it would not; 0:
         * not known
         */
        enough_bytes;
    struct pattern pattern[PS_PATTERNS_MAX];
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

/* The thread that plans can't have its context. [unlocked] */
static void planner_is_gone(void *unused)
{
    (void)unused;
    atomic_store(&dev->may_learn, false);
}

/*
 * Spans that were there before learning began: nobody saw what they were given to until then.
 * [locked]
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

/* Whether to take in what happens. [locked] */
static bool is_learning(void)
{
    if (!ps_learning_is_on())
        return false;
    if (!atomic_load_explicit(&dev->begun, memory_order_relaxed))
        begin();
    return atomic_load_explicit(&dev->may_learn, memory_order_relaxed);
}

/* [locked] */
static void time_launches(bool wanted)
{
    if (wanted && !ps_stopwatch_learns())
        ps_registry_call(PS_HELPER_PLAN); /* somebody must read what it says */
    ps_stopwatch_learn(wanted);
}

/*
 * Whether the program has used more at once than a plan may count on, or a step is wanted in any
 * case. [locked]
 */
static bool may_move(uint64_t budget_bytes)
{
    return ps_registry.peak_live_bytes > budget_bytes || *ps_settings.recording;
}

/* No step is followed. [locked] */
static void look_whether_timed_in_vain(void)
{
    const bool in_vain =
        dev->launches - dev->unfound_since >= TIMED_UNFOUND && !may_move(ps_budget_for_plan(ps_budget_to_plan_for()));

    if (in_vain != dev->timed_in_vain)
        time_launches(!in_vain);
    dev->timed_in_vain = in_vain;
}

/* Whether a first plan is still to come. */
static bool is_awaited(const struct pattern *p)
{
    return !p->planned && p->tries < TRIES_MAX;
}

/* A plan is to be made of the last `length` launches. [locked] */
static void want(struct pattern *p, uint32_t length)
{
    const uint64_t first = dev->launches - length;

    if (!p->planned && !ps_recorder_keeps(dev->recorder, first, length)) {
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
 * Less than the plan counts on, by more than its margin: others use the device, or the host refuses
 * memory. [locked]
 */
static bool has_less_memory(const struct pattern *p)
{
    return ps_budget_to_plan_for() < p->budget_bytes || ps_slab_limit() < p->slab_bytes - p->slab_bytes / 64;
}

/*
 * Whether the round that ended is one from which a plan of what did not fit is made anew: it may
 * have been recorded in an odd one.
 */
static bool is_tried_again(const struct pattern *p)
{
    return !p->fits && (p->rounds == 4 || p->rounds == 16 || p->rounds == 64);
}

/*
 * Where nothing moves one plan will do. But who records wants a later step, too: what a program's
 * first one leaves on the stack names other spans by accident than what comes later.
 */
static bool is_planned_anew(const struct pattern *p)
{
    return p->moves || *ps_settings.recording;
}

/*
 * A round is over. The durations that the plan was made from were taken while memory was short and
 * every reload was waited for; the second round under the plan is timed again, and the plan made
 * anew from that. So is the first one of a step that was planned in haste. And so it goes on where
 * devices wait for each other, as long as the step gets shorter: see is_still_settling. And when
 * there is less memory than it was made for. [locked]
 */
static void wrapped(struct ps_steps_state state)
{
    struct pattern *p = &dev->pattern[state.pattern];
    /*
     * One that was left and come back to holds other launches too, or not all: the last `length`
     * launches are then no round of the step.
     */
    bool is_whole = p->round_began && dev->launches - p->round_began == state.length;

    p->round_began = dev->launches;
    if (!p->planned) {
        if (is_awaited(p) && is_whole && !p->wanted.is && !p->planning)
            want(p, state.length); /* what it was to be made of is gone, or it came to nothing */
        time_launches(is_awaited(p));
        return;
    }
    p->rounds++;
    bool is_timed = is_planned_anew(p), was_timed = is_timed && p->rounds == p->timed_round + 1;
    if (was_timed && !is_whole && p->rounds < POSTPONED_MAX)
        p->timed_round++; /* the next one is timed instead */
    else if (is_whole && ps_following_is_on() &&
             (was_timed || (p->rounds == 1 && p->hasty) ||
              (!p->wanted.is && !p->planning && (has_less_memory(p) || is_tried_again(p)))))
        want(p, state.length);
    time_launches(is_timed && p->rounds == p->timed_round);
}

/* [locked] */
static void found(struct ps_steps_state state)
{
    struct pattern *p = &dev->pattern[state.pattern];

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

/* What the detector says changes what is timed and what is wanted. [locked] */
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

void ps_learning_unsteady_launch(struct ps_span *const *spans, size_t count)
{
    if (!is_learning())
        return;
    for (size_t i = 0; i < count && dev->awaiting < AWAITING_LAUNCH_MAX; i++, dev->awaiting++) {
        dev->awaiting_launch[dev->awaiting].span = spans[i];
        dev->awaiting_launch[dev->awaiting].number = spans[i]->number;
    }
}

/* The launch names the span. [locked] */
static void record_access(struct ps_span *span, uint64_t launch)
{
    span->plan.mentioned = launch;
    ps_recorder_access(dev->recorder, span->number, span->bytes, span->holds.pinned || span->holds.user_pins);
}

/*
 * What launches before this one have named that no step is made of, and that still lives and that
 * it does not name itself. [locked]
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
     * Nothing of the spans goes into it: structures passed by value hold what was on the stack
     * before, stale pointers too (seen in torch's fused optimizers and in matrix products), and
     * what those lead to changes from step to step.
     */
    struct ps_step_launch launch = {.fingerprint = ps_hash_u64(fingerprint)};

    if (!is_learning())
        return 0;
    if (ps_layers_take_step())
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
    record_what_waited(
        number); /* last: what a plan does at a launch it finds by its place among what that names itself */
    struct ps_steps_state state = ps_steps_observe(dev->steps, launch);
    dev->followed = state.following ? state.pattern : PENSTOCK_NEVER;
    if (state.event != PS_STEPS_NOTHING) {
        ps_events_step(state);
        heed(state);
    }
    if (state.following)
        dev->timed_in_vain = false; /* what is timed in a step its rounds decide */
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

/* Samples that the device has come to go where they are wanted. [unlocked] */
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

/* While other ranks are waited for. [unlocked] */
static bool is_over_for_planning(void)
{
    take_in_samples();
    return ps_shutdown_asked();
}

/* The recorded step in memory of its own, or NULL. [locked] */
static void *record(const struct wanted *w, struct penstock_step *step, struct ps_recorded_details *details)
{
    size_t bytes = 0;
    void *memory = NULL;

    if (!ps_recorder_step_bytes(dev->recorder, w->first, w->length, &bytes))
        memory = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    if (memory && ps_recorder_step(dev->recorder, w->first, w->length, memory, step, details)) {
        free(memory);
        memory = NULL;
    }
    if (!memory)
        ps_log_debug(POLICY, "a step of %u launches could not be recorded", w->length);
    return memory;
}

/* Whether its slot will be mapped while it is away, which takes the driver time. [locked] */
static bool is_guarded(const struct penstock_step_span *span, uint64_t number)
{
    const struct ps_span *lives = ps_registry_numbered(number);
    bool is_piece = lives && ps_block_of(lives);

    return is_piece ? ps_settings.guard != PS_GUARD_UNMAP
                    : ps_guard_is_for(ps_settings.guard, ps_guard_sees_all(lives, span->born == PENSTOCK_NEVER));
}

/* For the report, of the plan that was just installed. [locked; releases the lock meanwhile] */
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

/* A step that was found in the midst of one that nobody timed. */
static bool is_barely_timed(const struct penstock_step *step, const bool *timed)
{
    uint32_t guessed = 0;

    for (uint32_t i = 0; i < step->launches; i++)
        guessed += !timed[i];
    return guessed > step->launches / 8;
}

/*
 * Whether another timed round will tell more of the step than the one that this plan was made from.
 * What a launch takes holds its waits for another device, in a collective or by an event, and that
 * one may stand still for its own transfers: each then plans for more time than there is, and keeps
 * the other waiting. As plans get better, both take less. [locked]
 */
static bool is_still_settling(const struct pattern *p, uint64_t plain_ns)
{
    bool waits_for_others = ps_devices_several || ps_counted(nccl_calls);

    return waits_for_others && p->times_timed < TIMED_MAX && plain_ns < p->plain_ns - p->plain_ns / 32;
}

/* Makes the plan and has it followed. 0 or -errno. [locked; releases the lock meanwhile] */
static int plan_from(uint32_t pattern, struct wanted w)
{
    struct pattern *p = &dev->pattern[pattern];
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
    /* With memory enough no byte moves, not even to measure the link. */
    const bool moves = may_move(step.budget_bytes);
    ps_apply_span_rules(&step, (struct penstock_step_span *)step.span, details.number, w.first);
    if (ps_verify_is_on())
        ps_observers.step(&step, w.first);
    for (uint32_t i = 0; i < step.spans; i++)
        ((struct penstock_step_span *)step.span)[i].guarded =
            is_guarded(&step.span[i], details.number[i]); /* in our memory */
    ps_registry_unlock();
    ps_settled_times_take(&p->shortest, found_as, &step, details.timed);
    step.links = *ps_link_speed(moves);
    if (moves)
        ps_rank_timings_reach(&step, w.first, is_over_for_planning);
    ps_recording_file_write(&step);
    int r = ps_plan_make(&making, &plan);
    const bool fits = r != -ERANGE;
    r = fits ? r : 0;  /* the best there is, and reacting does the rest */
    take_in_samples(); /* it took its time */
    ps_registry_lock();
    /* Found anew meanwhile: this is the plan of a step that is no more. */
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
        p->hasty |= is_guess && p->moves; /* what needs no moves does so by its bytes alone */
        if (dev->followed == pattern)
            time_launches(p->hasty && !p->rounds);
    }
    if (!r && *ps_settings.report)
        keep_profile(pattern, found_as, &step, &plan);
    /*
     * What the closing line may advise. Nobody waits for it; but for the first plan, soon to be
     * made anew, it would be in vain.
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

/* [locked; releases the lock meanwhile] */
static void plan_one(uint32_t pattern)
{
    struct pattern *p = &dev->pattern[pattern];
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
 * Whether all durations are told that will be, or it has been waited long enough, or what it is to
 * be made of is about to be lost. [locked]
 */
static bool is_ripe(const struct wanted *w, uint64_t oldest)
{
    const uint64_t before = w->length / 8 < w->first ? w->length / 8 : w->first;

    return oldest >= w->first + w->length || ps_now_ns() - w->since > DURATIONS_AFTER_NS ||
           !ps_recorder_keeps(dev->recorder, w->first - before, w->length);
}

static void plan_steps(void)
{
    static const struct timespec a_moment = {.tv_nsec = 1000000};
    bool has_begun = false;
    uint64_t oldest, launches = 0; /* so many before the samples were looked at */

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
