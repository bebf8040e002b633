/*
 * Prints rules as PENSTOCK_RULES takes them, and compares them. For the targets of rules and
 * settings.
 */
#ifndef PENSTOCK_FUZZ_RULES_TEXT_H
#define PENSTOCK_FUZZ_RULES_TEXT_H

#include "tests/fuzz/fuzz.h"

#include "policy/recording/classes.h"
#include "policy/span_rules.h"

static void rules_print_range(FILE *to, const char *key, uint32_t first, uint32_t last)
{
    if (first == last)
        fprintf(to, " %s=%u", key, first);
    else
        fprintf(to, " %s=%u-%u", key, first, last);
}

static void rules_print_one(FILE *to, const struct ps_span_rule *rule)
{
    const char *before = " class=";

    fputs(rule->include ? "include" : rule->plain ? "plain" : rule->pieces ? "pieces" : "exclude", to);
    if (rule->by_number)
        rules_print_range(to, "layer", rule->first_layer, rule->last_layer);
    if (rule->by_name)
        fprintf(to, " layer=%s", rule->name);
    if (rule->by_birth)
        rules_print_range(to, "birth", rule->first_birth, rule->last_birth);
    if (rule->by_nth)
        rules_print_range(to, "nth", rule->first_nth, rule->last_nth);
    for (unsigned i = 0; rule->by_class && i < PENSTOCK_CLASSES; i++) {
        if (rule->classes >> i & 1) {
            fprintf(to, "%s%s", before, ps_class_names[i]);
            before = ",";
        }
    }
    if (rule->least_bytes)
        fprintf(to, " size>=%llu", (unsigned long long)rule->least_bytes);
    if (rule->most_bytes != UINT64_MAX)
        fprintf(to, " size<=%llu", (unsigned long long)rule->most_bytes);
}

/* Returns the text, which the caller frees. */
static char *rules_print(const struct ps_span_rules *rules)
{
    char *text = NULL;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);

    fuzz_require(to);
    for (uint32_t i = 0; i < rules->count; i++) {
        fputs(i ? "; " : "", to);
        rules_print_one(to, &rules->rule[i]);
    }
    fclose(to);
    return text;
}

static bool rules_are_equal(const struct ps_span_rules *a, const struct ps_span_rules *b)
{
    bool equal = a->count == b->count;

    for (uint32_t i = 0; equal && i < a->count; i++) {
        const struct ps_span_rule *x = &a->rule[i], *y = &b->rule[i];
        equal = x->include == y->include && x->plain == y->plain && x->pieces == y->pieces &&
                x->by_number == y->by_number && x->by_name == y->by_name && x->by_birth == y->by_birth &&
                x->by_nth == y->by_nth && x->by_class == y->by_class && x->first_layer == y->first_layer &&
                x->last_layer == y->last_layer && x->first_birth == y->first_birth && x->last_birth == y->last_birth &&
                x->first_nth == y->first_nth && x->last_nth == y->last_nth && x->least_bytes == y->least_bytes &&
                x->most_bytes == y->most_bytes && x->classes == y->classes && !strcmp(x->name, y->name);
    }
    return equal;
}

#endif
