#include "policy/correction.h"

#include <string.h>

/* A wait that exceeds the prediction by less than this is left alone: rounds differ by as much. */
#define WORTH_NS 1000000u
/*
 * The rounds after a shift, up to the first whole one, which judges the shift. And the rounds up to
 * the last one that is considered, if the first was no better.
 */
#define ROUNDS_TO_JUDGE 2u
#define ROUNDS_TO_GIVE_UP 3u

struct ps_correction {
    uint32_t launches, moves, grace;
    struct penstock_move *move;
    uint64_t *duration;     /* by launch, ns */
    uint64_t *predicted;    /* by launch: the predicted waits for the reloads that it needs, ns */
    uint64_t *late;         /* by launch: the wait beyond the prediction in the previous round, ns */
    uint32_t *reloads;      /* by launch: the number of reloads that it needs */
    uint8_t *settled;       /* by launch: its reloads are not shifted any more */
    uint32_t *planned_from; /* by move */
    uint32_t *before;       /* by move: its reload_from before the trial */
    /*
     * The launch whose reloads were shifted last, until it is known whether that helped; else
     * PENSTOCK_NEVER.
     */
    uint32_t trial;
    uint32_t rounds;       /* rounds since that shift */
    uint64_t total, hoped; /* the step's waits before the shift, and the hoped reduction, ns */
    uint64_t last_total;   /* the step's waits in the previous round, ns */
};

static size_t rounded(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

size_t ps_correction_bytes(uint32_t launches, uint32_t moves)
{
    return rounded(sizeof(struct ps_correction)) + 3 * rounded(launches * sizeof(uint64_t)) +
           rounded(launches * sizeof(uint32_t)) + 2 * rounded(moves * sizeof(uint32_t)) + rounded(launches);
}

static void *take(char **memory, size_t bytes)
{
    void *taken = *memory;

    *memory += rounded(bytes);
    return taken;
}

static void lay_out(struct ps_correction *c, char *at)
{
    take(&at, sizeof *c);
    c->duration = take(&at, c->launches * sizeof *c->duration);
    c->predicted = take(&at, c->launches * sizeof *c->predicted);
    c->late = take(&at, c->launches * sizeof *c->late);
    c->reloads = take(&at, c->launches * sizeof *c->reloads);
    c->planned_from = take(&at, c->moves * sizeof *c->planned_from);
    c->before = take(&at, c->moves * sizeof *c->before);
    c->settled = take(&at, c->launches);
}

struct ps_correction *ps_correction_init(void *memory, const struct penstock_step *step, struct penstock_move *move,
                                         uint32_t moves, uint32_t grace)
{
    struct ps_correction *c = memory;

    memset(memory, 0, ps_correction_bytes(step->launches, moves));
    c->launches = step->launches;
    c->moves = moves;
    lay_out(c, memory);
    c->grace = grace;
    c->move = move;
    c->trial = PENSTOCK_NEVER;
    for (uint32_t l = 0; l < step->launches; l++)
        c->duration[l] = step->launch[l].duration_ns;
    for (uint32_t m = 0; m < moves; m++) {
        c->planned_from[m] = c->before[m] = move[m].reload_from;
        if (move[m].needed_by == PENSTOCK_NEVER)
            continue;
        c->predicted[move[m].needed_by] += move[m].predicted_wait_ns;
        c->reloads[move[m].needed_by]++;
    }
    return c;
}

/*
 * Begins the move's reload `ns` earlier, as far as its eviction allows. Returns false if it can't
 * begin earlier.
 */
static bool begin_earlier(const struct ps_correction *c, uint32_t move, uint64_t ns)
{
    struct penstock_move *m = &c->move[move];
    uint32_t from = m->reload_from, room = (from + c->launches - m->evict_after) % c->launches;
    uint64_t gained = 0;

    while (gained < ns && room > c->grace + 2) {
        from = from ? from - 1 : c->launches - 1;
        room--;
        gained += c->duration[from];
    }
    if (from == m->reload_from)
        return false;
    m->reload_from = from;
    return true;
}

/* Judges the trial and undoes it if it didn't help. Returns true if a reload_from has changed. */
static bool judge(struct ps_correction *c, uint64_t total)
{
    uint32_t launch = c->trial;
    bool helped = total + c->hoped / 4 <= c->total;

    if (++c->rounds < ROUNDS_TO_JUDGE || (!helped && c->rounds < ROUNDS_TO_GIVE_UP))
        return false;
    c->trial = PENSTOCK_NEVER;
    if (helped)
        return false;
    c->settled[launch] = 1;
    for (uint32_t m = 0; m < c->moves; m++)
        if (c->move[m].needed_by == launch)
            c->move[m].reload_from = c->before[m];
    return true;
}

/*
 * Stores the lateness of each launch. Returns the launch that was latest in both this round and the
 * previous one, by at least `*most` ns in each.
 */
static uint32_t find_worst(struct ps_correction *c, const uint64_t *waited, uint64_t *most)
{
    uint32_t worst = PENSTOCK_NEVER;

    *most = 0;
    for (uint32_t l = 0; l < c->launches; l++) {
        uint64_t excess = waited && waited[l] > c->predicted[l] ? waited[l] - c->predicted[l] : 0;
        uint64_t both = excess < c->late[l] ? excess : c->late[l];
        c->late[l] = excess;
        if (!c->reloads[l] || c->settled[l] || both <= *most)
            continue;
        *most = both;
        worst = l;
    }
    return worst;
}

/* Begins the launch's reloads `ns` earlier. Returns false if none can begin earlier. */
static bool try_earlier(struct ps_correction *c, uint32_t launch, uint64_t ns)
{
    bool changed = false;

    for (uint32_t m = 0; m < c->moves; m++) {
        if (c->move[m].needed_by != launch)
            continue;
        c->before[m] = c->move[m].reload_from;
        changed |= begin_earlier(c, m, ns);
    }
    if (!changed)
        c->settled[launch] = 1;
    return changed;
}

bool ps_correction_round(struct ps_correction *c, const uint64_t *waited)
{
    uint64_t total = 0, most;

    for (uint32_t l = 0; waited && l < c->launches; l++)
        total += waited[l];
    if (c->trial != PENSTOCK_NEVER) {
        bool changed = judge(c, total);
        if (changed || c->trial != PENSTOCK_NEVER)
            return changed;
    }
    const uint64_t less = total < c->last_total ? total : c->last_total;
    c->last_total = total;
    uint32_t worst = find_worst(c, waited, &most);
    if (most < WORTH_NS || !try_earlier(c, worst, most))
        return false;
    c->trial = worst;
    c->rounds = 0;
    c->total = less;
    c->hoped = most;
    c->late[worst] = 0; /* the next waits are measured with the new reload_from */
    return true;
}

uint64_t ps_correction_predicted(const struct ps_correction *c, uint32_t launch)
{
    return c->predicted[launch];
}

uint32_t ps_correction_reloads(const struct ps_correction *c, uint32_t launch)
{
    return c->reloads[launch];
}

uint32_t ps_correction_shift(const struct ps_correction *c, uint32_t launch)
{
    uint32_t most = 0;

    for (uint32_t m = 0; m < c->moves; m++) {
        uint32_t shift = (c->planned_from[m] + c->launches - c->move[m].reload_from) % c->launches;
        if (c->move[m].needed_by == launch && shift > most)
            most = shift;
    }
    return most;
}
