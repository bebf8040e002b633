/*
 * A plan prepared for following: the spans that are recognised, evicted and reloaded at each
 * launch, worked out by hand.
 */
#include <stdlib.h>
#include <string.h>

#include "expect.h"
#include "plan/schedule.h"

#define NEVER PENSTOCK_NEVER
#define LAUNCHES 20u
#define GRACE 2u

static struct penstock_launch launch[LAUNCHES];
static struct penstock_step_span span[3];
static struct penstock_move move[3];
static const struct penstock_layer layer;
/*
 * Span 0 outlives the step. Span 1 is born before launch 4 and freed after launch 16. Span 2 is
 * born before launch 17 and freed after launch 4.
 */
static const uint32_t use[] = {0, 19, 4, 5, 15, 3, 17};
static const uint16_t ordinal[] = {3, 1, 0, 2, 0, 0, 1};
static const uint64_t numbers[] = {77, 0, 0};

static void as_it_is(struct penstock_move *moves)
{
    (void)moves;
}

static struct ps_plan_schedule *make_seeing(void (*change)(struct penstock_move *moves), const bool *all_seen)
{
    uint32_t moment = 0;
    struct penstock_step step = {.launches = LAUNCHES,
                                 .launch = launch,
                                 .spans = 3,
                                 .span = span,
                                 .use = use,
                                 .uses = 7,
                                 .layer = &layer,
                                 .layers = 1};
    struct penstock_plan plan = {.move = move, .moves = 3, .predicted_ns = 30, .plain_ns = 20};

    span[0] = (struct penstock_step_span){.bytes = 100, .born = NEVER, .freed = NEVER, .first_use = 0, .uses = 2};
    span[1] = (struct penstock_step_span){.bytes = 200, .first_use = 2, .uses = 3};
    span[2] = (struct penstock_step_span){.bytes = 300, .first_use = 5, .uses = 2};
    for (uint32_t l = 0; l < LAUNCHES; l++) {
        if (l == 4)
            span[1].born = moment++;
        if (l == 5)
            span[2].freed = moment++;
        if (l == 17) {
            span[1].freed = moment++;
            span[2].born = moment++;
        }
        launch[l] = (struct penstock_launch){.duration_ns = 1000000, .moment = moment++};
    }
    step.moments = moment;
    move[0] = (struct penstock_move){.span = 0, .evict_after = 0, .reload_from = 12, .needed_by = 19};
    move[1] = (struct penstock_move){.span = 1, .evict_after = 5, .reload_from = 12, .needed_by = 15};
    move[2] = (struct penstock_move){
        .span = 2, .evict_after = 18, .reload_from = 1, .needed_by = 3}; /* deferred by one launch, across the end */
    change(move);
    return ps_plan_schedule_make(&step, &plan, numbers, ordinal, all_seen, GRACE);
}

static struct ps_plan_schedule *make_with(void (*change)(struct penstock_move *moves))
{
    return make_seeing(change, NULL);
}

static struct ps_plan_schedule *make(void)
{
    return make_with(as_it_is);
}

/* The moves at a launch, as digits in their order. */
static uint32_t at(const struct ps_timetable *t, uint32_t place)
{
    uint32_t digits = 0;

    for (uint32_t i = t->start[place]; i < t->start[place + 1]; i++)
        digits = 10 * digits + t->item[i] + 1;
    return digits;
}

static void test_who_is_due_where(void)
{
    struct ps_plan_schedule *p = make();

    if (!EXPECT(p != NULL))
        return;
    EXPECT_U64(1, at(&p->bind, 0)); /* at the span's last use before it leaves */
    EXPECT_U64(2, at(&p->bind, 5));
    EXPECT_U64(3, at(&p->bind, 17));
    EXPECT_U64(3, p->ordinal[0]);
    EXPECT_U64(2, p->ordinal[1]);
    EXPECT_U64(1, at(&p->evict, 0 + GRACE));
    EXPECT_U64(2, at(&p->evict, 5 + GRACE));
    EXPECT_U64(3, at(&p->evict, 0));    /* 18 and the grace, across the end */
    EXPECT_U64(21, at(&p->reload, 12)); /* the span needed first comes first */
    EXPECT_U64(3, at(&p->reload, 1));
    EXPECT_U64(0, at(&p->reload, 13));
    EXPECT_U64(3, p->reload.start[LAUNCHES]);
    ps_plan_schedule_free(p);
}

static void reload_soon(struct penstock_move *moves)
{
    moves[0].reload_from = 1; /* the planner knows no grace */
    moves[1].needed_by = 8;
    moves[1].reload_from = 6; /* its gap is hardly longer than the grace */
    moves[2].reload_from = 19;
}

static void test_no_reload_is_due_before_its_eviction(void)
{
    struct ps_plan_schedule *p = make_with(reload_soon);

    if (!EXPECT(p != NULL))
        return;
    EXPECT_U64(2, p->moves);
    EXPECT_U64(1, at(&p->evict, 0 + GRACE));
    EXPECT_U64(1, at(&p->reload, 0 + GRACE + 1));
    EXPECT_U64(0, at(&p->evict, 5 + GRACE)); /* it stays */
    EXPECT_U64(0, at(&p->bind, 5));
    EXPECT_U64(2, at(&p->evict, 0));
    EXPECT_U64(2, at(&p->reload, 1));
    EXPECT_U64(300, p->identity[1].bytes);
    EXPECT_U64(2, p->reload.start[LAUNCHES]);
    ps_plan_schedule_free(p);
}

static void test_what_nobody_uses_unseen_has_no_grace(void)
{
    static const bool all_seen[] = {true, false, false};
    struct ps_plan_schedule *p = make_seeing(reload_soon, all_seen);

    if (!EXPECT(p != NULL))
        return;
    EXPECT_U64(2, p->moves);
    EXPECT_U64(12, at(&p->evict, 0)); /* both leave here, in the order of the moves */
    EXPECT_U64(21, at(&p->reload, 1));
    EXPECT_U64(0, p->grace[0]);
    EXPECT_U64(GRACE, p->grace[1]);
    ps_plan_schedule_free(p);
}

static void test_what_becomes_known_is_given_a_grace(void)
{
    static const bool all_seen[] = {true, true, false};
    struct ps_plan_schedule *p = make_seeing(reload_soon, all_seen);

    if (!EXPECT(p != NULL))
        return;
    EXPECT_U64(3, p->moves);
    EXPECT_U64(13, at(&p->evict, 0));
    EXPECT_U64(2, at(&p->evict, 5));
    EXPECT_U64(1, at(&p->reload, 1) % 10); /* behind the third, which is needed sooner */
    ps_plan_schedule_give_grace(p, 0, GRACE);
    ps_plan_schedule_moves_changed(p);
    EXPECT_U64(3, at(&p->evict, 0));
    EXPECT_U64(1, at(&p->evict, 0 + GRACE));
    EXPECT_U64(1, at(&p->reload, 0 + GRACE + 1));
    ps_plan_schedule_give_grace(p, 1, GRACE); /* its gap is too short for that */
    ps_plan_schedule_moves_changed(p);
    EXPECT_U64(0, at(&p->evict, 5));
    EXPECT_U64(0, at(&p->evict, 5 + GRACE));
    EXPECT_U64(2, p->evict.start[LAUNCHES]);
    ps_plan_schedule_give_grace(p, 0, GRACE); /* a second time changes nothing */
    ps_plan_schedule_moves_changed(p);
    EXPECT_U64(1, at(&p->evict, 0 + GRACE));
    EXPECT_U64(0, at(&p->evict, 5 + GRACE));
    ps_plan_schedule_free(p);
}

static void test_a_span_is_known_again(void)
{
    struct ps_plan_schedule *p = make();
    struct ps_span old = {.bytes = 100, .number = 77}, born = {.bytes = 200, .number = 5, .plan.born = 1000};

    if (!EXPECT(p != NULL))
        return;
    EXPECT(ps_plan_schedule_is_meant(&p->identity[0], &old, 12345));
    old.number = 78;
    EXPECT(!ps_plan_schedule_is_meant(&p->identity[0], &old, 12345));
    EXPECT(ps_plan_schedule_is_meant(&p->identity[1], &born, 1001)); /* bound at launch 5, born before launch 4 */
    EXPECT(!ps_plan_schedule_is_meant(&p->identity[1], &born, 1002));
    born.bytes = 201;
    EXPECT(!ps_plan_schedule_is_meant(&p->identity[1], &born, 1001));
    ps_plan_schedule_free(p);
}

static void test_reload_points_that_were_shifted(void)
{
    static uint64_t waited[LAUNCHES];
    struct ps_plan_schedule *p = make();

    if (!EXPECT(p != NULL))
        return;
    waited[19] = 3000000;
    EXPECT(!ps_correction_round(p->correction, waited));
    EXPECT(ps_correction_round(p->correction, waited));
    EXPECT_U64(9, p->move[0].reload_from);
    EXPECT_U64(21, at(&p->reload, 12)); /* until the schedule is told */
    ps_plan_schedule_moves_changed(p);
    EXPECT_U64(2, at(&p->reload, 12));
    EXPECT_U64(1, at(&p->reload, 9));
    EXPECT_U64(3, p->reload.start[LAUNCHES]);
    ps_plan_schedule_moves_changed(p); /* twice is the same as once */
    EXPECT_U64(2, at(&p->reload, 12));
    ps_plan_schedule_free(p);
}

/*
 * Spans 0 and 1 are away together from launch 5 to 11. Span 2, which is as large as both, is away
 * around the end of the step.
 */
static void test_what_is_away_at_once(void)
{
    struct ps_plan_schedule *p = make();
    unsigned n = 0;

    if (!EXPECT(p != NULL))
        return;
    p->move[2].reload_from = 0; /* when span 0 leaves */
    size_t *bytes = ps_plan_schedule_away_at_once(p, &n);
    EXPECT_U64(2, n);
    EXPECT(bytes && bytes[0] == 100 && bytes[1] == 200);
    free(bytes);
    p->identity[2].bytes = 301;
    bytes = ps_plan_schedule_away_at_once(p, &n);
    EXPECT_U64(1, n);
    EXPECT(bytes && bytes[0] == 301);
    free(bytes);
    p->move[2].reload_from = 6; /* now it is away with the others, too */
    bytes = ps_plan_schedule_away_at_once(p, &n);
    EXPECT_U64(3, n);
    free(bytes);
    p->moves = 0;
    EXPECT(!ps_plan_schedule_away_at_once(p, &n));
    EXPECT_U64(0, n);
    p->moves = 3;
    ps_plan_schedule_free(p);
}

int main(void)
{
    test_what_is_away_at_once();
    test_who_is_due_where();
    test_no_reload_is_due_before_its_eviction();
    test_what_nobody_uses_unseen_has_no_grace();
    test_what_becomes_known_is_given_a_grace();
    test_a_span_is_known_again();
    test_reload_points_that_were_shifted();
    return expect_status();
}
