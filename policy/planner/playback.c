#include "policy/planner/playback.h"

#include <string.h>

#include "policy/planner/gaps.h"

#define NS_PER_S 1e9
#define FOREVER 1e300
/*
 * The factor on the D2H of a guarded span. Its mapping takes the driver as long again, and half of
 * that holds up the next eviction. (An H200 at 38 GiB: a plan of optimizer state took 1.17 s; the
 * link alone predicted 1.02 s.)
 */
#define GUARDED_TAKES 1.5
/* A rest of a transfer smaller than this is rounding: a thousandth of a byte. */
#define NOTHING_LEFT 1e-3
/* Rounds whose times differ by less than this are the same. */
#define SAME_NS 1.0

enum event_kind { EVENT_NONE, EVENT_LAUNCH, EVENT_ALLOCATED, EVENT_FREED };

struct event {
    uint32_t kind : 2;
    uint32_t index : 30; /* of the launch or span */
};

enum residency { RESIDENT, EVICTING, EVICTED, RELOADING };

/*
 * Moves by the launch at which they are evicted, reloaded or needed. The moves of launch l are
 * order[first[l] ... first[l + 1]).
 */
struct by_launch {
    uint32_t *first, *order;
};

struct ps_playback {
    const struct penstock_step *step;
    const int64_t *demand;
    struct event *event; /* by moment */
    uint8_t *residency;  /* by span: enum residency */
    bool *freed;         /* by span: freed while its D2H was under way */
    struct by_launch evicted, reloaded, needed;
    uint32_t *turn; /* by move: its place among the reloads of a round */
    /* By move: its reload was begun out of turn, and its turn is yet to come. */
    uint8_t *begun;
    uint32_t *h2d_queue; /* a ring of moves */
    double *h2d_ready;   /* by entry of h2d_queue: the time when the H2D may begin */
    double *released_at; /* by move: the time when its pages are free, set when its D2H is over */
    double *begun_at;    /* by move: the time when its reload was begun */

    struct penstock_move *move;
    uint32_t moves, reloads;
    double now;  /* by the device's clock */
    double host; /* the time when the host came to its current place */
    int64_t held, budget;
    double d2h_left, h2d_left; /* bytes of the transfer under way */
    /*
     * The times when the first H2D in the queue may begin and when the first pages are free;
     * FOREVER: none.
     */
    double next_ready, next_release;
    double d2h_rate[2], h2d_rate[2]; /* bytes a ns, alone and beside the other link */
    /*
     * Counters that only grow. An entry's index is the counter modulo the length of its ring. Moves
     * are evicted in their order.
     */
    uint64_t d2h_queued, d2h_over, released;
    uint64_t reload_allowed, reload_begun;
    uint64_t h2d_queued, h2d_over;
    struct ps_outcome outcome;
    const struct ps_playback_watch *watch; /* or NULL */
    uint32_t moment;                       /* the moment that is being played */
};

static void *take(char **memory, size_t bytes)
{
    void *taken = *memory;

    *memory += (bytes + 15) / 16 * 16;
    return taken;
}

/* Measures the memory (playback NULL) or lays it out, by the same walk. */
static size_t lay_out(const struct penstock_step *step, struct ps_playback *p, void *memory)
{
    struct ps_playback measured;
    char *start = memory, *at = start;
    size_t ring = (size_t)step->uses + 1;

    if (!p)
        p = &measured;
    take(&at, sizeof *p);
    p->event = take(&at, step->moments * sizeof *p->event);
    p->residency = take(&at, step->spans * sizeof *p->residency);
    p->freed = take(&at, step->spans * sizeof *p->freed);
    struct by_launch *lists[] = {&p->evicted, &p->reloaded, &p->needed};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        lists[i]->first = take(&at, ((size_t)step->launches + 2) * sizeof *lists[i]->first);
        lists[i]->order = take(&at, ring * sizeof *lists[i]->order);
    }
    p->turn = take(&at, ring * sizeof *p->turn);
    p->begun = take(&at, ring * sizeof *p->begun);
    p->h2d_queue = take(&at, ring * sizeof *p->h2d_queue);
    p->h2d_ready = take(&at, ring * sizeof *p->h2d_ready);
    p->released_at = take(&at, ring * sizeof *p->released_at);
    p->begun_at = take(&at, ring * sizeof *p->begun_at);
    return (size_t)(at - start);
}

size_t ps_playback_bytes(const struct penstock_step *step)
{
    static max_align_t nowhere;

    return lay_out(step, NULL, &nowhere);
}

struct ps_playback *ps_playback_init(const struct penstock_step *step, const int64_t *demand, void *memory)
{
    struct ps_playback *p = memory;

    memset(p, 0, sizeof *p);
    lay_out(step, p, memory);
    p->step = step;
    p->demand = demand;
    p->budget = step->budget_bytes < INT64_MAX ? (int64_t)step->budget_bytes : INT64_MAX;
    p->d2h_rate[0] = (double)step->links.d2h_bytes_per_s / NS_PER_S;
    p->d2h_rate[1] = (double)step->links.d2h_bytes_per_s_both / NS_PER_S;
    p->h2d_rate[0] = (double)step->links.h2d_bytes_per_s / NS_PER_S;
    p->h2d_rate[1] = (double)step->links.h2d_bytes_per_s_both / NS_PER_S;
    memset(p->event, 0, step->moments * sizeof *p->event);
    for (uint32_t i = 0; i < step->launches; i++)
        p->event[step->launch[i].moment] = (struct event){EVENT_LAUNCH, i};
    for (uint32_t i = 0; i < step->spans; i++) {
        if (step->span[i].born == PENSTOCK_NEVER)
            continue;
        p->event[step->span[i].born] = (struct event){EVENT_ALLOCATED, i};
        p->event[step->span[i].freed] = (struct event){EVENT_FREED, i};
    }
    return p;
}

/* ---- the links ---- */

static int64_t bytes_of(const struct ps_playback *p, uint32_t move)
{
    return (int64_t)p->step->span[p->move[move].span].bytes;
}

/* Returns the cost of a move's D2H, in bytes of the link's time. */
static double d2h_bytes_of(const struct ps_playback *p, uint32_t move)
{
    return (double)bytes_of(p, move) * (p->step->span[p->move[move].span].guarded ? GUARDED_TAKES : 1);
}

/* Reports that time has passed since `from` while the held bytes did not change. */
static void show_time(const struct ps_playback *p, double from, double out_bytes, double in_bytes)
{
    if (p->watch && p->watch->passed)
        p->watch->passed(p->watch->ctx, from, p->now, p->moment, p->held, out_bytes, in_bytes);
}

static void show_move(const struct ps_playback *p, enum ps_played what, uint32_t move)
{
    if (p->watch && p->watch->moved)
        p->watch->moved(p->watch->ctx, what, move, p->now);
}

static uint32_t show_pages(const struct ps_playback *p, enum ps_paged what, uint32_t span)
{
    return p->watch && p->watch->paged ? p->watch->paged(p->watch->ctx, what, span, p->held) : 0;
}

/* The D2H under way stands still while parts are mapped. */
static void map_parts(struct ps_playback *p, uint32_t parts)
{
    if (p->d2h_over < p->d2h_queued)
        p->d2h_left += (double)parts * (double)p->step->links.mapping_ns * p->d2h_rate[0];
}

static void hold(struct ps_playback *p, int64_t bytes)
{
    p->held += bytes;
    if (p->held > p->outcome.peak_bytes)
        p->outcome.peak_bytes = p->held;
    show_time(p, p->now, 0, 0);
}

static bool fits(const struct ps_playback *p, int64_t bytes)
{
    return bytes <= p->budget - p->held;
}

static void begin_reload(struct ps_playback *p, uint32_t move)
{
    uint32_t slot = (uint32_t)(p->h2d_queued % (p->step->uses + 1u));

    hold(p, bytes_of(p, move));
    show_move(p, PS_PLAYED_COMES, move);
    map_parts(p, show_pages(p, PS_PAGED_BACK, p->move[move].span));
    p->residency[p->move[move].span] = RELOADING;
    p->h2d_queue[slot] = move;
    p->begun_at[move] = p->now;
    p->h2d_ready[slot] = p->now + (double)p->step->links.reload_overhead_ns;
    if (p->h2d_over == p->h2d_queued) {
        p->h2d_left = (double)bytes_of(p, move);
        p->next_ready = p->h2d_ready[slot];
    }
    p->h2d_queued++;
}

/* Begins the reloads whose turn has come and whose pages are there. */
static void begin_reloads(struct ps_playback *p)
{
    while (p->reload_begun < p->reload_allowed) {
        uint32_t move = p->reloaded.order[p->reload_begun % p->reloads];
        uint8_t residency = p->begun[move] ? RESIDENT : p->residency[p->move[move].span];
        if (residency == EVICTING || (residency == EVICTED && !fits(p, bytes_of(p, move))))
            return;
        if (residency == EVICTED)
            begin_reload(p, move);
        p->begun[move] = 0;
        p->reload_begun++;
    }
}

static void end_d2h(struct ps_playback *p)
{
    uint32_t move = (uint32_t)(p->d2h_over % p->moves);

    p->released_at[move] = p->now + (double)p->step->links.evict_overhead_ns;
    if (p->released == p->d2h_over)
        p->next_release = p->released_at[move];
    p->d2h_over++;
    if (p->d2h_over < p->d2h_queued)
        p->d2h_left = d2h_bytes_of(p, (uint32_t)(p->d2h_over % p->moves));
}

static void release_pages(struct ps_playback *p)
{
    uint32_t move = (uint32_t)(p->released++ % p->moves);
    uint32_t span = p->move[move].span;

    p->next_release = p->released < p->d2h_over ? p->released_at[p->released % p->moves] : FOREVER;
    p->held -= bytes_of(p, move);
    show_move(p, PS_PLAYED_GONE, move);
    if (p->freed[span])
        show_pages(p, PS_PAGED_FREED, span);
    p->residency[span] = p->freed[span] ? RESIDENT : EVICTED;
    p->freed[span] = false;
    begin_reloads(p);
}

static void end_h2d(struct ps_playback *p)
{
    uint32_t ring = p->step->uses + 1;

    p->residency[p->move[p->h2d_queue[p->h2d_over % ring]].span] = RESIDENT;
    show_move(p, PS_PLAYED_BACK, p->h2d_queue[p->h2d_over % ring]);
    p->h2d_over++;
    p->next_ready = FOREVER;
    if (p->h2d_over < p->h2d_queued) {
        p->h2d_left = (double)bytes_of(p, p->h2d_queue[p->h2d_over % ring]);
        p->next_ready = p->h2d_ready[p->h2d_over % ring];
    }
}

/* Reports that from `from` to now the links have copied at these rates; 0: not at all. */
static void show_links(const struct ps_playback *p, double from, double out_rate, double in_rate)
{
    if (!p->watch || !p->watch->passed)
        return;
    double out = (p->now - from) * out_rate, in = (p->now - from) * in_rate;
    /* Part of the time of a guarded span's D2H is not the link's. */
    if (out > 0 && p->step->span[p->move[p->d2h_over % p->moves].span].guarded)
        out /= GUARDED_TAKES;
    show_time(p, from, out, in);
}

/*
 * Goes on to the next event on the links, or to `until` if that comes first. Returns false if
 * nothing is under way.
 */
static bool go_on(struct ps_playback *p, double until)
{
    bool d2h = p->d2h_over < p->d2h_queued;
    double ready = p->next_ready, release = p->next_release;
    bool h2d = ready <= p->now;
    double next = until;

    if (!d2h && ready == FOREVER && release == FOREVER) {
        double from = p->now;
        if (until < FOREVER)
            p->now = until;
        show_time(p, from, 0, 0);
        return false;
    }
    double d2h_rate = p->d2h_rate[h2d], h2d_rate = p->h2d_rate[d2h];
    double d2h_end = d2h ? p->now + p->d2h_left / d2h_rate : FOREVER;
    double h2d_end = h2d ? p->now + p->h2d_left / h2d_rate : FOREVER;
    if (d2h_end < next)
        next = d2h_end;
    if (h2d_end < next)
        next = h2d_end;
    if (release < next)
        next = release;
    if (!h2d && ready < next)
        next = ready;
    if (next < p->now)
        next = p->now;
    if (d2h)
        p->d2h_left -= (next - p->now) * d2h_rate;
    if (h2d)
        p->h2d_left -= (next - p->now) * h2d_rate;
    double from = p->now;
    p->now = next;
    show_links(p, from, d2h ? d2h_rate : 0, h2d ? h2d_rate : 0);
    if (d2h && (d2h_end <= next || p->d2h_left < NOTHING_LEFT))
        end_d2h(p);
    if (h2d && (h2d_end <= next || p->h2d_left < NOTHING_LEFT))
        end_h2d(p);
    while (p->next_release <= p->now)
        release_pages(p);
    return true;
}

static void run_until(struct ps_playback *p, double until)
{
    while (p->now < until && go_on(p, until))
        ;
}

/* ---- what the program does ---- */

static void wait_until_fits(struct ps_playback *p, int64_t bytes)
{
    while (!fits(p, bytes) && go_on(p, FOREVER))
        ;
}

static void wait_until_not(struct ps_playback *p, uint32_t span, enum residency residency)
{
    while (p->residency[span] == residency && go_on(p, FOREVER))
        ;
}

/* Holds the host until that time, if it would go on sooner. */
static void hold_host(struct ps_playback *p, double until)
{
    if (p->host < until)
        p->host = until;
}

/*
 * Returns the time when the latest pages came without which the bytes held now would not fit. The
 * device may have come to the allocation later. The host, ahead of it, has waited for these pages.
 */
static double fits_since(const struct ps_playback *p)
{
    int64_t room = p->budget - p->held;
    uint64_t i = p->released;

    for (; i > 0 && i + p->moves > p->d2h_over; i--) {
        uint32_t move = (uint32_t)((i - 1) % p->moves);
        room -= bytes_of(p, move);
        if (room < 0 || p->released_at[move] <= p->host)
            return p->released_at[move];
    }
    return 0;
}

static void play_allocation(struct ps_playback *p, uint32_t span)
{
    int64_t bytes = (int64_t)p->step->span[span].bytes;
    double before = p->now;

    /* A D2H of the previous round may still be in the queue; its pages count until it is over. */
    wait_until_not(p, span, EVICTING);
    p->residency[span] = RESIDENT;
    wait_until_fits(p, bytes);
    hold(p, bytes);
    hold_host(p, p->now > before ? p->now : fits_since(p));
    const uint32_t parts = show_pages(p, PS_PAGED_NEW, span);
    /* One mapping_ns more is for unmapping the pages that give way. */
    if (parts)
        p->host += (1.0 + parts) * (double)p->step->links.mapping_ns;
    map_parts(p, parts);
    p->outcome.alloc_wait_ns += p->now - before;
}

static void play_free(struct ps_playback *p, uint32_t span)
{
    switch ((enum residency)p->residency[span]) {
    case RESIDENT:
    case RELOADING:
        p->held -= (int64_t)p->step->span[span].bytes;
        show_pages(p, PS_PAGED_FREED, span);
        begin_reloads(p);
        break;
    case EVICTING:
        p->freed[span] = true;
        break;
    case EVICTED:
        p->residency[span] = RESIDENT;
        break;
    }
}

/* Returns the number of times that the move's turn is among the first `reloads` of all rounds. */
static uint64_t turns_among(const struct ps_playback *p, uint32_t move, uint64_t reloads)
{
    return reloads / p->reloads + (reloads % p->reloads > p->turn[move]);
}

/* Begins the move's reload out of turn if it has not begun. */
static void demand_reload(struct ps_playback *p, uint32_t move)
{
    uint32_t span = p->move[move].span;

    wait_until_not(p, span, EVICTING);
    while (p->residency[span] == EVICTED && !fits(p, bytes_of(p, move)) && go_on(p, FOREVER))
        ;
    if (p->residency[span] != EVICTED)
        return;
    begin_reload(p, move);
    p->begun[move] = turns_among(p, move, p->reload_allowed) > turns_among(p, move, p->reload_begun);
}

/*
 * The host comes to the launch, with the launch's reloads begun. If nothing moves, nothing holds
 * the host, and its time is part of the measured launch times.
 */
static void play_host(struct ps_playback *p, uint32_t launch)
{
    const struct by_launch *needed = &p->needed;

    if (!p->moves)
        return;
    p->host += (double)p->step->launch[launch].host_ns;
    for (uint32_t i = needed->first[launch]; i < needed->first[launch + 1]; i++)
        hold_host(p, p->begun_at[needed->order[i]] + (double)p->step->links.reload_overhead_ns);
    hold_host(p, p->now - PS_RUN_AHEAD_NS);
}

static void play_launch(struct ps_playback *p, uint32_t launch)
{
    const struct by_launch *needed = &p->needed, *evicted = &p->evicted;

    p->reload_allowed += p->reloaded.first[launch + 1] - p->reloaded.first[launch];
    begin_reloads(p);
    double before = p->now;
    for (uint32_t i = needed->first[launch]; i < needed->first[launch + 1]; i++)
        demand_reload(p, needed->order[i]);
    play_host(p, launch);
    for (uint32_t i = needed->first[launch]; i < needed->first[launch + 1]; i++) {
        double since = i == needed->first[launch] ? before : p->now;
        wait_until_not(p, p->move[needed->order[i]].span, RELOADING);
        p->move[needed->order[i]].predicted_wait_ns = (uint64_t)(p->now - since);
    }
    p->outcome.reload_wait_ns += p->now - before;
    run_until(p, p->host);
    if (p->watch && p->watch->launch)
        p->watch->launch(p->watch->ctx, launch, p->now);
    run_until(p, p->now + (double)p->step->launch[launch].duration_ns);
    /* The moves themselves are in this order. */
    for (uint32_t i = evicted->first[launch]; i < evicted->first[launch + 1]; i++) {
        if (p->d2h_over == p->d2h_queued)
            p->d2h_left = d2h_bytes_of(p, i);
        p->residency[p->move[i].span] = EVICTING;
        p->d2h_queued++;
        show_move(p, PS_PLAYED_LEAVES, i);
    }
}

static void play_round(struct ps_playback *p)
{
    p->outcome.alloc_wait_ns = 0;
    p->outcome.reload_wait_ns = 0;
    if (p->watch && p->watch->round)
        p->watch->round(p->watch->ctx, p->now);
    for (uint32_t m = 0; m < p->step->moments; m++) {
        p->moment = m;
        switch ((enum event_kind)p->event[m].kind) {
        case EVENT_NONE: /* a span that is no steady part of the step came or went */
            break;
        case EVENT_LAUNCH:
            play_launch(p, p->event[m].index);
            break;
        case EVENT_ALLOCATED:
            play_allocation(p, p->event[m].index);
            break;
        case EVENT_FREED:
            play_free(p, p->event[m].index);
            break;
        }
    }
}

/* ---- setting up ---- */

static uint32_t launch_of(const struct penstock_move *move, size_t list)
{
    return list == 0 ? move->evict_after : list == 1 ? move->reload_from : move->needed_by;
}

/* A counting sort; moves of one launch keep their order. Returns the number of sorted moves. */
static uint32_t sort_by_launch(struct by_launch *by, size_t list, const struct penstock_move *move, uint32_t moves,
                               uint32_t launches)
{
    uint32_t sum = 0;

    memset(by->first, 0, ((size_t)launches + 2) * sizeof *by->first);
    for (uint32_t i = 0; i < moves; i++) {
        if (launch_of(&move[i], list) != PENSTOCK_NEVER)
            by->first[launch_of(&move[i], list) + 2]++;
    }
    for (uint32_t l = 0; l < launches + 2; l++) {
        sum += by->first[l];
        by->first[l] = sum;
    }
    for (uint32_t i = 0; i < moves; i++) {
        if (launch_of(&move[i], list) != PENSTOCK_NEVER)
            by->order[by->first[launch_of(&move[i], list) + 1]++] = i;
    }
    return sum;
}

/*
 * Sorts the moves of one reload_from by how soon they are needed. They are few as a rule: then this
 * is an insertion sort; else it is a shell sort.
 */
static void sort_reloads(struct ps_playback *p)
{
    const struct penstock_move *move = p->move;
    uint32_t launches = p->step->launches;

    for (uint32_t l = 0; l < launches; l++) {
        uint32_t *order = p->reloaded.order + p->reloaded.first[l];
        uint32_t count = p->reloaded.first[l + 1] - p->reloaded.first[l];
        for (uint32_t distance = count / 2 > 0 ? count / 2 : 1; count > 1; distance /= 2) {
            for (uint32_t i = distance; i < count; i++) {
                uint32_t moving = order[i], at = i;
                uint32_t key = ps_ring_distance(l, move[moving].needed_by, launches);
                for (; at >= distance && ps_ring_distance(l, move[order[at - distance]].needed_by, launches) > key;
                     at -= distance)
                    order[at] = order[at - distance];
                order[at] = moving;
            }
            if (distance == 1)
                break;
        }
    }
}

/*
 * Sets the state at the ring's begin. Moves whose gaps lie across the ring's end are evicted there,
 * and their D2H is over.
 */
static void begin_ring(struct ps_playback *p)
{
    const struct penstock_step *step = p->step;

    memset(p->residency, RESIDENT, step->spans);
    memset(p->freed, 0, step->spans * sizeof *p->freed);
    memset(p->begun, 0, p->moves);
    p->now = p->host = 0;
    p->d2h_queued = p->d2h_over = p->released = 0;
    p->reload_allowed = p->reload_begun = 0;
    p->h2d_queued = p->h2d_over = 0;
    p->next_ready = p->next_release = FOREVER;
    memset(&p->outcome, 0, sizeof p->outcome);
    p->held = p->demand[step->moments - 1];
    for (uint32_t i = 0; i < p->moves; i++) {
        const struct penstock_move *move = &p->move[i];
        const struct penstock_step_span *span = &step->span[move->span];
        bool across = move->needed_by == PENSTOCK_NEVER ? span->freed < step->launch[move->evict_after].moment
                                                        : move->needed_by <= move->evict_after;
        /*
         * A deferred release: a gap can open in the previous round while the span's late eviction
         * falls into this round.
         */
        if (across) {
            p->residency[move->span] = EVICTED;
            p->held -= (int64_t)span->bytes;
        }
        p->move[i].predicted_wait_ns = 0;
        p->begun_at[i] = 0;
    }
    p->outcome.peak_bytes = p->held;
}

void ps_playback_show(struct ps_playback *p, const struct ps_playback_watch *watch)
{
    p->watch = watch;
}

struct ps_outcome ps_playback_run(struct ps_playback *p, struct penstock_move *move, uint32_t moves, unsigned rounds)
{
    uint32_t launches = p->step->launches;
    unsigned least = p->watch && p->watch->paged ? PS_PAGED_ROUNDS : 0;
    double round_ns = -1;

    p->move = move;
    p->moves = moves;
    sort_by_launch(&p->evicted, 0, move, moves, launches);
    p->reloads = sort_by_launch(&p->reloaded, 1, move, moves, launches);
    sort_by_launch(&p->needed, 2, move, moves, launches);
    sort_reloads(p);
    for (uint32_t i = 0; i < p->reloads; i++)
        p->turn[p->reloaded.order[i]] = i;
    begin_ring(p);
    for (unsigned i = 0; i < rounds; i++) {
        double start = p->now;
        play_round(p);
        double difference = p->now - start - round_ns;
        round_ns = p->now - start;
        if (i + 1 >= least && difference < SAME_NS && difference > -SAME_NS)
            break;
    }
    p->outcome.round_ns = round_ns;
    return p->outcome;
}
