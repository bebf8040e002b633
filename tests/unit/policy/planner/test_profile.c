/*
 * ps_profile_make, compared with figures worked out by hand: one byte takes a nanosecond, so bytes
 * are times. One unit is K of them.
 */
#include "policy/planner/profile.h"

#include "expect.h"
#include "two_spans.h"

#define K UINT64_C(1000)

static _Alignas(max_align_t) char workspace[1 << 16];
static struct ps_profile_launch by_launch[4];
static struct ps_profile profile = {.launch = by_launch};

static void make(const struct penstock_step *step)
{
    const char *why = "none";

    EXPECT_INT(0, penstock_predict(step, workspace, &plan, &why));
    EXPECT(ps_profile_workspace_bytes(step, &plan) <= sizeof workspace);
    ps_profile_make(step, &plan, workspace, &profile);
    EXPECT_U64(plan.predicted_ns, profile.round_ns);
}

static void expect_bin(uint32_t bin, uint64_t demand, uint64_t held, uint64_t out, uint64_t in)
{
    EXPECT_U64(demand * K, profile.bin[bin].demand_bytes);
    EXPECT_U64(held * K, profile.bin[bin].held_bytes);
    EXPECT_U64(out, profile.bin[bin].out_bytes);
    EXPECT_U64(in, profile.bin[bin].in_bytes);
}

/* Each bin's bytes are rounded. */
static bool about(uint64_t expected, uint64_t actual)
{
    return actual + PS_PROFILE_BINS >= expected && actual <= expected + PS_PROFILE_BINS;
}

static void sums(uint64_t out, uint64_t in, uint64_t demand, uint64_t held)
{
    uint64_t all_out = 0, all_in = 0, most_demand = 0, most_held = 0;

    for (uint32_t i = 0; i < PS_PROFILE_BINS; i++) {
        const struct ps_profile_bin *b = &profile.bin[i];
        all_out += b->out_bytes;
        all_in += b->in_bytes;
        most_demand = b->demand_bytes > most_demand ? b->demand_bytes : most_demand;
        most_held = b->held_bytes > most_held ? b->held_bytes : most_held;
    }
    EXPECT(about(out * K, all_out));
    EXPECT(about(in * K, all_in));
    EXPECT_U64(demand * K, most_demand);
    EXPECT_U64(held * K, most_held);
}

static void test_nothing_moves(void)
{
    struct penstock_step step = two_spans(K, 600);

    make(&step);
    EXPECT_U64(400 * K, profile.round_ns);
    sums(0, 0, 600, 600);
    expect_bin(10, 300, 300, 0, 0);
    expect_bin(120, 600, 600, 0, 0); /* 240 K ns */
    EXPECT_U64(2, profile.spans);
    /* Span 0 is idle from 100 to 300; span 1 has but one use, until its free. */
    EXPECT_U64(0, profile.span[0].span);
    EXPECT_U64(PS_PROFILE_NEVER, profile.span[0].born_ns);
    EXPECT_U64(1, profile.span[0].gaps);
    EXPECT_U64(100 * K, profile.span[0].gap[0].from_ns);
    EXPECT_U64(300 * K, profile.span[0].gap[0].to_ns);
    EXPECT_U64(PS_PROFILE_NEVER, profile.span[0].gap[0].leaves_ns);
    EXPECT_U64(200 * K, profile.span[1].born_ns);
    EXPECT_U64(300 * K, profile.span[1].freed_ns);
    EXPECT_U64(0, profile.span[1].born_layer);
    EXPECT_U64(NEVER, by_launch[3].largest);
}

/*
 * The D2H runs from 100 to 400, so the allocation at 200 waits 200. The reload begins at the free,
 * at 500. Launch 3 waits for 300.
 */
static void test_both_links(void)
{
    struct penstock_step step = two_spans(K, 500);

    moves[0] = (struct penstock_move){0, 0, 3, 3, 0};
    plan.moves = 1;
    make(&step);
    EXPECT_U64(900 * K, profile.round_ns);
    sums(300, 300, 600, 300);
    expect_bin(10, 300, 300, 0, 0);    /* 45 K ns, 4.5 a bin */
    expect_bin(50, 600, 300, 4500, 0); /* 225: the D2H runs, and the allocation waits */
    EXPECT_U64(4500, profile.bin[150].in_bytes);
    EXPECT_U64(0, by_launch[0].at_ns);
    EXPECT_U64(400 * K, by_launch[2].at_ns);
    EXPECT_U64(800 * K, by_launch[3].at_ns);
    EXPECT_U64(300 * K, by_launch[3].reloads_bytes);
    EXPECT_U64(0, by_launch[3].largest);
    const struct ps_profile_gap *gap = &profile.span[0].gap[0];
    EXPECT_U64(1, profile.span[0].moves);
    EXPECT_U64(1, profile.span[0].gaps);
    EXPECT_U64(100 * K, gap->from_ns);
    EXPECT_U64(800 * K, gap->to_ns);
    EXPECT_U64(100 * K, gap->leaves_ns);
    EXPECT_U64(400 * K, gap->gone_ns);
    EXPECT_U64(500 * K, gap->comes_ns);
    EXPECT_U64(800 * K, gap->back_ns);
}

/* The eviction of a guarded span takes half as long again, and copies no more bytes. */
static void test_guarded(void)
{
    struct penstock_step step = two_spans(K, 500);

    spans[0].guarded = true;
    moves[0] = (struct penstock_move){0, 0, 3, 3, 0};
    plan.moves = 1;
    make(&step);
    uint64_t out = 0;
    for (uint32_t i = 0; i < PS_PROFILE_BINS; i++)
        out += profile.bin[i].out_bytes;
    EXPECT(about(300 * K, out));
    EXPECT_U64((100 + 450) * K, profile.span[0].gap[0].gone_ns);
}

/*
 * Times are rounded. A launch that follows at once never seems to begin before the previous one
 * ends. Otherwise a gap of no length would look like the whole step.
 */
static void test_what_takes_no_time_is_no_gap(void)
{
    for (uint64_t rate = 1; rate <= 3000; rate++) {
        struct penstock_step step = two_spans(K, 600);

        spans[2] = (struct penstock_step_span){.bytes = 7, .born = NEVER, .freed = NEVER, .first_use = 3, .uses = 2};
        uses[3] = 0;
        uses[4] = 1; /* at once */
        step.spans = 3;
        step.uses = 5;
        launches[0].duration_ns = 800 * K;
        step.links.h2d_bytes_per_s +=
            7919 * rate; /* launch 3 waits, until a fraction of a nanosecond, and so begins the next round */
        moves[0] = (struct penstock_move){0, 0, 3, 3, 0};
        plan.moves = 1;
        make(&step);
        for (uint32_t i = 0; i < profile.spans; i++)
            for (uint32_t g = 0; profile.span[i].span == 2 && g < profile.span[i].gaps; g++)
                if (!EXPECT(profile.span[i].gap[g].from_ns != profile.span[i].gap[g].to_ns + 1))
                    return;
    }
}

int main(void)
{
    test_nothing_moves();
    test_both_links();
    test_guarded();
    test_what_takes_no_time_is_no_gap();
    return expect_status();
}
