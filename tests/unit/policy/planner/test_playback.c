/*
 * penstock_predict, compared with figures worked out by hand and with a second simulator. That one
 * knows no events: it lets time pass in small steps and checks what has become possible.
 */
#include <math.h>

#include "expect.h"
#include "policy/planner/playback.h"
#include "small_steps.h"
#include "two_spans.h"

static _Alignas(max_align_t) char workspace[1 << 20];

/* ---- by hand: one byte a nanosecond, so that bytes are times ---- */

static void predicts(const struct penstock_step *step, uint64_t ns, uint64_t peak)
{
    const char *why = "none";

    EXPECT_INT(0, penstock_predict(step, workspace, &plan, &why));
    EXPECT_TEXT("none", why);
    EXPECT_U64(ns, plan.predicted_ns);
    EXPECT_U64(peak, plan.peak_bytes);
}

static void test_nothing_moves(void)
{
    struct penstock_step step = two_spans(1, 600);

    predicts(&step, 400, 600);
    EXPECT_U64(400, plan.plain_ns);
    EXPECT_U64(0, plan.evicted_bytes);
}

/*
 * The D2H runs from 100 to 400, so the allocation at 200 waits 200. The reload begins at the free,
 * at 500. Launch 3 waits for 300.
 */
static void test_waits_for_both_links(void)
{
    struct penstock_step step = two_spans(1, 500);

    moves[0] = (struct penstock_move){0, 0, 3, 3, 0};
    plan.moves = 1;
    predicts(&step, 400 + 200 + 300, 300);
    EXPECT_U64(300, moves[0].predicted_wait_ns);
    EXPECT_U64(300, plan.evicted_bytes);

    /* Overheads: pages come 50 later, and so does all that follows; the H2D is ready 20 later. */
    step.links.evict_overhead_ns = 50;
    step.links.reload_overhead_ns = 20;
    predicts(&step, 400 + 250 + 320, 300);
    EXPECT_U64(320, moves[0].predicted_wait_ns);

    /* D2H twice as fast: it is over at 250. */
    step = two_spans(1, 500);
    step.links.d2h_bytes_per_s = 2 * RATE;
    plan.moves = 1;
    predicts(&step, 400 + 50 + 300, 300);
}

/*
 * When span 1 is freed, span 0's reload gets its pages. Span 1 gets others in the next round. The
 * host waits for them: it unmaps the pages that gave way, and maps them.
 */
static void test_mappings_take_time(void)
{
    struct penstock_step step = two_spans(1, 500);

    moves[0] = (struct penstock_move){0, 0, 3, 3, 0};
    plan.moves = 1;
    step.links.mapping_ns = 100;
    predicts(&step, 900 + 200, 300);
    EXPECT_U64(200, plan.mapping_ns);
    /*
     * The H2D of the reload must be over by then. The host is as late as that, and is not waited
     * for.
     */
    launches[3].host_ns = 300;
    predicts(&step, 900 + 200, 300);
    /* But not if the host has more to do than the link. */
    launches[3].host_ns = 450;
    predicts(&step, 900 + 200 + 50, 300);
    EXPECT_U64(200, plan.mapping_ns);
    launches[3].host_ns = 0;
    /* With room for both, no pages go from one to the other. */
    step = two_spans(1, 600);
    step.links.mapping_ns = 100;
    predicts(&step, 400, 600);
}

/*
 * With room for both, the reload begins as soon as its eviction is over. Only its rest is waited
 * for.
 */
static void test_reload_overlaps(void)
{
    struct penstock_step step = two_spans(1, 600);

    /*
     * D2H from 100 to 400, while the allocation at 200 fits at once (300 + 300). H2D from 400 to
     * 700; launch 3 could start at 300.
     */
    moves[0] = (struct penstock_move){0, 0, 2, 3, 0};
    plan.moves = 1;
    predicts(&step, 700 + 100, 600);
    EXPECT_U64(400, moves[0].predicted_wait_ns);
    /* Longer launches hide it: launch 2 runs from 600 to 1100, the reload from 400 on. */
    step = two_spans(1, 600);
    launches[1].duration_ns = 500;
    launches[2].duration_ns = 500;
    plan.moves = 1;
    predicts(&step, 1200, 600);
    EXPECT_U64(0, moves[0].predicted_wait_ns);
    /* A reload not allowed before launch 3 is waited for in full. */
    moves[0].reload_from = 3;
    predicts(&step, 1500, 300);
}

/*
 * The host's lead over the device is limited. If the host is slower by more than the lead, the
 * device waits for it. It does so even if the host had nothing to do before.
 */
static void test_the_lead_is_limited(void)
{
    const uint64_t ms = 1000000;
    struct penstock_step step = two_spans(ms, 600 * ms);

    moves[0] = (struct penstock_move){0, 0, 2, 3, 0};
    plan.moves = 1;
    launches[1].duration_ns = launches[2].duration_ns = 500 * ms;
    launches[3].host_ns = 500 * ms + PS_RUN_AHEAD_NS;
    predicts(&step, 1200 * ms, 600 * ms);
    launches[3].host_ns += 3 * ms;
    predicts(&step, 1203 * ms, 600 * ms);
    /* If nothing moves, nothing holds the host. */
    plan.moves = 0;
    predicts(&step, 1200 * ms, 600 * ms);
}

/*
 * A gap across the ring's end. Span 0 leaves after launch 3 and is back for launch 0 of the next
 * round. In the steady state the D2H takes 100, and the H2D 100.
 */
static void test_round_the_ring(void)
{
    struct penstock_step step = two_spans(1, 600);

    moves[0] = (struct penstock_move){0, 3, 0, 0, 0};
    plan.moves = 1;
    predicts(&step, 400 + 300 + 300, 600);
}

/*
 * Both links are busy, each at half its rate. Span 1 (which outlives the step here) is evicted
 * while span 0 is reloaded.
 */
static void test_links_share(void)
{
    struct penstock_step step = two_spans(1, 600);

    spans[1] = (struct penstock_step_span){.bytes = 300, .born = NEVER, .freed = NEVER, .first_use = 2, .uses = 1};
    for (uint32_t l = 0; l < 4; l++)
        launches[l].moment = l;
    launches[1].duration_ns = 400;
    launches[2].duration_ns = 1000;
    step.moments = 4;
    step.links.d2h_bytes_per_s_both = step.links.h2d_bytes_per_s_both = RATE / 2;
    /*
     * Span 1's gap goes all the way round: it leaves at 1500, when launch 2 ends. Span 0 leaves at
     * 100 and may begin to come back with launch 3, at 1500. Both at half rate until 2100, when
     * launch 3 starts; it ends at 2200. Launch 2 of the next round waits for span 1's 300 ns.
     */
    moves[0] = (struct penstock_move){0, 0, 3, 3, 0};
    moves[1] = (struct penstock_move){1, 2, 2, 2, 0};
    plan.moves = 2;
    predicts(&step, 100 + 400 + 300 + 1000 + 600 + 100, 600);
    EXPECT_U64(600, moves[0].predicted_wait_ns);
    EXPECT_U64(300, moves[1].predicted_wait_ns);
}

static void refused(const char *what, struct penstock_move move)
{
    struct penstock_step step = two_spans(1, 600);
    const char *why = "accepted";

    moves[0] = move;
    plan.moves = 1;
    EXPECT_INT(-22, penstock_predict(&step, workspace, &plan, &why));
    EXPECT_TEXT(what, why);
}

static void test_what_is_no_plan(void)
{
    const char *why = "accepted";

    refused("a move names a span that the step does not have", (struct penstock_move){2, 0, 2, 3, 0});
    refused("a move's evict_after is not a launch of the step", (struct penstock_move){0, 4, 2, 3, 0});
    refused("a move's evict_after is not in a gap of its span", (struct penstock_move){1, 3, NEVER, NEVER, 0});
    refused("a move's needed_by is not the end of its gap", (struct penstock_move){0, 0, 1, 2, 0});
    refused("a move's reload_from is not a launch of the step", (struct penstock_move){0, 0, 9, 3, 0});
    refused("a move's reload_from comes after its needed_by", (struct penstock_move){0, 1, 0, 3, 0});
    refused("a move's reload_from is its evict_after", (struct penstock_move){0, 0, 0, 3, 0});
    refused("a move has a reload, although its gap ends with the free", (struct penstock_move){1, 2, 3, NEVER, 0});

    struct penstock_step step = two_spans(1, 600);
    moves[0] = moves[1] = (struct penstock_move){0, 0, 3, 3, 0};
    plan.moves = 2;
    EXPECT_INT(-22, penstock_predict(&step, workspace, &plan, &why));
    EXPECT_TEXT("a span is moved twice in one gap", why);
    moves[0] = (struct penstock_move){0, 3, 0, 0, 0};
    EXPECT_INT(-22, penstock_predict(&step, workspace, &plan, &why));
    EXPECT_TEXT("the moves are not ordered by evict_after", why);
    plan.moves = 1;
    step.slab_bytes = 299;
    EXPECT_INT(-22, penstock_predict(&step, workspace, &plan, &why));
    EXPECT_TEXT("the slab can't hold all that is evicted at the same time", why);
    step.slab_bytes = 300;
    spans[0].fixed = true;
    EXPECT_INT(-22, penstock_predict(&step, workspace, &plan, &why));
    EXPECT_TEXT("a move names a span that is fixed", why);
    spans[0].fixed = false;
    step.links.h2d_bytes_per_s_both = 0;
    EXPECT_INT(-22, penstock_predict(&step, workspace, &plan, &why));
    EXPECT_TEXT("a link's bandwidth is 0", why);
}

/* ---- the second simulator ---- */

#define TICK_NS 50.0
#define ROUNDS 10

enum where { HERE, QUEUED_OUT, RELEASING, AWAY, QUEUED_IN };

struct span_state {
    enum where where;
    double bytes_left, ready_ns, queued_ns;
    bool dead;
};

/* Pages that evictions have freed, the latest last. */
static struct {
    double at;
    int64_t bytes;
} released[SMALL_USES * (ROUNDS + 1)];

/*
 * Returns the time when there was room for the bytes held now, if the host came to it later than
 * `host`. Without the pages released since, there would be none.
 */
static double room_since(uint32_t releases, int64_t room, double host)
{
    while (releases-- > 0 && released[releases].at > host)
        if ((room -= released[releases].bytes) < 0)
            return released[releases].at;
    return host;
}

/* Returns the transfer that has been queued longest and may run. */
static struct span_state *first_queued(struct span_state *state, uint32_t count, enum where where)
{
    struct span_state *first = NULL;

    for (uint32_t i = 0; i < count; i++) {
        if (state[i].where == where && (!first || state[i].queued_ns < first->queued_ns))
            first = &state[i];
    }
    return first;
}

static double by_ticks(const struct small_step *s, const struct penstock_plan *p)
{
    const struct penstock_links *links = &s->step.links;
    struct span_state state[SMALL_SPANS];
    uint32_t order[SMALL_USES], reloads = 0;
    double now = 0, launch_end = -1, round_start = 0, round_ns = 0, sequence = 0;
    double host = 0, arrived = -1, begun_at[SMALL_USES] = {0};
    bool issued = false;
    uint32_t releases = 0;
    int64_t held = s->demand[s->step.moments - 1];
    uint64_t allowed = 0, begun = 0;
    bool started[SMALL_USES] = {false};

    memset(state, 0, sizeof state);
    for (uint32_t i = 0; i < p->moves; i++) {
        const struct penstock_move *m = &p->move[i];
        bool across = m->needed_by == NEVER ? s->span[m->span].freed < s->launch[m->evict_after].moment
                                            : m->needed_by <= m->evict_after;
        if (across) {
            state[m->span].where = AWAY;
            held -= (int64_t)s->span[m->span].bytes;
        }
        if (m->needed_by != NEVER)
            order[reloads++] = i;
    }
    /* Sorted by reload_from, then by how soon the span is needed after that. */
    for (uint32_t i = 1; i < reloads; i++) {
        for (uint32_t at = i; at > 0; at--) {
            const struct penstock_move *a = &p->move[order[at - 1]], *b = &p->move[order[at]];
            uint32_t a_soon = ps_ring_distance(a->reload_from, a->needed_by, s->step.launches);
            uint32_t b_soon = ps_ring_distance(b->reload_from, b->needed_by, s->step.launches);
            if (a->reload_from < b->reload_from || (a->reload_from == b->reload_from && a_soon <= b_soon))
                break;
            uint32_t held_order = order[at];
            order[at] = order[at - 1];
            order[at - 1] = held_order;
        }
    }
    uint32_t moment = 0, rounds = 0;
    bool allowed_here = false;
    while (rounds < ROUNDS && now < 1e12) {
        struct span_state *out = first_queued(state, s->step.spans, QUEUED_OUT),
                          *in = first_queued(state, s->step.spans, QUEUED_IN);
        if (in && in->ready_ns > now)
            in = NULL;
        if (out)
            out->bytes_left -= TICK_NS * (double)(in ? links->d2h_bytes_per_s_both : links->d2h_bytes_per_s) / 1e9;
        if (in)
            in->bytes_left -= TICK_NS * (double)(out ? links->h2d_bytes_per_s_both : links->h2d_bytes_per_s) / 1e9;
        now += TICK_NS;
        if (out && out->bytes_left <= 0) {
            out->where = RELEASING;
            out->ready_ns = now + (double)links->evict_overhead_ns;
        }
        if (in && in->bytes_left <= 0)
            in->where = HERE;
        for (uint32_t i = 0; i < s->step.spans; i++) {
            if (state[i].where == RELEASING && state[i].ready_ns <= now) {
                state[i].where = state[i].dead ? HERE : AWAY;
                state[i].dead = false;
                held -= (int64_t)s->span[i].bytes;
                released[releases].at = now;
                released[releases++].bytes = (int64_t)s->span[i].bytes;
            }
        }
        for (bool going = true; going;) {
            /* Reloads come first, in turn; then the events that the program can do at once. */
            while (begun < allowed) {
                uint32_t i = order[begun % reloads];
                struct span_state *span = &state[p->move[i].span];
                int64_t bytes = (int64_t)s->span[p->move[i].span].bytes;
                if (!started[i] && (span->where == QUEUED_OUT || span->where == RELEASING ||
                                    (span->where == AWAY && held + bytes > (int64_t)s->step.budget_bytes)))
                    break;
                if (!started[i] && span->where == AWAY) {
                    *span = (struct span_state){QUEUED_IN, (double)bytes, now + (double)links->reload_overhead_ns,
                                                sequence++, false};
                    held += bytes;
                    begun_at[i] = now;
                }
                started[i] = false;
                begun++;
            }
            going = false;
            uint32_t l = 0, span = 0;
            while (l < s->step.launches && s->launch[l].moment != moment)
                l++;
            while (span < s->step.spans && s->span[span].born != moment && s->span[span].freed != moment)
                span++;
            if (l < s->step.launches) {
                if (launch_end >= 0) {
                    if (now + TICK_NS / 2 < launch_end)
                        break;
                    launch_end = -1;
                    allowed_here = issued = false;
                    for (uint32_t i = 0; i < p->moves; i++) {
                        if (p->move[i].evict_after == l)
                            state[p->move[i].span] = (struct span_state){
                                QUEUED_OUT, (double)s->span[p->move[i].span].bytes, 0, sequence++, false};
                    }
                } else {
                    bool ready = true, begun_all = true;
                    if (!allowed_here) {
                        for (uint32_t i = 0; i < reloads; i++)
                            allowed += p->move[order[i]].reload_from == l;
                        allowed_here = true;
                        going = true;
                        continue;
                    }
                    for (uint32_t i = 0; i < p->moves; i++) {
                        const struct penstock_move *m = &p->move[i];
                        struct span_state *needed = &state[m->span];
                        int64_t bytes = (int64_t)s->span[m->span].bytes;
                        if (m->needed_by != l)
                            continue;
                        if (needed->where == AWAY && held + bytes <= (int64_t)s->step.budget_bytes) {
                            *needed = (struct span_state){QUEUED_IN, (double)bytes,
                                                          now + (double)links->reload_overhead_ns, sequence++, false};
                            held += bytes;
                            begun_at[i] = now;
                            for (uint64_t turn = begun; turn < allowed; turn++)
                                started[i] |= order[turn % reloads] == i;
                        }
                        ready &= needed->where == HERE;
                        begun_all &= needed->where == HERE || needed->where == QUEUED_IN;
                    }
                    if (begun_all && !issued) {
                        issued = true;
                        host += (double)s->launch[l].host_ns;
                        for (uint32_t i = 0; i < p->moves; i++)
                            if (p->move[i].needed_by == l)
                                host = fmax(host, begun_at[i] + (double)links->reload_overhead_ns);
                        host = fmax(host, now - PS_RUN_AHEAD_NS);
                    }
                    if (!ready || (p->moves && now + TICK_NS / 2 < host))
                        break;
                    launch_end = now + (double)s->launch[l].duration_ns;
                    going = true;
                    continue;
                }
            } else if (s->span[span].born == moment) {
                int64_t bytes = (int64_t)s->span[span].bytes;
                arrived = arrived < 0 ? now : arrived;
                if (state[span].where == QUEUED_OUT || state[span].where == RELEASING ||
                    held + bytes > (int64_t)s->step.budget_bytes)
                    break;
                held += bytes;
                host =
                    fmax(host, now > arrived ? now : room_since(releases, (int64_t)s->step.budget_bytes - held, host));
                arrived = -1;
            } else {
                if (state[span].where == HERE)
                    held -= (int64_t)s->span[span].bytes;
                else if (state[span].where == AWAY)
                    state[span].where = HERE;
                else
                    state[span].dead = true;
            }
            going = true;
            if (++moment == s->step.moments) {
                moment = 0;
                rounds++;
                round_ns = now - round_start;
                round_start = now;
            }
            if (rounds == ROUNDS)
                break;
        }
    }
    return round_ns;
}

#define CASES 600

static void test_against_ticks(void)
{
    unsigned compared = 0, with_moves = 0;
    uint64_t host_state = 88172645463325252u;
    double worst = 0;

    for (uint64_t seed = 1; seed <= CASES; seed++) {
        static struct small_step s;
        struct penstock_move move[SMALL_USES];
        struct penstock_plan p = {.move = move, .capacity = SMALL_USES};

        small_step_make(&s, 900000 + seed, 40);
        /*
         * In every other step the host has work: for some launches less than the device, for some
         * more.
         */
        for (uint32_t l = 0; l < s.step.launches && seed % 2; l++)
            s.launch[l].host_ns = 1000 * small_random(&host_state, seed % 3 ? 150 : 300);
        EXPECT(penstock_policy_plan.workspace_bytes(&s.step) <= sizeof workspace);
        if (penstock_policy_plan.plan(&s.step, NULL, workspace, &p) != 0 || p.predicted_ns == 0)
            continue;
        double ticks = by_ticks(&s, &p);
        /* The second simulator may see each launch, allocation and transfer one tick late. */
        double allowed = TICK_NS * (s.step.moments + 6 * p.moves) + 0.002 * ticks;
        double difference = (double)p.predicted_ns - ticks;
        compared++;
        with_moves += p.moves > 0;
        if (!EXPECT(difference < allowed && difference > -allowed))
            fprintf(stderr, "  ... seed %" PRIu64 ": predicted %" PRIu64 " ns, by ticks %.0f ns, %" PRIu32 " moves\n",
                    seed, p.predicted_ns, ticks, p.moves);
        difference = difference < 0 ? -difference : difference;
        worst = difference / ticks > worst ? difference / ticks : worst;
    }
    printf("%u plans agree, %u of them with moves; at worst by %.4f\n", compared, with_moves, worst);
    EXPECT(compared > CASES / 2 && with_moves > CASES / 4);
}

int main(void)
{
    test_nothing_moves();
    test_waits_for_both_links();
    test_mappings_take_time();
    test_reload_overlaps();
    test_the_lead_is_limited();
    test_round_the_ring();
    test_links_share();
    test_what_is_no_plan();
    test_against_ticks();
    return expect_status();
}
