#include "policy/recording/text.h"

#include <errno.h>
#include <string.h>

#include "policy/recording/classes.h"

#define FIRST_LINE "penstock-recording 1"
/*
 * Limits of one span, launch or bandwidth, and of their sums. Sums are added up, played for some
 * rounds, and examined for sixteen times the batch.
 */
#define BYTES_MAX (UINT64_C(1) << 50)
#define NS_MAX (UINT64_C(1) << 50)
#define MAPPING_NS_MAX UINT64_C(1000000000)
#define SUM_MAX (UINT64_C(1) << 56)
/* The most spans, launches or moments; indices have a bit or two to spare. */
#define COUNT_MAX (1u << 28)

static const char *const directions[] = {"none", "forward", "backward"};

#define DIRECTIONS (sizeof directions / sizeof *directions)

/* ---- printing ---- */

struct printer {
    ps_recording_sink sink;
    void *ctx;
};

static void put_text(const struct printer *p, const char *text)
{
    p->sink(p->ctx, text, strlen(text));
}

static void put_number(const struct printer *p, const char *before, uint64_t number)
{
    char digits[20];
    size_t at = sizeof digits;

    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    put_text(p, before);
    p->sink(p->ctx, digits + at, sizeof digits - at);
}

static void put_header(const struct printer *p, const struct penstock_step *step)
{
    const struct penstock_links *links = &step->links;

    put_text(p, FIRST_LINE "\n");
    put_number(p, "links ", links->d2h_bytes_per_s);
    put_number(p, " ", links->h2d_bytes_per_s);
    put_number(p, " ", links->d2h_bytes_per_s_both);
    put_number(p, " ", links->h2d_bytes_per_s_both);
    put_number(p, " ", links->evict_overhead_ns);
    put_number(p, " ", links->reload_overhead_ns);
    if (links->mapping_ns)
        put_number(p, " ", links->mapping_ns);
    put_text(p, "\n");
    if (step->budget_bytes != UINT64_MAX) {
        put_number(p, "budget ", step->budget_bytes);
        put_text(p, "\n");
    }
    if (step->slab_bytes != UINT64_MAX) {
        put_number(p, "slab ", step->slab_bytes);
        put_text(p, "\n");
    }
    for (uint32_t i = 0; i < step->spans; i++) {
        put_number(p, "s ", step->span[i].bytes);
        put_text(p, " ");
        put_text(p, ps_class_names[step->span[i].class_]);
        put_text(p, step->span[i].fixed ? " fixed" : "");
        put_text(p, step->span[i].guarded ? " guarded\n" : "\n");
    }
}

/* A name ends its line and may hold no control characters: they become spaces. */
static void put_layer(const struct printer *p, const struct penstock_layer *layer)
{
    if (layer->number == PENSTOCK_NEVER)
        put_text(p, "y -");
    else
        put_number(p, "y ", layer->number);
    put_text(p, " ");
    put_text(p, directions[layer->direction]);
    for (const char *c = layer->name; c && *c; c++) {
        if (c == layer->name)
            put_text(p, " ");
        p->sink(p->ctx, (unsigned char)*c < 0x20 || *c == 0x7f || *c == '#' ? " " : c, 1);
    }
    put_text(p, "\n");
}

/*
 * The events at each moment, and the spans that each launch names. Launch l names the spans
 * named[first[l] ... first[l + 1]).
 */
struct index {
    uint32_t *span; /* by moment: the span allocated or freed then; PENSTOCK_NEVER: a launch */
    uint32_t *first, *named;
};

static size_t lay_out_index(const struct penstock_step *step, struct index *index, uint32_t *memory)
{
    index->span = memory;
    index->first = index->span + step->moments;
    index->named = index->first + step->launches + 2;
    return (size_t)step->moments + step->launches + 2 + step->uses;
}

size_t ps_recording_print_bytes(const struct penstock_step *step)
{
    return ((size_t)step->moments + step->launches + 2 + step->uses) * sizeof(uint32_t);
}

static void make_index(const struct penstock_step *step, struct index *index, void *memory)
{
    uint32_t sum = 0;

    memset(memory, 0, lay_out_index(step, index, memory) * sizeof(uint32_t));
    memset(index->span, 0xff, step->moments * sizeof *index->span);
    for (uint32_t i = 0; i < step->spans; i++) {
        const struct penstock_step_span *span = &step->span[i];
        if (span->born != PENSTOCK_NEVER) {
            index->span[span->born] = i;
            index->span[span->freed] = i;
        }
        for (uint32_t u = 0; u < span->uses; u++)
            index->first[step->use[span->first_use + u] + 2]++;
    }
    for (uint32_t l = 0; l < step->launches + 2; l++) {
        sum += index->first[l];
        index->first[l] = sum;
    }
    for (uint32_t i = 0; i < step->spans; i++) {
        for (uint32_t u = 0; u < step->span[i].uses; u++)
            index->named[index->first[step->use[step->span[i].first_use + u] + 1]++] = i;
    }
}

void ps_recording_print(const struct penstock_step *step, void *workspace, ps_recording_sink sink, void *ctx)
{
    struct printer p = {sink, ctx};
    struct index index;
    uint32_t launch = 0, layer = 0;

    make_index(step, &index, workspace);
    put_header(&p, step);
    for (uint32_t m = 0; m < step->moments; m++) {
        if (index.span[m] != PENSTOCK_NEVER) {
            put_number(&p, step->span[index.span[m]].born == m ? "a " : "f ", index.span[m]);
            put_text(&p, "\n");
            continue;
        }
        if (launch == step->launches || step->launch[launch].moment != m)
            continue; /* the event of this moment is no part of the step */
        for (; layer < step->layers && step->layer[layer].first_launch == launch; layer++)
            put_layer(&p, &step->layer[layer]);
        put_number(&p, "l ", step->launch[launch].duration_ns);
        if (step->launch[launch].host_ns)
            put_number(&p, "+", step->launch[launch].host_ns);
        for (uint32_t i = index.first[launch]; i < index.first[launch + 1]; i++)
            put_number(&p, " ", index.named[i]);
        put_text(&p, "\n");
        launch++;
    }
}

/* ---- parsing ---- */

/* The text, read a line at a time. */
struct reader {
    const char *at, *end;           /* of the text */
    const char *word_at, *line_end; /* of the current line, without its comment */
    uint32_t line;
};

/* Goes to the next line that is not empty. Returns false at the end of the text. */
static bool next_line(struct reader *r)
{
    while (r->at < r->end) {
        r->word_at = r->at;
        r->line++;
        const char *comment = NULL;
        while (r->at < r->end && *r->at != '\n') {
            if (*r->at == '#' && !comment)
                comment = r->at;
            r->at++;
        }
        r->line_end = comment ? comment : r->at;
        if (r->at < r->end)
            r->at++;
        for (const char *c = r->word_at; c < r->line_end; c++) {
            if (*c != ' ' && *c != '\t' && *c != '\r')
                return true;
        }
    }
    return false;
}

struct word {
    const char *text;
    size_t length;
};

/* Returns the next word; its length is 0 at the end of the line. */
static struct word next_word(struct reader *r)
{
    while (r->word_at < r->line_end && (*r->word_at == ' ' || *r->word_at == '\t' || *r->word_at == '\r'))
        r->word_at++;
    struct word word = {r->word_at, 0};
    while (r->word_at < r->line_end && *r->word_at != ' ' && *r->word_at != '\t' && *r->word_at != '\r')
        r->word_at++;
    word.length = (size_t)(r->word_at - word.text);
    return word;
}

static bool is_word(struct word word, const char *text)
{
    return word.length == strlen(text) && memcmp(word.text, text, word.length) == 0;
}

static bool at_line_end(const struct reader *r)
{
    struct reader rest = *r;

    return next_word(&rest).length == 0;
}

/* Reads the word as a number up to `most`. Returns false if it isn't one. */
static bool number_of(struct word word, uint64_t most, uint64_t *number)
{
    *number = 0;
    if (word.length == 0 || word.length > 19)
        return false;
    for (size_t i = 0; i < word.length; i++) {
        if (word.text[i] < '0' || word.text[i] > '9')
            return false;
        *number = *number * 10 + (uint64_t)(word.text[i] - '0');
    }
    return *number <= most;
}

static bool next_number(struct reader *r, uint64_t most, uint64_t *number)
{
    return number_of(next_word(r), most, number);
}

/* Reads NS or NS+HOST_NS. */
static bool next_times(struct reader *r, uint64_t *ns, uint64_t *host_ns)
{
    struct word word = next_word(r), host = {0};
    const char *plus = memchr(word.text, '+', word.length);

    *host_ns = 0;
    if (plus) {
        host = (struct word){plus + 1, word.length - (size_t)(plus + 1 - word.text)};
        word.length = (size_t)(plus - word.text);
    }
    return number_of(word, NS_MAX, ns) && (!plus || number_of(host, NS_MAX, host_ns));
}

/* The contents of the text. The arrays are NULL while they are counted. */
struct parser {
    struct reader reader;
    const char *problem;
    uint32_t moments, launches, spans, layers, uses, name_bytes;
    struct penstock_launch *launch;
    struct penstock_step_span *span;
    struct penstock_layer *layer;
    uint32_t *use;
    uint32_t *named_by; /* by span: the last launch that named it */
    uint32_t *filled;   /* by span: the number of uses entered so far */
    char *name;
    struct penstock_links links;
    uint64_t budget, slab;
    uint64_t bytes, ns; /* the sums of all spans and of all launches */
    bool links_given, layer_waits;
};

static bool fail(struct parser *p, const char *what)
{
    p->problem = what;
    return false;
}

static bool parse_links(struct parser *p)
{
    uint64_t *const rates[] = {&p->links.d2h_bytes_per_s, &p->links.h2d_bytes_per_s, &p->links.d2h_bytes_per_s_both,
                               &p->links.h2d_bytes_per_s_both};

    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        if (!next_number(&p->reader, BYTES_MAX, rates[i]) || *rates[i] == 0)
            return fail(p, "links: expected four bandwidths in bytes per second");
    }
    if (!next_number(&p->reader, NS_MAX, &p->links.evict_overhead_ns) ||
        !next_number(&p->reader, NS_MAX, &p->links.reload_overhead_ns))
        return fail(p, "links: expected two overheads in ns after the bandwidths");
    if (!at_line_end(&p->reader) && !next_number(&p->reader, MAPPING_NS_MAX, &p->links.mapping_ns))
        return fail(p, "links: expected the time of a mapping, in ns, after the overheads");
    p->links_given = true;
    return true;
}

static bool parse_span(struct parser *p)
{
    uint64_t bytes;

    if (p->moments > 0)
        return fail(p, "s: every span must come before the first moment");
    if (p->spans == COUNT_MAX)
        return fail(p, "too many spans");
    if (!next_number(&p->reader, BYTES_MAX, &bytes) || bytes == 0)
        return fail(p, "s: expected a number of bytes");
    p->bytes += bytes;
    if (p->bytes > SUM_MAX)
        return fail(p, "s: with this span, the spans have more than 64 PiB");
    struct word word = next_word(&p->reader);
    uint32_t class = 0;
    while (class < PENSTOCK_CLASSES && !is_word(word, ps_class_names[class]))
        class ++;
    if (class == PENSTOCK_CLASSES)
        return fail(p, "s: unknown class");
    bool fixed = false, guarded = false;
    while (!at_line_end(&p->reader)) {
        word = next_word(&p->reader);
        if (!is_word(word, "fixed") && !is_word(word, "guarded"))
            return fail(p, "s: expected nothing, \"fixed\" or \"guarded\" after the class");
        fixed |= is_word(word, "fixed");
        guarded |= is_word(word, "guarded");
    }
    if (p->span) {
        p->span[p->spans] = (struct penstock_step_span){.bytes = bytes,
                                                        .born = PENSTOCK_NEVER,
                                                        .freed = PENSTOCK_NEVER,
                                                        .class_ = (enum penstock_class) class,
                                                        .fixed = fixed,
                                                        .guarded = guarded};
        p->named_by[p->spans] = PENSTOCK_NEVER;
        p->filled[p->spans] = 0;
    }
    p->spans++;
    return true;
}

static bool parse_life(struct parser *p, bool born)
{
    uint64_t span;

    if (p->spans == 0 || !next_number(&p->reader, p->spans - 1, &span))
        return fail(p, "no such span");
    if (p->span) {
        uint32_t *moment = born ? &p->span[span].born : &p->span[span].freed;
        if (*moment != PENSTOCK_NEVER)
            return fail(p, born ? "the span is allocated twice" : "the span is freed twice");
        *moment = p->moments;
    }
    return true;
}

static bool parse_launch(struct parser *p)
{
    uint64_t duration, host, span;

    if (!next_times(&p->reader, &duration, &host))
        return fail(p, "l: expected a duration in ns, optionally followed by + and the host's duration");
    p->ns += duration + host;
    if (p->ns > SUM_MAX)
        return fail(p, "l: with this launch the step takes more than two years");
    if (p->layers == 0)
        p->layers = 1;
    p->layer_waits = false;
    if (p->launch)
        p->launch[p->launches] = (struct penstock_launch){duration, p->moments, p->layers - 1, host};
    while (!at_line_end(&p->reader)) {
        if (p->spans == 0 || !next_number(&p->reader, p->spans - 1, &span))
            return fail(p, "l: no such span");
        if (p->uses == COUNT_MAX)
            return fail(p, "too many uses");
        p->uses++;
        if (!p->span)
            continue;
        if (p->named_by[span] == p->launches)
            return fail(p, "l: a span is named twice");
        p->named_by[span] = p->launches;
        /* Uses are counted now and entered once first_use is known. */
        p->span[span].uses++;
    }
    p->launches++;
    return true;
}

static bool parse_layer(struct parser *p)
{
    struct reader *r = &p->reader;
    struct reader before = *r;
    uint64_t number = PENSTOCK_NEVER;
    uint32_t direction = 0;

    if (p->layer_waits)
        return fail(p, "y: the layer before it has no launch");
    if (p->launches > 0 && p->layers == 0)
        p->layers = 1;
    if (!is_word(next_word(&before), "-") ? !next_number(r, PENSTOCK_NEVER - 1u, &number) : next_word(r).length == 0)
        return fail(p, "y: expected the layer's number, or -");
    struct word word = next_word(r);
    while (direction < DIRECTIONS && !is_word(word, directions[direction]))
        direction++;
    if (direction == DIRECTIONS)
        return fail(p, "y: expected forward, backward or none");
    word = next_word(r);
    word.length = word.length > 0 ? (size_t)(r->line_end - word.text) : 0;
    while (word.length > 0 && (word.text[word.length - 1] == ' ' || word.text[word.length - 1] == '\t' ||
                               word.text[word.length - 1] == '\r'))
        word.length--;
    if (memchr(word.text, 0, word.length))
        return fail(p, "y: the name contains a zero byte");
    if (p->layer) {
        char *name = p->name + p->name_bytes;
        memcpy(name, word.text, word.length);
        name[word.length] = '\0';
        p->layer[p->layers] = (struct penstock_layer){p->launches, (uint32_t)number, (enum penstock_direction)direction,
                                                      word.length > 0 ? name : NULL};
    }
    p->name_bytes += (uint32_t)word.length + 1;
    p->layers++;
    p->layer_waits = true;
    r->word_at = r->line_end;
    return true;
}

static bool parse_limit(struct parser *p, uint64_t *limit)
{
    return next_number(&p->reader, UINT64_MAX, limit) || fail(p, "expected a number of bytes");
}

static bool parse_line(struct parser *p)
{
    struct word word = next_word(&p->reader);
    bool right;

    if (p->moments == COUNT_MAX)
        return fail(p, "too many moments");
    if (is_word(word, "l") || is_word(word, "a") || is_word(word, "f")) {
        right = word.text[0] == 'l' ? parse_launch(p) : parse_life(p, word.text[0] == 'a');
        p->moments++;
    } else if (is_word(word, "s")) {
        right = parse_span(p);
    } else if (is_word(word, "y")) {
        right = parse_layer(p);
    } else if (is_word(word, "links")) {
        right = parse_links(p);
    } else if (is_word(word, "budget")) {
        right = parse_limit(p, &p->budget);
    } else if (is_word(word, "slab")) {
        right = parse_limit(p, &p->slab);
    } else {
        return fail(p, "unknown kind of line");
    }
    if (right && !at_line_end(&p->reader))
        return fail(p, "unexpected text at the end of the line");
    return right;
}

static bool parse_lines(struct parser *p, const char *text, size_t length)
{
    struct word first;

    p->reader = (struct reader){.at = text, .end = text + length};
    p->budget = p->slab = UINT64_MAX;
    p->moments = p->launches = p->spans = p->layers = p->uses = p->name_bytes = 0;
    p->bytes = p->ns = 0;
    p->layer_waits = p->links_given = false;
    if (length > UINT32_MAX / 2)
        return fail(p, "longer than 2 GiB");
    if (!next_line(&p->reader))
        return fail(p, "empty");
    first = (struct word){p->reader.word_at, (size_t)(p->reader.line_end - p->reader.word_at)};
    while (first.length > 0 && (first.text[first.length - 1] == ' ' || first.text[first.length - 1] == '\r'))
        first.length--;
    if (!is_word(first, FIRST_LINE))
        return fail(p, "the first line is not \"" FIRST_LINE "\"");
    while (next_line(&p->reader)) {
        if (!parse_line(p))
            return false;
    }
    p->reader.line = 0;
    if (!p->links_given)
        return fail(p, "the line of the links is missing");
    if (p->launches == 0)
        return fail(p, "no launch");
    if (p->layer_waits)
        return fail(p, "the last layer has no launch");
    return true;
}

static int verdict(const struct parser *p, bool right, struct ps_recording_problem *problem)
{
    if (right)
        return 0;
    *problem = (struct ps_recording_problem){p->reader.line, p->problem};
    return -EINVAL;
}

static size_t aligned(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

int ps_recording_bytes(const char *text, size_t length, size_t *bytes, struct ps_recording_problem *problem)
{
    struct parser p = {0};
    bool right = parse_lines(&p, text, length);

    *bytes = aligned(p.launches * sizeof *p.launch) + aligned(p.spans * sizeof *p.span) +
             aligned(p.layers * sizeof *p.layer) + aligned(p.uses * sizeof *p.use) +
             2 * aligned(p.spans * sizeof *p.named_by) + aligned(p.name_bytes);
    return verdict(&p, right, problem);
}

/* Checks that each life has both ends, and that uses lie within lives. */
static bool check_spans(struct parser *p)
{
    for (uint32_t i = 0; i < p->spans; i++) {
        const struct penstock_step_span *span = &p->span[i];
        if ((span->born == PENSTOCK_NEVER) != (span->freed == PENSTOCK_NEVER))
            return fail(p, "a span is allocated and never freed, or freed and never allocated");
        for (uint32_t u = 0; u < span->uses && span->born != PENSTOCK_NEVER; u++) {
            uint32_t moment = p->launch[p->use[span->first_use + u]].moment;
            bool after = moment > span->born, before = moment < span->freed;
            if (span->born < span->freed ? !(after && before) : !(after || before))
                return fail(p, "a launch names a span that is not allocated at that time");
        }
    }
    return true;
}

/* Goes through the launches, which are known to be right, a second time and enters the uses. */
static void enter_uses(struct parser *p, const char *text, size_t length)
{
    uint32_t first = 0, launch = 0;

    for (uint32_t i = 0; i < p->spans; i++) {
        p->span[i].first_use = first;
        first += p->span[i].uses;
    }
    p->reader = (struct reader){.at = text, .end = text + length};
    while (next_line(&p->reader)) {
        uint64_t number;
        if (!is_word(next_word(&p->reader), "l"))
            continue;
        next_number(&p->reader, NS_MAX, &number);
        while (next_number(&p->reader, p->spans, &number))
            p->use[p->span[number].first_use + p->filled[number]++] = launch;
        launch++;
    }
    p->reader.line = 0;
}

int ps_recording_parse(const char *text, size_t length, void *memory, struct penstock_step *step,
                       struct ps_recording_problem *problem)
{
    struct parser p = {0};
    char *at = memory;

    if (!parse_lines(&p, text, length))
        return verdict(&p, false, problem);
    p.launch = (struct penstock_launch *)(void *)at;
    at += aligned(p.launches * sizeof *p.launch);
    p.span = (struct penstock_step_span *)(void *)at;
    at += aligned(p.spans * sizeof *p.span);
    p.layer = (struct penstock_layer *)(void *)at;
    at += aligned(p.layers * sizeof *p.layer);
    p.use = (uint32_t *)(void *)at;
    at += aligned(p.uses * sizeof *p.use);
    p.named_by = (uint32_t *)(void *)at;
    at += aligned(p.spans * sizeof *p.named_by);
    p.filled = (uint32_t *)(void *)at;
    at += aligned(p.spans * sizeof *p.filled);
    p.name = at;
    /* Set the first layer, in case the text has no line for it. */
    if (p.layers > 0)
        p.layer[0] = (struct penstock_layer){0, PENSTOCK_NEVER, PENSTOCK_DIRECTION_NONE, NULL};
    bool right = parse_lines(&p, text, length);
    if (right) {
        enter_uses(&p, text, length);
        right = check_spans(&p);
    }
    *step = (struct penstock_step){p.moments, p.launches, p.spans, p.layers, p.uses,   p.launch,
                                   p.span,    p.use,      p.layer, p.links,  p.budget, p.slab};
    return verdict(&p, right, problem);
}
