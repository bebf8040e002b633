/*
 * The text of a recorded step: a printed step is read back unchanged, and wrong text is refused
 * with its line.
 */
#include "policy/recording/text.h"

#include <stdlib.h>

#include "expect.h"

#define LINKS "links 100 200 90 180 5 6 7\n"

static const char small[] = "penstock-recording 1\n" LINKS "budget 1000\n"
                            "s 400 parameter fixed # the weights\n"
                            "s 300 activation\n"
                            "\n"
                            "y 3 forward block three\n"
                            "a 1\n"
                            "l 10 0 1\n"
                            "y - none\n"
                            "l 0\n"
                            "l 20+8 1\n"
                            "f 1\n";

struct text {
    char bytes[4096];
    size_t length;
};

static void gather(void *ctx, const char *piece, size_t bytes)
{
    struct text *text = ctx;

    if (text->length + bytes < sizeof text->bytes) {
        memcpy(text->bytes + text->length, piece, bytes);
        text->length += bytes;
        text->bytes[text->length] = '\0';
    }
}

/*
 * Returns the memory of the parsed step, which the caller frees. Returns NULL, and the problem, if
 * the text is refused.
 */
static void *parse(const char *text, struct penstock_step *step, struct ps_recording_problem *problem)
{
    size_t bytes = 0;
    int rc = ps_recording_bytes(text, strlen(text), &bytes, problem);

    if (rc != 0)
        return NULL;
    void *memory = malloc(bytes + 1);
    rc = ps_recording_parse(text, strlen(text), memory, step, problem);
    if (rc != 0) {
        free(memory);
        return NULL;
    }
    return memory;
}

static void test_a_small_step(void)
{
    struct penstock_step step;
    struct ps_recording_problem problem = {0, "none"};
    void *memory = parse(small, &step, &problem);

    EXPECT_TEXT("none", problem.what);
    if (!EXPECT(memory != NULL))
        return;
    EXPECT_U64(5, step.moments);
    EXPECT_U64(3, step.launches);
    EXPECT_U64(2, step.spans);
    EXPECT_U64(3, step.uses);
    EXPECT_U64(2, step.layers);
    EXPECT_U64(1000, step.budget_bytes);
    EXPECT_U64(UINT64_MAX, step.slab_bytes);
    EXPECT_U64(90, step.links.d2h_bytes_per_s_both);
    EXPECT_U64(6, step.links.reload_overhead_ns);
    EXPECT_U64(7, step.links.mapping_ns);
    EXPECT(step.span[0].fixed && step.span[0].born == PENSTOCK_NEVER && step.span[0].freed == PENSTOCK_NEVER);
    EXPECT_U64(PENSTOCK_CLASS_PARAMETER, step.span[0].class_);
    EXPECT_U64(0, step.span[1].born);
    EXPECT_U64(4, step.span[1].freed);
    EXPECT_U64(2, step.span[1].uses);
    EXPECT_U64(0, step.use[step.span[1].first_use]);
    EXPECT_U64(2, step.use[step.span[1].first_use + 1]);
    EXPECT_U64(3, step.launch[2].moment);
    EXPECT_U64(20, step.launch[2].duration_ns);
    EXPECT_U64(8, step.launch[2].host_ns);
    EXPECT_U64(0, step.launch[0].host_ns);
    EXPECT_U64(1, step.launch[2].layer);
    EXPECT_U64(3, step.layer[0].number);
    EXPECT_TEXT("block three", step.layer[0].name);
    EXPECT_U64(PENSTOCK_DIRECTION_FORWARD, step.layer[0].direction);
    EXPECT_U64(1, step.layer[1].first_launch);
    EXPECT_U64(PENSTOCK_NEVER, step.layer[1].number);
    free(memory);
}

static void test_printed_and_read_again(void)
{
    struct penstock_step step;
    struct ps_recording_problem problem;
    struct text first = {.length = 0}, second = {.length = 0};
    void *memory = parse(small, &step, &problem);

    if (!EXPECT(memory != NULL))
        return;
    void *workspace = malloc(ps_recording_print_bytes(&step));
    ps_recording_print(&step, workspace, gather, &first);
    free(memory);
    memory = parse(first.bytes, &step, &problem);
    if (EXPECT(memory != NULL)) {
        ps_recording_print(&step, workspace, gather, &second);
        EXPECT_TEXT(first.bytes, second.bytes);
        EXPECT(strstr(second.bytes, "y 3 forward block three\nl 10 0 1\n") != NULL);
        EXPECT(strstr(second.bytes, "budget 1000\ns 400 parameter fixed\n") != NULL);
        EXPECT(strstr(second.bytes, "\nl 20+8 1\n") != NULL);
        EXPECT(strstr(second.bytes, "slab") == NULL);
        EXPECT(strstr(second.bytes, LINKS) != NULL);
        /* A moment without an event of the step is skipped; the recorder leaves such moments. */
        struct penstock_launch *late = (struct penstock_launch *)&step.launch[2]; /* in our memory */
        struct penstock_step_span *span = (struct penstock_step_span *)&step.span[1];
        struct text third = {.length = 0};
        late->moment++;
        span->freed++;
        step.moments++;
        void *larger = malloc(ps_recording_print_bytes(&step));
        ps_recording_print(&step, larger, gather, &third);
        EXPECT_TEXT(first.bytes, third.bytes);
        free(larger);
    }
    free(memory);
    free(workspace);
}

static void refused(unsigned line, const char *what, const char *text)
{
    struct penstock_step step;
    struct ps_recording_problem problem = {0, "accepted"};

    free(parse(text, &step, &problem));
    EXPECT_TEXT(what, problem.what);
    EXPECT_U64(line, problem.line);
}

#define HEAD "penstock-recording 1\n" LINKS

static void test_what_is_refused(void)
{
    static const char *const no_times[] = {HEAD "l +5\n", HEAD "l 5+\n", HEAD "l 5+x\n", HEAD "l 5+5+5\n",
                                           HEAD "l x\n"};

    refused(0, "empty", "");
    refused(1, "the first line is not \"penstock-recording 1\"", "penstock-recording 2\n");
    refused(0, "the line of the links is missing", "penstock-recording 1\nl 1\n");
    refused(0, "no launch", HEAD);
    refused(2, "links: expected four bandwidths in bytes per second", "penstock-recording 1\nlinks 1 2 0 3 0 0\nl 1\n");
    refused(2, "links: expected the time of a mapping, in ns, after the overheads",
            "penstock-recording 1\nlinks 1 2 1 3 0 0 x\nl 1\n");
    refused(3, "unknown kind of line", HEAD "x\n");
    refused(3, "s: unknown class", HEAD "s 5 weights\nl 1\n");
    refused(3, "s: expected a number of bytes", HEAD "s 99999999999999999999 parameter\nl 1\n");
    refused(3, "s: expected a number of bytes", HEAD "s -1 parameter\nl 1\n");
    for (size_t i = 0; i < sizeof no_times / sizeof *no_times; i++)
        refused(3, "l: expected a duration in ns, optionally followed by + and the host's duration", no_times[i]);
    refused(4, "l: no such span", HEAD "s 5 parameter\nl 1 1\n");
    refused(4, "l: a span is named twice", HEAD "s 5 parameter\nl 1 0 0\n");
    refused(4, "s: every span must come before the first moment", HEAD "l 1\ns 5 parameter\n");
    refused(5, "the span is allocated twice", HEAD "s 5 parameter\na 0\na 0\nl 1\n");
    refused(0, "a span is allocated and never freed, or freed and never allocated", HEAD "s 5 parameter\na 0\nl 1 0\n");
    refused(0, "a launch names a span that is not allocated at that time", HEAD "s 5 parameter\na 0\nf 0\nl 1 0\n");
    refused(0, "a launch names a span that is not allocated at that time", HEAD "s 5 parameter\nf 0\nl 1 0\na 0\n");
    refused(4, "y: the layer before it has no launch", HEAD "y 1 forward\ny 2 forward\nl 1\n");
    refused(0, "the last layer has no launch", HEAD "l 1\ny 1 forward\n");
    refused(3, "unexpected text at the end of the line", HEAD "budget 5 6\nl 1\n");
}

/*
 * Each prefix, and each text with one spoilt byte: an accepted text is a step that can be planned.
 */
/* Recordings older than the counting of mappings. */
static void test_a_mapping_need_not_take_time(void)
{
    struct penstock_step step;
    struct ps_recording_problem problem = {0, "none"};
    struct text printed = {.length = 0};
    void *memory = parse("penstock-recording 1\nlinks 1 2 1 3 4 5\nl 1\n", &step, &problem);

    if (!EXPECT(memory != NULL))
        return;
    EXPECT_U64(0, step.links.mapping_ns);
    void *workspace = malloc(ps_recording_print_bytes(&step));
    ps_recording_print(&step, workspace, gather, &printed);
    EXPECT(strstr(printed.bytes, "links 1 2 1 3 4 5\n") != NULL);
    free(workspace);
    free(memory);
}

/* Refuses a text that repeats the line `lines` times, behind the links and `before`. */
static void refuse_many(const char *before, const char *line, uint32_t lines, const char *what)
{
    struct penstock_step step;
    struct ps_recording_problem problem = {0, "accepted"};
    char *text = malloc(200 + lines * strlen(line)), *at = text;

    at += sprintf(at, "penstock-recording 1\nlinks 1 1 1 1 0 0\n%s", before);
    for (uint32_t i = 0; i < lines; i++)
        at += sprintf(at, "%s", line);
    sprintf(at, "l 0 0\n");
    free(parse(text, &step, &problem));
    EXPECT_TEXT(what, problem.what);
    free(text);
}

/* Sums, also when they are multiplied by sixteen for another batch, stay within 64 bits. */
static void test_sums_beyond_64_bits(void)
{
    refuse_many("", "s 1125899906842624 activation\n", 63, "accepted");
    refuse_many("", "s 1125899906842624 activation\n", 65, "s: with this span, the spans have more than 64 PiB");
    refuse_many("", "s 1125899906842624 activation\n", 9000, "s: with this span, the spans have more than 64 PiB");
    refuse_many("s 4096 parameter\n", "l 1125899906842624\n", 63, "accepted");
    refuse_many("s 4096 parameter\n", "l 1125899906842624\n", 65,
                "l: with this launch the step takes more than two years");
}

static void test_spoilt_texts(void)
{
    static const char spoils[] = "09 #\nlsafy-\xff";
    struct penstock_step step;
    struct ps_recording_problem problem;
    char text[sizeof small];
    unsigned accepted = 0, all = 0;

    for (size_t i = 0; i + 1 < sizeof small; i++) {
        for (size_t s = 0; s < sizeof spoils; s++) {
            memcpy(text, small, sizeof small);
            text[i] = spoils[s]; /* the last one ends the text here */
            void *memory = parse(text, &step, &problem);
            all++;
            if (!memory)
                continue;
            accepted++;
            for (uint32_t span = 0; span < step.spans; span++)
                EXPECT(step.span[span].first_use + step.span[span].uses <= step.uses);
            step.budget_bytes = 350;
            struct penstock_plan plan = {.move = malloc((step.uses + 1) * sizeof *plan.move), .capacity = step.uses};
            void *workspace = malloc(penstock_policy_plan.workspace_bytes(&step));
            int rc = penstock_policy_plan.plan(&step, NULL, workspace, &plan);
            EXPECT(rc == 0 || rc == -34);
            free(workspace);
            free(plan.move);
            free(memory);
        }
    }
    EXPECT(accepted > 50 && accepted < all);
}

int main(void)
{
    test_a_small_step();
    test_printed_and_read_again();
    test_a_mapping_need_not_take_time();
    test_what_is_refused();
    test_sums_beyond_64_bits();
    test_spoilt_texts();
    return expect_status();
}
