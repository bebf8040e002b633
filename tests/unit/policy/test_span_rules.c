/*
 * PENSTOCK_RULES: the texts that are read, the places where reading stops, and the rule that
 * decides. Also the answers while layer and class are unknown, and shell patterns.
 */
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"
#include "policy/glob.h"
#include "policy/span_rules.h"

#define MIB (UINT64_C(1) << 20)

static struct ps_span_rules rules;

static void read_rules(const char *text)
{
    const char *wrong = NULL;

    if (!EXPECT_INT(0, ps_span_rules_parse(text, &rules, &wrong)))
        fprintf(stderr, "  \"%s\", at \"%s\"\n", text, wrong ? wrong : "(nowhere)");
}

static struct ps_span_facts facts(uint64_t bytes, uint32_t layer, uint32_t birth, enum penstock_class class_)
{
    return (struct ps_span_facts){
        .bytes = bytes, .learnt = true, .layer = layer, .name = "block", .birth = birth, .class_ = class_};
}

static bool allows(struct ps_span_facts span)
{
    return ps_span_rules_allow(&rules, &span);
}

#define ACTIVATION PENSTOCK_CLASS_ACTIVATION
#define PARAMETER PENSTOCK_CLASS_PARAMETER

static void test_plain(void)
{
    const char *wrong = NULL;

    read_rules("exclude layer=3; plain size>=4KiB size<=8KiB; plain size>=1MiB");
    EXPECT(!ps_span_rules_plain(&rules, 4095));
    EXPECT(ps_span_rules_plain(&rules, 4096));
    EXPECT(ps_span_rules_plain(&rules, 8192));
    EXPECT(!ps_span_rules_plain(&rules, 8193));
    EXPECT(ps_span_rules_plain(&rules, MIB));
    /* Of no account for what moves. */
    EXPECT(!allows(facts(4096, 3, 0, ACTIVATION)));
    EXPECT(allows(facts(4096, 4, 0, ACTIVATION)));
    read_rules("plain; include class=activation");
    EXPECT(!allows(facts(4096, 3, 0, PARAMETER)));
    read_rules("plain");
    EXPECT(ps_span_rules_plain(&rules, 1));
    EXPECT(allows(facts(4096, 3, 0, PARAMETER)));
    EXPECT_INT(-EINVAL, ps_span_rules_parse("plain size>=1 layer=2", &rules, &wrong));
    EXPECT(wrong && !strcmp(wrong, "layer=2"));
    read_rules("exclude");
    EXPECT(!ps_span_rules_plain(&rules, 1));
}

static void test_pieces(void)
{
    const char *wrong = NULL;

    read_rules("exclude layer=3; pieces size>=4KiB size<=8KiB; pieces size>=1MiB; plain size>=2MiB");
    EXPECT(!ps_span_rules_pieces(&rules, 4095));
    EXPECT(ps_span_rules_pieces(&rules, 4096));
    EXPECT(ps_span_rules_pieces(&rules, 8192));
    EXPECT(!ps_span_rules_pieces(&rules, 8193));
    EXPECT(ps_span_rules_pieces(&rules, MIB));
    EXPECT(!ps_span_rules_plain(&rules, MIB));
    EXPECT(ps_span_rules_plain(&rules, 2 * MIB));
    /* Of no account for what moves. */
    EXPECT(!allows(facts(4096, 3, 0, ACTIVATION)));
    EXPECT(allows(facts(4096, 4, 0, ACTIVATION)));
    read_rules("pieces; include class=activation");
    EXPECT(!allows(facts(4096, 3, 0, PARAMETER)));
    EXPECT(ps_span_rules_pieces(&rules, 1));
    EXPECT_INT(-EINVAL, ps_span_rules_parse("pieces size>=1 nth=2", &rules, &wrong));
    EXPECT(wrong && !strcmp(wrong, "nth=2"));
    EXPECT_INT(-EINVAL, ps_span_rules_parse("piecesize>=1", &rules, &wrong));
    read_rules("plain");
    EXPECT(!ps_span_rules_pieces(&rules, 1));
}

static void test_conditions(void)
{
    read_rules("");
    EXPECT(allows(facts(1, 3, 0, ACTIVATION)));
    read_rules("exclude");
    EXPECT(!allows(facts(1, 3, 0, ACTIVATION)));

    read_rules("exclude layer=3-5");
    EXPECT(allows(facts(1, 2, 0, ACTIVATION)));
    EXPECT(!allows(facts(1, 3, 0, ACTIVATION)));
    EXPECT(!allows(facts(1, 5, 0, ACTIVATION)));
    EXPECT(allows(facts(1, 6, 0, ACTIVATION)));
    EXPECT(allows(facts(1, PENSTOCK_NEVER, 0, ACTIVATION)));
    read_rules("exclude layer=bl*");
    EXPECT(!allows(facts(1, 6, 0, ACTIVATION)));
    read_rules("exclude layer=head");
    EXPECT(allows(facts(1, 6, 0, ACTIVATION)));

    /*
     * The number among the spans of its size. It doesn't count for a known step that bears the span
     * in each round.
     */
    read_rules("exclude nth=3-5 size<=4kb");
    struct ps_span_facts span = facts(4000, 3, 0, ACTIVATION);
    for (span.nth = 0; span.nth < 8; span.nth++)
        EXPECT_INT(span.nth < 3 || span.nth > 5, allows(span));
    span.nth = PS_SPAN_NO_NTH;
    EXPECT(allows(span));
    span.nth = PS_SPAN_UNKNOWN_NTH;
    EXPECT(!allows(span));
    EXPECT(ps_span_rules_want_nth(&rules));

    read_rules("exclude size>=16MiB size<=32MiB");
    EXPECT(!ps_span_rules_want_nth(&rules));
    EXPECT(allows(facts(16 * MIB - 1, 0, 0, ACTIVATION)));
    EXPECT(!allows(facts(16 * MIB, 0, 0, ACTIVATION)));
    EXPECT(!allows(facts(32 * MIB, 0, 0, ACTIVATION)));
    EXPECT(allows(facts(32 * MIB + 1, 0, 0, ACTIVATION)));
    read_rules("exclude size<=4kb");
    EXPECT(!allows(facts(4000, 0, 0, ACTIVATION)));
    EXPECT(allows(facts(4001, 0, 0, ACTIVATION)));

    read_rules("exclude birth=2 layer=7");
    EXPECT(!allows(facts(1, 7, 2, ACTIVATION)));
    EXPECT(allows(facts(1, 7, 1, ACTIVATION)));
    EXPECT(allows(facts(1, 6, 2, ACTIVATION)));
    EXPECT(allows(facts(1, 7, PENSTOCK_NEVER, ACTIVATION)));
    read_rules("exclude birth=1-3");
    EXPECT(!allows(facts(1, 7, 1, ACTIVATION)) && !allows(facts(1, 7, 3, ACTIVATION)));
    EXPECT(allows(facts(1, 7, 0, ACTIVATION)) && allows(facts(1, 7, 4, ACTIVATION)));

    read_rules("exclude class=parameter,optimizer");
    EXPECT(!allows(facts(1, 0, 0, PARAMETER)));
    EXPECT(!allows(facts(1, 0, 0, PENSTOCK_CLASS_OPTIMIZER_STATE)));
    EXPECT(allows(facts(1, 0, 0, PENSTOCK_CLASS_GRADIENT)));
    EXPECT(allows(facts(1, 0, 0, PENSTOCK_CLASS_WORKSPACE)));
}

static void test_order(void)
{
    /* The last rule that is met decides. */
    read_rules("exclude layer=3-5; include layer=4; exclude layer=4 birth=0");
    EXPECT(!allows(facts(1, 3, 1, ACTIVATION)));
    EXPECT(allows(facts(1, 4, 1, ACTIVATION)));
    EXPECT(!allows(facts(1, 4, 0, ACTIVATION)));
    EXPECT(allows(facts(1, 6, 0, ACTIVATION)));
    /* If the first rule is an include, nothing else is included. */
    read_rules("include class=activation size>=16MiB; exclude layer=0");
    EXPECT(allows(facts(16 * MIB, 1, 0, ACTIVATION)));
    EXPECT(!allows(facts(16 * MIB, 0, 0, ACTIVATION)));
    EXPECT(!allows(facts(MIB, 1, 0, ACTIVATION)));
    EXPECT(!allows(facts(16 * MIB, 1, 0, PARAMETER)));
}

/* While layer, birth and class are unknown, no span moves that may turn out to be excluded. */
static void test_not_learnt(void)
{
    struct ps_span_facts big = {.bytes = 64 * MIB}, small = {.bytes = MIB};
    static const struct {
        const char *rules;
        bool big, small;
    } cases[] = {
        {"", true, true},
        {"exclude", false, false},
        {"exclude layer=3", false, false},
        {"exclude class=parameter", false, false},
        {"exclude birth=0", false, false},
        {"exclude layer=head", false, false},
        {"exclude size>=16MiB", false, true},
        {"exclude layer=3 size>=16MiB", false, true},
        {"exclude layer=3; include", true, true},
        {"exclude layer=3; include size>=16MiB", true, false},
        {"exclude; include layer=3", false, false},
        {"exclude size>=16MiB; include layer=3", false, true},
        {"include layer=3", false, false},
        {"include size>=16MiB", true, false},
        {"include; exclude class=gradient size<=2MiB; include size>=1GiB", true, false},
        {"include; exclude layer=2; include layer=2", false, false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        read_rules(cases[i].rules);
        if (!EXPECT_INT(cases[i].big, allows(big)) || !EXPECT_INT(cases[i].small, allows(small)))
            fprintf(stderr, "  of \"%s\"\n", cases[i].rules);
    }
    /* A class that the recorder could not find is unknown too. */
    read_rules("exclude class=parameter");
    EXPECT(!allows(facts(1, 0, 0, PENSTOCK_CLASS_UNKNOWN)));
    read_rules("exclude class=parameter layer=4");
    EXPECT(allows(facts(1, 0, 0, PENSTOCK_CLASS_UNKNOWN)));
}

/* A span that is not learnt may move only if every possible outcome allows it. */
static void test_not_learnt_against_all(void)
{
    static const char *const words[] = {"exclude",
                                        "include",
                                        "exclude layer=1",
                                        "include layer=0-1",
                                        "exclude class=activation",
                                        "include class=parameter,gradient",
                                        "exclude birth=0 layer=1",
                                        "include birth=1",
                                        "exclude layer=b*",
                                        "include size>=2",
                                        "exclude nth=0",
                                        "include nth=0-2 size>=2",
                                        "exclude size>=2 class=activation"};
    enum { WORDS = sizeof words / sizeof words[0] };
    char text[256];

    for (unsigned i = 0; i < WORDS * WORDS * WORDS; i++) {
        snprintf(text, sizeof text, "%s; %s;%s", words[i % WORDS], words[i / WORDS % WORDS], words[i / WORDS / WORDS]);
        read_rules(text);
        for (uint64_t bytes = 1; bytes <= 2; bytes++) {
            bool all = true, any = false;
            for (uint32_t layer = 0; layer < 3; layer++) {
                for (uint32_t birth = 0; birth < 3; birth++) {
                    for (int c = PENSTOCK_CLASS_UNKNOWN + 1; c < PENSTOCK_CLASSES; c++) {
                        for (int named = 0; named < 2; named++) {
                            struct ps_span_facts f = facts(bytes, layer, birth, (enum penstock_class)c);
                            f.name = named ? "block" : "head";
                            for (int outlives = 0; outlives < 2; outlives++) {
                                f.nth = outlives ? 0 : PS_SPAN_NO_NTH;
                                all &= allows(f);
                                any |= allows(f);
                            }
                        }
                    }
                }
            }
            bool now = allows((struct ps_span_facts){.bytes = bytes});
            /*
             * It never allows too much. If nothing depends on unknown facts, it doesn't allow too
             * little.
             */
            if (!EXPECT(!now || all) || !EXPECT(now || !all || strpbrk(text, "=")))
                fprintf(stderr, "  of \"%s\"\n", text);
            EXPECT(any || !now);
        }
    }
}

static void test_refused(void)
{
    static const struct {
        const char *text;
        const char *wrong;
    } cases[] = {
        {"omit layer=3", "omit layer=3"},
        {"exclude layer", "layer"},
        {"exclude layer=", "layer="},
        {"exclude layer=5-3", NULL}, /* this is a name then, and no layer has it */
        {"exclude size=4MiB", "size=4MiB"},
        {"exclude size>=4Mi", "size>=4Mi"},
        {"exclude size>=", "size>="},
        {"exclude size>=2MiB size<=1MiB", "size<=1MiB"},
        {"exclude size>=99999999999999999999", "size>=99999999999999999999"},
        {"exclude size>=9999999TiB", "size>=9999999TiB"},
        {"exclude birth=x", "birth=x"},
        {"exclude birth=3-2", "birth=3-2"},
        {"exclude birth=4294967295", "birth=4294967295"},
        {"exclude class=weights", "class=weights"},
        {"exclude class=activation,", "class=activation,"},
        {"exclude class=activations", "class=activations"},
        {"exclude layer=1 layer=2", "layer=2"},
        {"exclude layer=1 or class=activation", "or class=activation"},
        {"exclude layer=1;; include", "; include"},
        {"exclude layer=1; ; include", "; include"},
        {"; include", "; include"},
        {"excludelayer=1", "excludelayer=1"},
        {"include, exclude", ", exclude"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *wrong = NULL;
        rules.count = 77;
        int r = ps_span_rules_parse(cases[i].text, &rules, &wrong);
        if (!cases[i].wrong) {
            EXPECT_INT(0, r);
            continue;
        }
        if (EXPECT_INT(-EINVAL, r))
            EXPECT_TEXT(cases[i].wrong, wrong);
        else
            fprintf(stderr, "  of \"%s\"\n", cases[i].text);
        EXPECT_U64(77, rules.count);
    }
    /* Blanks and a last semicolon are allowed. */
    read_rules("  exclude\tlayer=3  ;include  ; ");
    EXPECT_U64(2, rules.count);

    char many[PS_SPAN_RULES_MAX * 8 + 16] = "";
    for (int i = 0; i < PS_SPAN_RULES_MAX; i++)
        strcat(many, "exclude;");
    read_rules(many);
    EXPECT_U64(PS_SPAN_RULES_MAX, rules.count);
    strcat(many, "include");
    const char *wrong = NULL;
    EXPECT_INT(-E2BIG, ps_span_rules_parse(many, &rules, &wrong));
    EXPECT_TEXT("include", wrong);
    char name[PS_SPAN_RULE_NAME_BYTES + 32];
    snprintf(name, sizeof name, "exclude layer=%0*d*", PS_SPAN_RULE_NAME_BYTES - 2, 7);
    read_rules(name);
    snprintf(name, sizeof name, "exclude layer=%0*d*", PS_SPAN_RULE_NAME_BYTES - 1, 7);
    EXPECT_INT(-EINVAL, ps_span_rules_parse(name, &rules, NULL));
}

/* The answers are those of the C library, for each short pattern and text over a few characters. */
static void test_patterns(void)
{
    static const char in_pattern[] = "ab*?[]!-\\", in_text[] = "ab]-[";
    char pattern[8], text[4];
    unsigned compared = 0;

    for (unsigned p = 0; p < 9 * 9 * 9 * 9 * 9; p++) {
        for (unsigned i = 0, rest = p; i < 5; i++, rest /= 9)
            pattern[i] = in_pattern[rest % 9];
        pattern[5] = '\0';
        /*
         * POSIX leaves these open: a backslash inside a set or at the end, a set that never ends, a
         * descending range.
         */
        const char *set = strchr(pattern, '[');
        if ((set && (strchr(set, '\\') || strchr(set, '-') || strchr(set + 1, '['))) || pattern[4] == '\\')
            continue;
        for (unsigned t = 0; t < 5 * 5 * 5; t++) {
            text[0] = in_text[t % 5];
            text[1] = in_text[t / 5 % 5];
            text[2] = in_text[t / 25];
            text[3] = '\0';
            for (int from = 0; from < 3; from++) {
                compared++;
                if (ps_glob_matches(pattern, text + from) != (fnmatch(pattern, text + from, 0) == 0)) {
                    EXPECT(false);
                    fprintf(stderr, "  pattern \"%s\", text \"%s\"\n", pattern, text + from);
                    return;
                }
            }
        }
    }
    EXPECT(compared > 1000000);
    EXPECT(ps_glob_matches("layer [0-9]*", "layer 12 forward"));
    EXPECT(!ps_glob_matches("layer [0-9]*", "layer x forward"));
    EXPECT(ps_glob_matches("[!a-c]x", "dx") && !ps_glob_matches("[!a-c]x", "bx"));
    EXPECT(ps_glob_matches("", "") && !ps_glob_matches("", "a") && ps_glob_matches("***", ""));
    EXPECT(ps_glob_matches("[", "[") && ps_glob_matches("a[b", "a[b"));

    /* No pattern takes more than a moment. */
    char longest[2001];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    EXPECT(!ps_glob_matches("*a*a*a*a*a*a*a*a*a*a*b", longest));
}

int main(void)
{
    test_plain();
    test_pieces();
    test_conditions();
    test_order();
    test_not_learnt();
    test_not_learnt_against_all();
    test_refused();
    test_patterns();
    return expect_status();
}
