#include "policy/recording/recorded_step.h"

/*
 * Makes a step from the recorder's events. It takes a few passes over the window's events, with one
 * hash table from the caller's numbers to its spans.
 *
 * The window may begin anywhere in the program's own step. Therefore many spans are born in it and
 * freed in the next round. Spans that are freed in the window were born in the round before. Two
 * such halves are one span of the ring. They are paired by the place of birth: the number of
 * launches into the round, and of allocations there. Where that fails, they are paired by size.
 */
#include "policy/planner/gaps.h"
#include "policy/recording/auto_layers.h"
#include "policy/recording/classes.h"
#include "policy/recording/recorded_times.h"
#include "policy/recording/recorder_ring.h"

#include <errno.h>
#include <string.h>

#define NONE UINT32_MAX

/* One of the caller's spans while the step is made. */
struct draft {
    uint64_t span, bytes;
    uint64_t birth;
    uint32_t ordinal;
    uint32_t born, freed; /* moments; NONE: not in the window */
    uint32_t uses;
    uint32_t last_launch; /* the last launch that named it */
    uint32_t partner;     /* the other half, if this is one */
    uint32_t next;        /* the next draft in a chain */
    uint32_t first_use;   /* the place where its next use is written */
    uint32_t out;         /* its span in the step; NONE: it has none */
    bool later;           /* allocated after the window */
    bool fixed;
};

/* The contents of a window, and the offsets of the arrays in the caller's memory. */
struct window {
    uint64_t first;
    uint32_t length;
    uint64_t begin, end;                                       /* events */
    uint32_t moments, accesses, drafts_max, layers_max, slots; /* `slots` of each hash table: a power of two */
    size_t launch, span, use, ordinal, layer, numbers, draft, table, chain, turned, held, fingerprints, workspace,
        phases, timed, kinds, bytes;
};

struct maker {
    const struct ps_recorder *recorder;
    struct window window;
    struct draft *draft;
    uint32_t drafts;
    uint32_t *table; /* from a span's number to its draft + 1 */
    uint32_t *chain; /* from a hash to the first draft + 1 */
};

static const struct ps_recorded_event *event_at(const struct ps_recorder *recorder, uint64_t event)
{
    return &recorder->event[event % PS_RECORDER_MOMENTS];
}

/* Returns the first event behind a launch and its accesses. */
static uint64_t behind(const struct ps_recorder *recorder, uint64_t launch)
{
    uint64_t event = ps_kept_launch(recorder, launch)->event + 1;

    while (event < recorder->events && event_at(recorder, event)->kind == PS_RECORDED_ACCESSED)
        event++;
    return event;
}

static size_t place(size_t *bytes, size_t count, size_t each)
{
    size_t at = *bytes;

    *bytes = at + (count * each + 15) / 16 * 16;
    return at;
}

bool ps_recorded_step_is_kept(const struct ps_recorder *recorder, uint64_t first, uint32_t length)
{
    if (length == 0 || length > recorder->launches || first > recorder->launches - length ||
        recorder->launches - first > PS_RECORDER_LAUNCHES - 1)
        return false;
    return recorder->events - ps_kept_launch(recorder, first == 0 ? 0 : first - 1)->event <= PS_RECORDER_MOMENTS;
}

/*
 * Finds the window's events and the memory that they need. Events ahead of its first launch, back
 * to the launch before, belong to the window.
 */
static int open_window(const struct ps_recorder *recorder, uint64_t first, uint32_t length, struct window *window)
{
    uint64_t spans = recorder->live_spans;

    memset(window, 0, sizeof *window);
    if (!ps_recorded_step_is_kept(recorder, first, length))
        return -ENODATA;
    window->first = first;
    window->length = length;
    window->begin = first == 0 ? ps_kept_launch(recorder, 0)->event : behind(recorder, first - 1);
    window->end = behind(recorder, first + length - 1);
    for (uint64_t i = window->begin; i < recorder->events; i++) {
        const struct ps_recorded_event *event = event_at(recorder, i);
        spans += event->kind == PS_RECORDED_ALLOCATED || event->kind == PS_RECORDED_FREED ||
                 (event->kind == PS_RECORDED_ACCESSED && recorder->unknown != 0);
        if (i >= window->end)
            continue;
        window->moments += event->kind != PS_RECORDED_ACCESSED;
        window->accesses += event->kind == PS_RECORDED_ACCESSED;
    }
    window->drafts_max = (uint32_t)spans;
    window->layers_max = length + 1;
    window->slots = 16;
    while (window->slots < 2 * window->drafts_max)
        window->slots *= 2;
    window->launch = place(&window->bytes, length, sizeof(struct penstock_launch));
    window->span = place(&window->bytes, window->drafts_max, sizeof(struct penstock_step_span));
    window->use = place(&window->bytes, window->accesses, sizeof(uint32_t));
    window->ordinal = place(&window->bytes, window->accesses, sizeof(uint16_t));
    window->layer = place(&window->bytes, window->layers_max, sizeof(struct penstock_layer));
    window->numbers = place(&window->bytes, window->drafts_max, sizeof(uint64_t));
    window->draft = place(&window->bytes, window->drafts_max, sizeof(struct draft));
    window->table = place(&window->bytes, window->slots, sizeof(uint32_t));
    window->chain = place(&window->bytes, window->slots, sizeof(uint32_t));
    window->turned = place(&window->bytes, window->layers_max, sizeof(struct penstock_layer));
    window->held = place(&window->bytes, window->moments, sizeof(uint64_t));
    window->fingerprints = place(&window->bytes, length, sizeof(uint64_t));
    window->phases = place(&window->bytes, window->layers_max, sizeof(uint8_t));
    window->workspace = place(&window->bytes, ps_auto_layers_workspace_bytes(length), 1);
    window->timed = place(&window->bytes, length, sizeof(bool));
    window->kinds = place(&window->bytes, 1, ps_recorded_times_bytes(length));
    return 0;
}

int ps_recorded_step_bytes(const struct ps_recorder *recorder, uint64_t first, uint32_t length, size_t *bytes)
{
    struct window window;
    int rc = open_window(recorder, first, length, &window);

    *bytes = window.bytes;
    return rc;
}

/* Returns the span's draft, a new one at its first mention. */
static struct draft *draft_of(struct maker *maker, uint64_t span, uint64_t bytes)
{
    uint32_t mask = maker->window.slots - 1;
    uint64_t i = ps_hash_u64(span);

    for (; maker->table[i & mask] != 0; i++) {
        struct draft *draft = &maker->draft[maker->table[i & mask] - 1];
        if (draft->span == span)
            return draft;
    }
    struct draft *draft = &maker->draft[maker->drafts++];
    *draft = (struct draft){.span = span,
                            .bytes = bytes,
                            .birth = UINT64_MAX,
                            .born = NONE,
                            .freed = NONE,
                            .last_launch = NONE,
                            .partner = NONE,
                            .next = NONE,
                            .out = NONE};
    maker->table[i & mask] = maker->drafts;
    return draft;
}

/* Returns whether this access is the launch's first of the span, within the span's life. */
static bool is_use(struct draft *draft, uint32_t launch)
{
    if (draft->freed != NONE || draft->last_launch == launch)
        return false;
    draft->last_launch = launch;
    return true;
}

static void read_window(struct maker *maker, struct penstock_launch *launch)
{
    const struct window *window = &maker->window;
    uint32_t moment = 0, current = 0;

    for (uint64_t i = window->begin; i < window->end; i++) {
        const struct ps_recorded_event *event = event_at(maker->recorder, i);
        struct draft *draft = event->kind == PS_RECORDED_LAUNCHED ? NULL : draft_of(maker, event->span, event->bytes);
        switch ((enum ps_recorded_kind)event->kind) {
        case PS_RECORDED_LAUNCHED:
            current = (uint32_t)(event->span - window->first);
            launch[current].moment = moment++;
            break;
        case PS_RECORDED_ALLOCATED:
            draft->born = moment++;
            draft->birth = event->birth;
            draft->ordinal = event->ordinal;
            break;
        case PS_RECORDED_FREED:
            draft->freed = moment++;
            draft->birth = event->birth;
            draft->ordinal = event->ordinal;
            break;
        case PS_RECORDED_ACCESSED:
            if (is_use(draft, current)) {
                draft->uses++;
                draft->fixed = event->fixed;
            }
            break;
        }
    }
}

/*
 * Adds drafts for spans that existed during the window and that it doesn't name. They are freed
 * later, or alive now.
 */
static void read_idle(struct maker *maker)
{
    const struct ps_recorder *recorder = maker->recorder;

    for (uint64_t i = maker->window.end; i < recorder->events; i++) {
        const struct ps_recorded_event *event = event_at(recorder, i);
        if (event->kind == PS_RECORDED_ALLOCATED)
            draft_of(maker, event->span, event->bytes)->later = true;
        else if (event->kind == PS_RECORDED_FREED)
            draft_of(maker, event->span, event->bytes)->fixed |= event->fixed;
    }
    for (uint32_t i = 0; i < PS_RECORDER_LIVE_SLOTS; i++) {
        const struct ps_recorded_live *live = &recorder->live[i];
        if (live->span == 0)
            continue;
        uint32_t before = maker->drafts;
        struct draft *draft = draft_of(maker, live->span, live->bytes);
        if (maker->drafts > before)
            draft->fixed = live->fixed;
    }
}

static bool is_open(const struct draft *draft)
{
    return draft->born != NONE && draft->freed == NONE && draft->partner == NONE;
}

/*
 * Returns whether a span freed in the window can be the previous round's counterpart of one born in
 * it.
 */
static bool is_pair(const struct draft *closing, const struct draft *open)
{
    return closing->bytes == open->bytes && closing->freed < open->born;
}

static void pair(struct maker *maker, uint32_t closing, uint32_t open)
{
    maker->draft[closing].partner = open;
    maker->draft[open].partner = closing;
}

static uint64_t birth_hash(uint64_t place, uint32_t ordinal)
{
    return ps_hash_u64(place * UINT64_C(0x9e3779b97f4a7c15) + ordinal);
}

/* Puts every open span into its chain; the chains end up in order of birth. */
static void chain_open(struct maker *maker, bool by_bytes)
{
    uint32_t mask = maker->window.slots - 1;

    memset(maker->chain, 0, (size_t)maker->window.slots * sizeof *maker->chain);
    /*
     * Drafts of spans born in the window are in order of birth, because nothing names a span before
     * its birth.
     */
    for (uint32_t i = maker->drafts; i-- > 0;) {
        struct draft *draft = &maker->draft[i];
        if (!is_open(draft) || draft->later)
            continue;
        uint64_t hash =
            by_bytes ? ps_hash_u64(draft->bytes) : birth_hash(draft->birth - maker->window.first, draft->ordinal);
        draft->next = maker->chain[hash & mask];
        maker->chain[hash & mask] = i + 1;
    }
}

/* Pairs a half by its place of birth, one round earlier. */
static void pair_by_birth(struct maker *maker, uint32_t closing)
{
    const struct draft *draft = &maker->draft[closing];
    uint64_t place = draft->birth + maker->window.length - maker->window.first;

    if (draft->birth == UINT64_MAX || place >= maker->window.length)
        return;
    for (uint32_t i = maker->chain[birth_hash(place, draft->ordinal) & (maker->window.slots - 1)]; i != 0;
         i = maker->draft[i - 1].next) {
        const struct draft *open = &maker->draft[i - 1];
        if (open->birth - maker->window.first == place && open->ordinal == draft->ordinal && is_pair(draft, open)) {
            pair(maker, closing, i - 1);
            return;
        }
    }
}

/*
 * Pairs a half by size, with the next span born after its free. Frees come in order: a birth that
 * is too early for one free is too early for all later ones.
 */
static void pair_by_bytes(struct maker *maker, uint32_t closing)
{
    const struct draft *draft = &maker->draft[closing];
    uint32_t *link = &maker->chain[ps_hash_u64(draft->bytes) & (maker->window.slots - 1)];

    while (*link != 0) {
        struct draft *open = &maker->draft[*link - 1];
        if (open->bytes != draft->bytes) {
            link = &open->next;
            continue;
        }
        uint32_t taken = *link - 1;
        *link = open->next;
        if (is_pair(draft, open)) {
            pair(maker, closing, taken);
            return;
        }
    }
}

static void pair_halves(struct maker *maker)
{
    for (int by_bytes = 0; by_bytes <= 1; by_bytes++) {
        chain_open(maker, by_bytes);
        for (uint64_t i = maker->window.begin; i < maker->window.end; i++) {
            const struct ps_recorded_event *event = event_at(maker->recorder, i);
            if (event->kind != PS_RECORDED_FREED)
                continue;
            struct draft *draft = draft_of(maker, event->span, event->bytes);
            if (draft->born != NONE || draft->partner != NONE)
                continue;
            uint32_t closing = (uint32_t)(draft - maker->draft);
            if (by_bytes)
                pair_by_bytes(maker, closing);
            else
                pair_by_birth(maker, closing);
        }
    }
}

/*
 * Makes spans from drafts. A half without its other half is no steady part of the step. If it was
 * freed, it is left out. If it was born and stays, it counts as existing all the time, and never
 * moves.
 */
static uint32_t write_spans(struct maker *maker, struct penstock_step_span *span, uint64_t *numbers)
{
    uint32_t spans = 0, use = 0;

    for (uint32_t i = 0; i < maker->drafts; i++) {
        struct draft *draft = &maker->draft[i];
        bool closing = draft->born == NONE && draft->freed != NONE;
        if (draft->later || draft->bytes == 0 || closing)
            continue;
        struct draft *other = draft->partner == NONE ? NULL : &maker->draft[draft->partner];
        bool lone = draft->born != NONE && draft->freed == NONE && !other;
        span[spans] = (struct penstock_step_span){
            .bytes = draft->bytes,
            .born = lone ? PENSTOCK_NEVER : draft->born,
            .freed = other ? other->freed : draft->freed,
            .first_use = use,
            .uses = draft->uses + (other ? other->uses : 0),
            .fixed = draft->fixed || lone || (other && other->fixed),
        };
        numbers[spans] = draft->span;
        draft->out = spans;
        draft->first_use = use;
        if (other) {
            other->out = spans;
            other->first_use = use;
            draft->first_use += other->uses;
        }
        use += span[spans++].uses;
    }
    return spans;
}

static uint32_t write_uses(struct maker *maker, uint32_t *use, uint16_t *ordinal)
{
    uint32_t current = 0, uses = 0, accesses = 0;

    for (uint32_t i = 0; i < maker->drafts; i++)
        maker->draft[i].last_launch = NONE;
    for (uint64_t i = maker->window.begin; i < maker->window.end; i++) {
        const struct ps_recorded_event *event = event_at(maker->recorder, i);
        if (event->kind == PS_RECORDED_LAUNCHED) {
            current = (uint32_t)(event->span - maker->window.first);
            accesses = 0;
        }
        if (event->kind != PS_RECORDED_ACCESSED)
            continue;
        uint32_t index = accesses++;
        struct draft *draft = draft_of(maker, event->span, event->bytes);
        if (draft->out == NONE || draft->last_launch == current || draft->uses == 0)
            continue;
        draft->last_launch = current;
        draft->uses--;
        ordinal[draft->first_use] = (uint16_t)(index < UINT16_MAX ? index : UINT16_MAX);
        use[draft->first_use++] = current;
        uses++;
    }
    return uses;
}

static uint32_t write_marked_layers(const struct maker *maker, struct penstock_layer *layer)
{
    uint32_t layers = 0;
    uint64_t stretch = 0;

    for (uint32_t i = 0; i < maker->window.length; i++) {
        const struct ps_recorded_layer *marked = &ps_kept_launch(maker->recorder, maker->window.first + i)->layer;
        if (i != 0 && marked->stretch == stretch)
            continue;
        stretch = marked->stretch;
        layer[layers++] = (struct penstock_layer){
            .first_launch = i,
            .number = stretch != 0 ? marked->number : PENSTOCK_NEVER,
            .direction = stretch != 0 ? marked->direction : PENSTOCK_DIRECTION_NONE,
            .name = stretch != 0 ? marked->name : NULL,
        };
    }
    return layers;
}

static const struct ps_recorded_layer *mark_of(const struct maker *maker, const struct penstock_layer *layer)
{
    return &ps_kept_launch(maker->recorder, maker->window.first + layer->first_launch)->layer;
}

/*
 * Renumbers counted layers so that 0 is nearest to the start of forward. Numbers that already began
 * again within the step stay. A layer that the window cuts in two is one layer. The part at the
 * window's end comes first, then the part at its begin.
 */
static void count_anew(const struct maker *maker, uint32_t start, struct penstock_layer *layer, uint32_t layers)
{
    const uint64_t first = maker->window.first;
    const bool is_cut =
        first > 0 && ps_kept_launch(maker->recorder, first - 1)->layer.stretch == mark_of(maker, &layer[0])->stretch;
    const uint32_t length = maker->window.length;
    uint32_t counted = 0, highest = 0, leads = 0, nearest = NONE, number = 0;

    for (uint32_t i = layers; i-- > 0;) {
        if (!mark_of(maker, &layer[i])->counted)
            continue;
        highest = layer[i].number > highest ? layer[i].number : highest;
        if (i == 0 && is_cut)
            continue;
        counted++;
        uint32_t behind = (layer[i].first_launch + length - start) % length,
                 off = behind < length - behind ? behind : length - behind;
        if (off <= nearest) {
            nearest = off;
            leads = i;
        }
    }
    if (highest < counted)
        return;
    for (uint32_t i = 0; i < layers; i++) {
        uint32_t at = (leads + i) % layers;
        if (mark_of(maker, &layer[at])->counted)
            layer[at].number = at == 0 && is_cut && number > 0 ? number - 1 : number++;
    }
}

/*
 * Returns the launch where forward begins. The program's own step ends when no activation is left.
 * So forward begins behind the longest stretch in which the step's spans hold the least. `held` has
 * room for a number for each moment.
 */
static uint32_t find_start(const struct penstock_step *step, uint64_t *held)
{
    uint64_t now = 0, least = UINT64_MAX;
    uint32_t stretch = 0, longest = 0, end = 0;

    /* First `held` has the changes, as numbers that wrap round; then it has the sums. */
    memset(held, 0, step->moments * sizeof *held);
    for (uint32_t i = 0; i < step->spans; i++) {
        const struct penstock_step_span *span = &step->span[i];
        if (span->born == PENSTOCK_NEVER)
            continue;
        held[span->born] += span->bytes;
        held[span->freed] -= span->bytes;
        now += span->freed < span->born ? span->bytes : 0;
    }
    for (uint32_t i = 0; i < step->moments; i++) {
        now += held[i];
        held[i] = now;
        least = now < least ? now : least;
    }
    for (uint32_t i = 0; i < 2 * step->moments; i++) {
        stretch = held[i % step->moments] == least ? stretch + 1 : 0;
        if (stretch > longest && stretch <= step->moments) {
            longest = stretch;
            end = i % step->moments;
        }
    }
    return ps_launch_from(step, end + 1) % step->launches;
}

/*
 * Finds layers from the launches alone. The launches are turned so that forward begins first, and
 * the layers are turned back.
 */
static uint32_t write_found_layers(const struct maker *maker, uint32_t start, char *base, struct penstock_layer *layer)
{
    const struct window *window = &maker->window;
    struct penstock_layer *turned = (void *)(base + window->turned);
    uint64_t *fingerprints = (void *)(base + window->fingerprints);
    uint32_t launches = window->length, layers = 0, first = 0;

    for (uint32_t i = 0; i < launches; i++)
        fingerprints[i] = ps_kept_launch(maker->recorder, window->first + (start + i) % launches)->fingerprint;
    uint32_t found = ps_auto_layers_find(fingerprints, launches, base + window->workspace, turned, launches);
    /* The first layer that begins behind the window's end, or at it, comes first. */
    while (first < found && turned[first].first_launch + start < launches)
        first++;
    if (start != 0 && (first == found || turned[first].first_launch + start > launches)) {
        layer[layers] = turned[first - 1];
        layer[layers++].first_launch = 0;
    }
    for (uint32_t i = 0; i < found; i++) {
        layer[layers] = turned[(first + i) % found];
        layer[layers].first_launch = (layer[layers].first_launch + start) % launches;
        layers++;
    }
    return layers;
}

static bool has_markers(const struct maker *maker)
{
    for (uint32_t i = 0; i < maker->window.length; i++) {
        if (ps_kept_launch(maker->recorder, maker->window.first + i)->layer.stretch != 0)
            return true;
    }
    return false;
}

static void write_layer_indices(struct penstock_launch *launch, uint32_t launches, const struct penstock_layer *layer,
                                uint32_t layers)
{
    for (uint32_t i = 0, at = 0; i < launches; i++) {
        while (at + 1 < layers && layer[at + 1].first_launch <= i)
            at++;
        launch[i].layer = at;
    }
}

int ps_recorded_step_make(const struct ps_recorder *recorder, uint64_t first, uint32_t length, void *memory,
                          struct penstock_step *out, struct ps_recorded_details *details)
{
    struct maker maker = {.recorder = recorder};
    int rc = open_window(recorder, first, length, &maker.window);
    if (rc != 0)
        return rc;
    const struct window *window = &maker.window;
    char *base = memory;
    struct penstock_launch *launch = (void *)(base + window->launch);
    struct penstock_step_span *span = (void *)(base + window->span);
    struct penstock_layer *layer = (void *)(base + window->layer);
    uint64_t *numbers = (void *)(base + window->numbers);
    uint32_t *use = (void *)(base + window->use);
    uint16_t *ordinal = (void *)(base + window->ordinal);
    bool *timed = (void *)(base + window->timed);

    maker.draft = (void *)(base + window->draft);
    maker.table = (void *)(base + window->table);
    maker.chain = (void *)(base + window->chain);
    memset(maker.table, 0, (size_t)window->slots * sizeof *maker.table);
    read_window(&maker, launch);
    read_idle(&maker);
    pair_halves(&maker);
    *out = (struct penstock_step){
        .moments = window->moments, .launches = length, .launch = launch, .span = span, .use = use, .layer = layer};
    out->spans = write_spans(&maker, span, numbers);
    out->uses = write_uses(&maker, use, ordinal);
    ps_recorded_times(recorder, first, length, base + window->kinds, launch, timed);
    uint32_t start = find_start(out, (void *)(base + window->held));
    out->layers =
        has_markers(&maker) ? write_marked_layers(&maker, layer) : write_found_layers(&maker, start, base, layer);
    count_anew(&maker, start, layer, out->layers);
    write_layer_indices(launch, length, layer, out->layers);
    ps_classes_assign(out, span, start, (void *)(base + window->phases));
    *details = (struct ps_recorded_details){.number = numbers, .ordinal = ordinal, .timed = timed};
    return 0;
}
