/*
 * Layers are runs: stretches in which the launches repeat after a fixed period, two times or more.
 * Only the commonest distances between equal launches are tried as periods. Runs lie inside each
 * other: a matrix product for each of q, k and v, inside a layer, inside a micro-batch. The layers'
 * level is the outermost one whose rounds are not made of several runs themselves.
 *
 * The result is a short list of runs. Forward runs are mirrored by backward runs with as many
 * rounds, the last by the first. An encoder's and a decoder's runs, or those of a convolutional
 * network's stages, nest like brackets.
 */
#include "policy/recording/auto_layers.h"

#include <stdbool.h>
#include <string.h>

#include "policy/base/hash.h"

#define PERIODS 24 /* the number of periods that are tried */
#define RUNS_MAX 512
#define CHAIN_MAX 96 /* the largest number of runs on the layers' level */
/* launches of a gram; distances are counted between equal grams and between single launches */
#define GRAM 4
#define COVER_ONE_IN 128 /* a run covers at least this part of the step */
#define COVER_MIN 6
#define MATCHED_ONE_IN 4 /* layers make up at least this part of the step */
#define MISMATCH_COST 3  /* in matches */

struct run {
    uint32_t begin, end, period, rounds;
    uint32_t first;   /* the begins of its rounds are work.round[first ... first + rounds) */
    uint64_t kind;    /* the same for runs of the same launches */
    uint32_t partner; /* the place of its mirror image in the chain; UINT32_MAX: none */
    bool backward;
    bool taken; /* the run is on the layers' level */
};

struct work {
    const uint64_t *fingerprint;
    uint32_t launches;
    uint32_t slots; /* of the table: a power of two */
    uint32_t *table, *distances, *owner, *round;
    uint32_t rounds; /* in use */
    struct run *run;
    uint32_t runs;
    uint32_t period[PERIODS], periods;
};

static uint32_t table_slots(uint32_t launches)
{
    uint32_t slots = 16;

    while (slots < 2 * launches)
        slots *= 2;
    return slots;
}

size_t ps_auto_layers_workspace_bytes(uint32_t launches)
{
    return RUNS_MAX * sizeof(struct run) +
           ((size_t)table_slots(launches) + 3 * (size_t)launches + 2) * sizeof(uint32_t);
}

/* ---- periods ---- */

static bool same(const uint64_t *a, const uint64_t *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (a[i] != b[i])
            return false;
    }
    return true;
}

/* Counts the distances from each gram of `n` launches to the previous equal one. */
static void count_distances(struct work *work, uint32_t n)
{
    const uint64_t *fingerprint = work->fingerprint;

    memset(work->table, 0, work->slots * sizeof *work->table);
    for (uint32_t i = 0; i + n <= work->launches; i++) {
        uint64_t hash = 0;
        for (uint32_t j = 0; j < n; j++)
            hash = ps_hash_u64(hash ^ fingerprint[i + j]);
        while (work->table[hash % work->slots] != 0 &&
               !same(fingerprint + work->table[hash % work->slots] - 1, fingerprint + i, n))
            hash++;
        uint32_t *last = &work->table[hash % work->slots];
        if (*last != 0)
            work->distances[i + 1 - *last]++;
        *last = i + 1;
    }
}

static void choose_periods(struct work *work)
{
    memset(work->distances, 0, (work->launches + 1) * sizeof *work->distances);
    count_distances(work, 1);
    count_distances(work, GRAM);
    work->periods = 0;
    for (uint32_t distance = 1; distance <= work->launches / 2; distance++) {
        uint32_t at = work->periods;
        if (work->distances[distance] < 2)
            continue;
        while (at > 0 && work->distances[work->period[at - 1]] < work->distances[distance])
            at--;
        if (at == PERIODS)
            continue;
        if (work->periods < PERIODS)
            work->periods++;
        memmove(work->period + at + 1, work->period + at, (work->periods - at - 1) * sizeof *work->period);
        work->period[at] = distance;
    }
    /* Sort the periods in ascending order. */
    for (uint32_t i = 1; i < work->periods; i++) {
        for (uint32_t j = i; j > 0 && work->period[j - 1] > work->period[j]; j--) {
            uint32_t swap = work->period[j];
            work->period[j] = work->period[j - 1];
            work->period[j - 1] = swap;
        }
    }
}

/* ---- runs ---- */

static void add_run(struct work *work, uint32_t begin, uint32_t end, uint32_t period)
{
    uint32_t cover = end - begin;

    if (cover < 2 * period || cover < COVER_MIN || cover < work->launches / COVER_ONE_IN || work->runs == RUNS_MAX)
        return;
    work->run[work->runs++] =
        (struct run){.begin = begin, .end = end, .period = period, .rounds = cover / period, .partner = UINT32_MAX};
}

/*
 * Adds the stretches that repeat after `period`. A few launches may differ, because real layers are
 * not all quite alike.
 */
static void find_runs(struct work *work, uint32_t period)
{
    const uint64_t *fingerprint = work->fingerprint;
    int64_t score = 0, best = 0;
    int64_t drop = period / 2 > 4 ? period / 2 : 4;
    uint32_t begin = 0, end = 0;

    for (uint32_t i = 0; i + period < work->launches; i++) {
        bool match = fingerprint[i] == fingerprint[i + period];
        if (score == 0) {
            if (!match)
                continue;
            begin = i;
        }
        score += match ? 1 : -MISMATCH_COST;
        if (score > best) {
            best = score;
            end = i + 1;
        }
        if (score <= 0 || score < best - drop) {
            add_run(work, begin, end + period, period);
            /*
             * The launches behind the best end are examined once more: the next stretch may begin
             * there.
             */
            i = end > i ? i : (score > 0 ? end : i);
            score = best = 0;
        }
    }
    if (score > 0)
        add_run(work, begin, end + period, period);
}

/*
 * Takes runs onto the layers' level, by ascending period. A longer run absorbs the runs inside it,
 * unless they are nearly all of it. It also leaves them if each of its rounds holds two runs or
 * more: then its rounds are micro-batches, not layers.
 */
static void take_runs(struct work *work)
{
    memset(work->owner, 0, work->launches * sizeof *work->owner);
    for (uint32_t r = 0; r < work->runs; r++) {
        struct run *run = &work->run[r];
        uint32_t owned = 0, inner = 0, last = 0;
        for (uint32_t i = run->begin; i < run->end; i++) {
            uint32_t owner = work->owner[i];
            owned += owner != 0;
            if (owner != 0 && owner != last) {
                inner++;
                last = owner;
            }
        }
        uint64_t cover = run->end - run->begin;
        if (owned * UINT64_C(10) >= cover * 9 || (owned * UINT64_C(10) >= cover * 6 && inner + 1 >= 2 * run->rounds))
            continue;
        for (uint32_t i = run->begin; i < run->end; i++)
            work->owner[i] = r + 1;
        run->taken = true;
    }
}

/* Makes the run cover the launches [begin, end). Its rounds must come last in work->round. */
static void set_run(struct work *work, struct run *run, uint32_t begin, uint32_t end)
{
    run->begin = begin;
    run->end = end;
    run->rounds = (end - begin) / run->period;
    run->first = work->rounds;
    for (uint32_t i = 0; i < run->rounds; i++)
        work->round[work->rounds++] = begin + i * run->period;
    /* The kind comes from the second round, because the first layer is more often odd. */
    run->kind = 0;
    for (uint32_t i = 0; i < run->period; i++)
        run->kind += ps_hash_u64(work->fingerprint[begin + run->period + i]);
}

/*
 * Finds the place in a run's first two rounds where a round is cut like those of `like`. Returns
 * the run's end if it has no such place, or one that isn't found easily.
 */
static uint32_t find_cut(const struct work *work, const struct run *like, const struct run *run)
{
    const uint64_t *wanted = work->fingerprint + work->round[like->first + 1];
    uint32_t effort = 32 * run->period;

    for (uint32_t at = run->begin; at < run->begin + run->period && at + run->period <= run->end; at++) {
        uint32_t equal = 0;
        while (equal < run->period && wanted[equal] == work->fingerprint[at + equal])
            equal++;
        if (equal == run->period)
            return at;
        if (equal + 1 > effort)
            break;
        effort -= equal + 1;
    }
    return run->end;
}

/*
 * Joins two runs. A layer with one launch more than the others breaks a run in two. The second run
 * is then cut somewhere inside that layer. In the joined run, the odd layer is a round of its own
 * length.
 */
static bool join(struct work *work, struct run *run, const struct run *next)
{
    if (run->period != next->period || run->kind != next->kind)
        return false;
    uint32_t cut = find_cut(work, run, next);
    uint32_t behind = work->round[run->first + run->rounds - 1] + run->period;
    if (cut == next->end || cut < behind || cut - behind >= 2 * run->period)
        return false;
    work->rounds = run->first + run->rounds;
    if (cut - behind >= run->period / 2 && cut > behind)
        work->round[work->rounds++] = behind;
    for (uint32_t at = cut; at + run->period <= next->end; at += run->period)
        work->round[work->rounds++] = at;
    run->rounds = work->rounds - run->first;
    run->end = next->end;
    return true;
}

/*
 * Fills `chain` with the runs of the layers' level in order, without the parts that other runs
 * absorbed. Returns their number.
 */
static uint32_t make_chain(struct work *work, struct run *chain)
{
    uint32_t runs = 0;

    work->rounds = 0;
    for (uint32_t i = 0; i < work->launches && runs < CHAIN_MAX;) {
        uint32_t owner = work->owner[i], end = i;
        while (end < work->launches && work->owner[end] == owner)
            end++;
        if (owner != 0 && end - i >= 2 * work->run[owner - 1].period) {
            chain[runs] = work->run[owner - 1];
            set_run(work, &chain[runs], i, end);
            if (runs == 0 || !join(work, &chain[runs - 1], &chain[runs]))
                runs++;
        }
        i = end;
    }
    return runs;
}

/* ---- mirrors ---- */

static uint32_t cover(const struct run *run)
{
    return run->end - run->begin;
}

static bool can_mirror(const struct run *forward, const struct run *backward)
{
    uint32_t a = forward->rounds, b = backward->rounds;

    return a == b || a == b + 1 || b == a + 1;
}

/*
 * Pairs chain[first ...] around the gap before `split`, from the inside out. Each run is paired
 * with the nearest one that has its number of rounds. Returns the number of paired launches, less
 * those of runs left out in between. Returns 0 if chain[first] is not paired. *end is the place
 * behind the last paired run.
 */
static int64_t mirror(struct run *chain, uint32_t first, uint32_t runs, uint32_t split, bool write, uint32_t *end)
{
    int64_t paired = 0, skipped = 0, left_out = 0;
    uint32_t next = split;
    bool has_first = false;

    for (uint32_t f = split; f-- > first;) {
        uint32_t b = next;
        int64_t passed = 0;
        while (b < runs && !can_mirror(&chain[f], &chain[b]))
            passed += cover(&chain[b++]);
        if (b == runs) {
            skipped += cover(&chain[f]);
            continue;
        }
        paired += cover(&chain[f]) < cover(&chain[b]) ? cover(&chain[f]) : cover(&chain[b]);
        left_out = skipped += passed;
        next = b + 1;
        *end = next;
        has_first = f == first;
        if (write) {
            chain[f].partner = b;
            chain[b].partner = f;
            chain[b].backward = true;
        }
    }
    return has_first ? paired - left_out : 0;
}

/*
 * Finds the forward and backward runs, several times if gradients are accumulated. Returns the
 * number of launches that they cover.
 */
static uint32_t pair_runs(struct run *chain, uint32_t runs)
{
    uint32_t covered = 0, model = UINT32_MAX;

    for (uint32_t first = 0; first + 1 < runs;) {
        int64_t best = 0;
        uint32_t best_split = 0, end = 0;
        uint32_t limit = first + 1;
        bool fits = model == UINT32_MAX ||
                    (chain[first].period == chain[model].period && chain[first].rounds == chain[model].rounds);
        /* The next micro-batch begins where the same layers come again. */
        while (limit < runs && chain[limit].kind != chain[first].kind)
            limit++;
        for (uint32_t split = first + 1; fits && split < limit; split++) {
            int64_t paired = mirror(chain, first, limit, split, false, &end);
            if (paired > best) {
                best = paired;
                best_split = split;
            }
        }
        if (best == 0) {
            first++;
            continue;
        }
        mirror(chain, first, limit, best_split, true, &end);
        if (model == UINT32_MAX)
            model = first;
        first = end;
    }
    for (uint32_t i = 0; i < runs; i++)
        covered += chain[i].partner != UINT32_MAX ? cover(&chain[i]) : 0;
    return covered;
}

/*
 * Takes a run that has no mirror and makes up most of the step as a forward pass alone. Returns the
 * number of launches covered.
 */
static uint32_t find_forward(struct run *chain, uint32_t runs, uint32_t launches)
{
    uint32_t covered = 0;

    for (uint32_t i = 0; i < runs; i++) {
        if (cover(&chain[i]) >= launches / 2) {
            chain[i].partner = i;
            covered += cover(&chain[i]);
        }
    }
    return covered;
}

/* ---- writing ---- */

struct writer {
    struct penstock_layer *layer;
    uint32_t layers, capacity;
    const uint32_t *round;
};

static void write(struct writer *writer, uint32_t first_launch, uint32_t number, enum penstock_direction direction)
{
    if (writer->layers == writer->capacity)
        return;
    /* A stretch without a launch is dropped. */
    if (writer->layers > 0 && writer->layer[writer->layers - 1].first_launch == first_launch)
        writer->layers--;
    writer->layer[writer->layers++] =
        (struct penstock_layer){.first_launch = first_launch, .number = number, .direction = direction};
}

/*
 * Writes a forward run. It may lack its odd first layer, which its mirror image has. That layer is
 * the stretch ahead of the run, if it is about as long as a layer. `behind` is the end of the
 * previous run.
 */
static void write_forward(struct writer *writer, const struct run *run, uint32_t rounds, uint32_t number,
                          uint32_t behind)
{
    uint32_t ahead = run->begin - behind;

    if (rounds > run->rounds) {
        if (2 * ahead >= run->period && ahead <= 2 * run->period)
            write(writer, behind, number, PENSTOCK_DIRECTION_FORWARD);
        number++;
    }
    for (uint32_t j = 0; j < run->rounds; j++)
        write(writer, writer->round[run->first + j], number + j, PENSTOCK_DIRECTION_FORWARD);
}

static uint32_t write_layers(const struct run *chain, uint32_t runs, const uint32_t *round, uint32_t launches,
                             struct penstock_layer *layer, uint32_t capacity)
{
    struct writer writer = {.layer = layer, .capacity = capacity, .round = round};
    uint32_t base[CHAIN_MAX], number = 0, behind = 0;
    bool last_backward = true;

    write(&writer, 0, PENSTOCK_NEVER, PENSTOCK_DIRECTION_NONE);
    for (uint32_t i = 0; i < runs; i++) {
        const struct run *run = &chain[i];
        if (run->partner == UINT32_MAX)
            continue;
        const struct run *mirrored = &chain[run->partner];
        uint32_t rounds = run->rounds > mirrored->rounds ? run->rounds : mirrored->rounds;
        /* A micro-batch has the layers of the one before. */
        if (!run->backward && last_backward)
            number = 0;
        last_backward = run->backward;
        if (!run->backward) {
            base[i] = number;
            number += rounds;
            write_forward(&writer, run, rounds, base[i], behind);
        }
        for (uint32_t j = 0; run->backward && j < run->rounds; j++)
            write(&writer, writer.round[run->first + j], base[run->partner] + rounds - 1 - j,
                  PENSTOCK_DIRECTION_BACKWARD);
        behind = round[run->first + run->rounds - 1] + run->period;
        if (behind < launches)
            write(&writer, behind, PENSTOCK_NEVER, PENSTOCK_DIRECTION_NONE);
    }
    return writer.layers;
}

uint32_t ps_auto_layers_find(const uint64_t *fingerprint, uint32_t launches, void *workspace,
                             struct penstock_layer *layer, uint32_t capacity)
{
    struct work work = {
        .fingerprint = fingerprint, .launches = launches, .slots = table_slots(launches), .run = workspace};
    struct run chain[CHAIN_MAX];

    work.table = (uint32_t *)(void *)(work.run + RUNS_MAX);
    work.distances = work.table + work.slots;
    work.owner = work.distances + launches + 1;
    work.round = work.owner + launches;
    choose_periods(&work);
    for (uint32_t i = 0; i < work.periods; i++)
        find_runs(&work, work.period[i]);
    take_runs(&work);
    uint32_t runs = make_chain(&work, chain);
    uint32_t covered = pair_runs(chain, runs);
    if (covered == 0)
        covered = find_forward(chain, runs, launches);
    if (covered < launches / MATCHED_ONE_IN)
        runs = 0;
    return write_layers(chain, runs, work.round, launches, layer, capacity);
}
