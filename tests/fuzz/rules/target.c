/*
 * The text of PENSTOCK_RULES up to a NUL, and behind it facts about a span. Rules that are accepted
 * are printed and read again, and judge the span as the manual says.
 */
#include "tests/fuzz/rules_text.h"

#include <errno.h>

#include "policy/glob.h"

/* ---- judging, written from scripts/manual/rules.md ---- */

static bool is_within(uint64_t value, uint64_t first, uint64_t last)
{
    return value >= first && value <= last;
}

/* Returns whether a span of which everything is known meets the rule. */
static bool is_met(const struct ps_span_rule *rule, const struct ps_span_facts *facts)
{
    bool size = is_within(facts->bytes, rule->least_bytes, rule->most_bytes);
    bool nth = !rule->by_nth || is_within(facts->nth, rule->first_nth, rule->last_nth);
    bool number = !rule->by_number ||
                  (facts->layer != PENSTOCK_NEVER && is_within(facts->layer, rule->first_layer, rule->last_layer));
    bool name = !rule->by_name || (facts->name && ps_glob_matches(rule->name, facts->name));
    bool birth = !rule->by_birth ||
                 (facts->birth != PENSTOCK_NEVER && is_within(facts->birth, rule->first_birth, rule->last_birth));

    return size && nth && number && name && birth && (!rule->by_class || rule->classes >> facts->class_ & 1);
}

static bool may_move(const struct ps_span_rules *rules, const struct ps_span_facts *facts)
{
    bool may = true, first = true;

    for (uint32_t i = 0; i < rules->count; i++) {
        const struct ps_span_rule *rule = &rules->rule[i];
        if (rule->plain || rule->pieces)
            continue;
        if (first)
            may = !rule->include;
        first = false;
        if (is_met(rule, facts))
            may = rule->include;
    }
    return may;
}

static void check_judgement(const struct ps_span_rules *rules, const struct ps_span_facts *facts)
{
    struct ps_span_facts unlearnt = *facts, unclassed = *facts;
    bool plain = false, pieces = false, nth = false;

    fuzz_require(ps_span_rules_allow(rules, facts) == may_move(rules, facts));
    /* What may move before all is known may move whatever it turns out to be. */
    unlearnt.learnt = false;
    unlearnt.layer = unlearnt.birth = PENSTOCK_NEVER;
    unlearnt.name = NULL;
    unlearnt.class_ = PENSTOCK_CLASS_UNKNOWN;
    unclassed.class_ = PENSTOCK_CLASS_UNKNOWN;
    if (ps_span_rules_allow(rules, &unlearnt) || ps_span_rules_allow(rules, &unclassed))
        fuzz_require(may_move(rules, facts));
    unlearnt.nth = PS_SPAN_UNKNOWN_NTH;
    if (ps_span_rules_allow(rules, &unlearnt))
        fuzz_require(may_move(rules, facts));
    for (uint32_t i = 0; i < rules->count; i++) {
        const struct ps_span_rule *rule = &rules->rule[i];
        bool size = is_within(facts->bytes, rule->least_bytes, rule->most_bytes);
        plain |= rule->plain && size;
        pieces |= rule->pieces && size;
        nth |= rule->by_nth;
    }
    fuzz_require(ps_span_rules_plain(rules, facts->bytes) == plain);
    fuzz_require(ps_span_rules_pieces(rules, facts->bytes) == pieces);
    fuzz_require(ps_span_rules_want_nth(rules) == nth);
}

/* ---- reading ---- */

static void check_rules(const struct ps_span_rules *rules)
{
    static struct ps_span_rules again;
    char *text = rules_print(rules);

    fuzz_require(rules->count <= PS_SPAN_RULES_MAX);
    for (uint32_t i = 0; i < rules->count; i++) {
        const struct ps_span_rule *rule = &rules->rule[i];
        fuzz_require(rule->include + rule->plain + rule->pieces <= 1);
        fuzz_require(rule->least_bytes <= rule->most_bytes);
        fuzz_require(!rule->by_number || rule->first_layer <= rule->last_layer);
        fuzz_require(rule->first_birth <= rule->last_birth);
        fuzz_require(rule->first_nth <= rule->last_nth && rule->last_nth < PENSTOCK_NEVER);
        fuzz_require(!rule->by_class || rule->classes > 1);
        fuzz_require(strnlen(rule->name, sizeof rule->name) < sizeof rule->name);
    }
    fuzz_require(ps_span_rules_parse(text, &again, NULL) == 0);
    fuzz_require(rules_are_equal(rules, &again));
    free(text);
}

static void check_refusal(const char *text, int error, const char *wrong)
{
    static struct ps_span_rules before;

    fuzz_require(error == -EINVAL || error == -E2BIG);
    fuzz_require(wrong >= text && wrong < text + strlen(text));
    /* All that stands before the wrong rule is right. */
    char *right = strndup(text, (size_t)(wrong - text));
    char *end = strrchr(right, ';');
    if (end)
        *end = '\0';
    if (end || error == -E2BIG)
        fuzz_require(ps_span_rules_parse(right, &before, NULL) == 0);
    fuzz_require(error != -E2BIG || before.count == PS_SPAN_RULES_MAX);
    free(right);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct ps_span_rules rules;
    struct fuzz_input in = {data, bytes};
    const char *wrong = NULL;
    char *text = fuzz_text(&in, '\0');

    rules.count = 12345;
    int error = ps_span_rules_parse(text, &rules, &wrong);
    if (error) {
        fuzz_require(rules.count == 12345);
        check_refusal(text, error, wrong);
    } else {
        char *name = fuzz_text(&in, '\0');
        struct ps_span_facts facts = {.learnt = true, .name = *name ? name : NULL};
        facts.class_ = 1 + fuzz_u8(&in) % (PENSTOCK_CLASSES - 1);
        facts.layer = fuzz_u8(&in);
        facts.birth = fuzz_u8(&in);
        facts.nth = fuzz_u8(&in);
        facts.bytes = fuzz_u64(&in);
        facts.layer = facts.layer == 255 ? PENSTOCK_NEVER : facts.layer;
        facts.birth = facts.birth == 255 ? PENSTOCK_NEVER : facts.birth;
        facts.nth = facts.nth == 255 ? PS_SPAN_NO_NTH : facts.nth;
        check_rules(&rules);
        check_judgement(&rules, &facts);
        free(name);
    }
    free(text);
    return 0;
}
