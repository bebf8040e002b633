/*
 * penstock-plan-bound: prints a linear program (in CPLEX's text form) whose optimum is a lower
 * bound on the time of a round of a recorded step, in microseconds, for any choice of evictions.
 * Takes the arguments of `penstock plan`.
 *
 * The ring is cut into intervals; each ends at a checkpoint, the moment of the largest demand in
 * its block of launches.
 *
 *     minimise    the sum of time[j]                              time of interval j
 *     subject to  time[j] >= plain[j]                             launches take their time
 *                 out(j) <= D time[j], in(j) <= H time[j]         out and in: sums over gaps
 *                 out(j) + in(j) (D - D') / H' <= D time[j]       the links reach D and H alone,
 *                 in(j) + out(j) (H - H') / D' <= H time[j]       and D' and H' together
 *                 for each gap g:
 *                     sum of out[g,j] <= bytes[g]                 no more leaves than there is
 *                     sum of in[g,j] = sum of out[g,j]            all comes back; >= 0 if freed
 *                 at each checkpoint c:
 *                     demand(c) - away(c) <= budget               away(c): out minus in before c,
 *                                                                 over the gaps that cover c
 *
 * Every plan that can be carried out gives a solution of that value, averaged over its rounds. The
 * program only drops or loosens constraints: a gap may be evicted in part, pages are freed byte by
 * byte, overheads are 0, a gap may use the whole interval in which it opens or ends, and memory is
 * checked at the checkpoints only. Gaps with the same intervals and checkpoints are added up.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "plan_input.h"
#include "policy/planner/gaps.h"

#define INTERVALS_MAX 80

struct group {
    uint32_t first, count; /* the intervals in which it may transfer: `count` from `first` on, round the ring */
    bool freed;            /* the gap ends with the free: nothing comes back */
    double bytes;
};

struct program {
    const struct penstock_step *step;
    uint32_t intervals;
    uint32_t checkpoint
        [INTERVALS_MAX]; /* moments, ascending: interval j is from checkpoint j - 1 (round the ring) to checkpoint j */
    double plain_us[INTERVALS_MAX];
    struct group *group;
    uint32_t groups;
};

static void find_checkpoints(struct program *p, const struct plan_input *input)
{
    uint32_t blocks = p->step->moments < INTERVALS_MAX ? p->step->moments : INTERVALS_MAX;

    p->intervals = blocks;
    for (uint32_t b = 0; b < blocks; b++) {
        uint32_t from = (uint32_t)((uint64_t)p->step->moments * b / blocks),
                 end = (uint32_t)((uint64_t)p->step->moments * (b + 1) / blocks);
        p->checkpoint[b] = from;
        for (uint32_t m = from; m < end; m++) {
            if (input->demand[m] > input->demand[p->checkpoint[b]])
                p->checkpoint[b] = m;
        }
    }
    /*
     * A launch that is its interval's checkpoint belongs to the next interval: memory is held while
     * it runs.
     */
    for (uint32_t l = 0; l < p->step->launches; l++) {
        uint32_t j = 0;
        while (j < blocks && p->checkpoint[j] <= p->step->launch[l].moment)
            j++;
        p->plain_us[j % blocks] += (double)p->step->launch[l].duration_ns / 1e3;
    }
}

/*
 * Adds a gap, from the end of the launch that opens it to the start of the launch that ends it. It
 * has one interval more than it has checkpoints.
 */
static void add_gap(struct program *p, const struct ps_gap *gap)
{
    uint32_t checkpoints = 0, first = PENSTOCK_NEVER, least = PENSTOCK_NEVER;

    for (uint32_t j = 0; j < p->intervals; j++) {
        uint32_t distance = ps_ring_distance(gap->cover.from, p->checkpoint[j], p->step->moments);
        if (distance >= gap->cover.count)
            continue;
        checkpoints++;
        if (distance < least) {
            least = distance;
            first = j;
        }
    }
    if (checkpoints == 0)
        return;
    bool freed = gap->needed_by == PENSTOCK_NEVER;
    uint32_t count = checkpoints + 1;
    double bytes = (double)p->step->span[gap->span].bytes;
    for (uint32_t i = 0; i < p->groups; i++) {
        struct group *group = &p->group[i];
        if (group->first == first && group->count == count && group->freed == freed) {
            group->bytes += bytes;
            return;
        }
    }
    p->group[p->groups++] = (struct group){first, count, freed, bytes};
}

static void find_groups(struct program *p)
{
    p->group = plan_allocate(p->step->uses * sizeof *p->group);
    for (uint32_t i = 0; i < p->step->spans; i++) {
        for (uint32_t u = 0; u < p->step->span[i].uses && !p->step->span[i].fixed; u++) {
            struct ps_gap gap = ps_gap_after(p->step, i, p->step->span[i].first_use + u);
            add_gap(p, &gap);
        }
    }
}

/*
 * Returns the interval of place k of a gap. A gap with all moments but one covers every checkpoint,
 * and its last interval is the first one again, a round later. Each place has its own variables, so
 * that both can share an interval.
 */
static uint32_t interval_at(const struct program *p, const struct group *group, uint32_t place)
{
    return (group->first + place) % p->intervals;
}

static void print_link(const struct program *p, uint32_t interval, double out, double in, double per_us)
{
    for (uint32_t g = 0; g < p->groups; g++) {
        for (uint32_t k = 0; k < p->group[g].count; k++) {
            if (interval_at(p, &p->group[g], k) != interval)
                continue;
            if (out != 0)
                printf(" + %.9g o%u_%u", out, g, k);
            if (in != 0 && !p->group[g].freed)
                printf(" + %.9g i%u_%u", in, g, k);
        }
    }
    printf(" - %.9g t%u <= 0\n", per_us, interval);
}

/*
 * Prints the constraint of a checkpoint: the gaps that cover it must have at least `excess` away,
 * evicted and not yet back.
 */
static void print_memory(const struct program *p, uint32_t checkpoint, double excess)
{
    printf("m%u:", checkpoint);
    for (uint32_t g = 0; g < p->groups; g++) {
        const struct group *group = &p->group[g];
        uint32_t place = ps_ring_distance(group->first, checkpoint, p->intervals);
        if (place + 1 >= group->count)
            continue;
        for (uint32_t k = 0; k <= place; k++) {
            printf(" + o%u_%u", g, k);
            if (!group->freed)
                printf(" - i%u_%u", g, k);
        }
    }
    printf(" >= %.9g\n", excess);
}

#define MB 1e6

static void print_program(const struct program *p, const struct plan_input *input)
{
    const struct penstock_links *links = &p->step->links;
    /* In MB and microseconds. */
    double d = (double)links->d2h_bytes_per_s / 1e6 / MB, h = (double)links->h2d_bytes_per_s / 1e6 / MB;
    double d_both = (double)links->d2h_bytes_per_s_both / 1e6 / MB,
           h_both = (double)links->h2d_bytes_per_s_both / 1e6 / MB;

    d_both = d_both < d ? d_both : d;
    h_both = h_both < h ? h_both : h;
    printf("Minimize\n time:");
    for (uint32_t j = 0; j < p->intervals; j++)
        printf(" + t%u", j);
    printf("\nSubject To\n");
    for (uint32_t j = 0; j < p->intervals; j++) {
        print_link(p, j, 1, 0, d);
        print_link(p, j, 0, 1, h);
        print_link(p, j, 1, (d - d_both) / h_both, d);
        print_link(p, j, (h - h_both) / d_both, 1, h);
        double excess = ((double)input->demand[p->checkpoint[j]] - (double)p->step->budget_bytes) / MB;
        if (excess > 0)
            print_memory(p, j, excess);
    }
    for (uint32_t g = 0; g < p->groups; g++) {
        for (uint32_t k = 0; k < p->group[g].count; k++)
            printf(" + o%u_%u", g, k);
        printf(" <= %.9g\n", p->group[g].bytes / MB);
        for (uint32_t k = 0; k < p->group[g].count && !p->group[g].freed; k++)
            printf(" + o%u_%u - i%u_%u", g, k, g, k);
        if (!p->group[g].freed)
            printf(" = 0\n");
    }
    printf("Bounds\n");
    for (uint32_t j = 0; j < p->intervals; j++)
        printf(" t%u >= %.9g\n", j, p->plain_us[j]);
    printf("End\n");
}

int main(int argc, char **argv)
{
    static struct plan_input input;
    static struct program program;

    plan_input_read(&input, argc, argv);
    program.step = &input.step;
    find_checkpoints(&program, &input);
    find_groups(&program);
    print_program(&program, &input);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fputs("penstock-plan-bound: standard output can't be written\n", stderr);
        return 1;
    }
    return 0;
}
