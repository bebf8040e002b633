#include "policy/span_rules.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "policy/glob.h"
#include "policy/recording/classes.h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static const char *skip_blanks(const char *at)
{
    while (*at == ' ' || *at == '\t')
        at++;
    return at;
}

/* Moves *at behind the word if it stands there and ends there. Returns whether it does. */
static bool take_word(const char **at, const char *word)
{
    size_t length = strlen(word);
    char next;

    for (size_t i = 0; i < length; i++)
        if ((*at)[i] != word[i])
            return false;
    next = (*at)[length];
    if (next && next != ' ' && next != '\t' && next != ';' && next != ',')
        return false;
    *at += length;
    return true;
}

static bool take_text(const char **at, const char *text)
{
    size_t length = strlen(text);

    for (size_t i = 0; i < length; i++)
        if ((*at)[i] != text[i])
            return false;
    *at += length;
    return true;
}

/* Reads a whole number below 2^32 - 1, which is PENSTOCK_NEVER. */
static bool take_number(const char **at, uint32_t *out)
{
    uint64_t value = 0;
    const char *digit = *at;

    if (!is_digit(*digit))
        return false;
    for (; is_digit(*digit); digit++) {
        value = value * 10 + (uint64_t)(*digit - '0');
        if (value >= PENSTOCK_NEVER)
            return false;
    }
    *at = digit;
    *out = (uint32_t)value;
    return true;
}

static bool ends_condition(char c)
{
    return !c || c == ' ' || c == '\t' || c == ';';
}

/* Reads 3 or 3-5. */
static bool take_range(const char **at, uint32_t *first, uint32_t *last)
{
    const char *here = *at;

    if (!take_number(&here, first))
        return false;
    *last = *first;
    if (*here == '-') {
        here++;
        if (!take_number(&here, last) || *last < *first)
            return false;
    }
    if (!ends_condition(*here))
        return false;
    *at = here;
    return true;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Reads a whole number with a unit of the settings: 4096, 64KiB, 16MB. */
static bool take_bytes(const char **at, uint64_t *out)
{
    static const struct {
        const char *name; /* in lower case */
        uint64_t bytes;
    } units[] = {{"kib", 1ull << 10},
                 {"mib", 1ull << 20},
                 {"gib", 1ull << 30},
                 {"tib", 1ull << 40},
                 {"kb", 1000},
                 {"mb", 1000000},
                 {"gb", 1000000000},
                 {"tb", 1000000000000ull},
                 {"b", 1},
                 {"", 1}};
    const char *here = *at;
    uint64_t value = 0;

    if (!is_digit(*here))
        return false;
    for (; is_digit(*here); here++) {
        if (value > INT64_MAX / 10 - 1)
            return false;
        value = value * 10 + (uint64_t)(*here - '0');
    }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        size_t length = strlen(units[i].name), same = 0;
        while (same < length && lower(here[same]) == units[i].name[same])
            same++;
        if (same < length || !ends_condition(here[length]))
            continue;
        if (value > INT64_MAX / units[i].bytes)
            return false;
        *out = value * units[i].bytes;
        *at = here + length;
        return true;
    }
    return false;
}

static bool take_class(const char **at, uint32_t *classes)
{
    for (;;) {
        bool found = false;
        for (unsigned i = PENSTOCK_CLASS_UNKNOWN + 1; i < PENSTOCK_CLASSES && !found; i++) {
            found = take_word(at, ps_class_names[i]);
            if (found)
                *classes |= 1u << i;
        }
        if (!found)
            return false;
        if (**at != ',')
            return true;
        ++*at;
    }
}

static bool take_layer(const char **at, struct ps_span_rule *rule)
{
    size_t length = 0;

    if (take_range(at, &rule->first_layer, &rule->last_layer)) {
        rule->by_number = true;
        return true;
    }
    while (!ends_condition((*at)[length]))
        length++;
    if (!length || length >= sizeof rule->name)
        return false;
    memcpy(rule->name, *at, length);
    rule->name[length] = '\0';
    rule->by_name = true;
    *at += length;
    return true;
}

/*
 * Reads one condition. Each kind may come once in a rule; the two bounds of size are separate
 * kinds.
 */
static bool take_condition(const char **at, struct ps_span_rule *rule)
{
    const char *here = *at;
    bool taken = false;

    if (take_text(&here, "layer="))
        taken = !rule->by_number && !rule->by_name && take_layer(&here, rule);
    else if (take_text(&here, "birth="))
        taken = !rule->by_birth && (rule->by_birth = take_range(&here, &rule->first_birth, &rule->last_birth));
    else if (take_text(&here, "nth="))
        taken = !rule->by_nth && (rule->by_nth = take_range(&here, &rule->first_nth, &rule->last_nth));
    else if (take_text(&here, "class="))
        taken = !rule->by_class && (rule->by_class = take_class(&here, &rule->classes));
    else if (take_text(&here, "size>="))
        taken = take_bytes(&here, &rule->least_bytes);
    else if (take_text(&here, "size<="))
        taken = take_bytes(&here, &rule->most_bytes);
    taken = taken && rule->least_bytes <= rule->most_bytes;
    if (taken)
        *at = here;
    return taken;
}

static bool asks_for_more_than_size(const struct ps_span_rule *rule)
{
    return rule->by_number || rule->by_name || rule->by_birth || rule->by_nth || rule->by_class;
}

/*
 * Returns whether the rule says what an allocation becomes; such a rule says nothing about moves.
 */
static bool is_for_births(const struct ps_span_rule *rule)
{
    return rule->plain || rule->pieces;
}

static bool take_rule(const char **at, struct ps_span_rule *rule)
{
    *rule = (struct ps_span_rule){.most_bytes = UINT64_MAX};
    rule->include = take_word(at, "include");
    rule->plain = !rule->include && take_word(at, "plain");
    rule->pieces = !rule->include && !rule->plain && take_word(at, "pieces");
    if (!rule->include && !is_for_births(rule) && !take_word(at, "exclude"))
        return false;
    for (*at = skip_blanks(*at); **at && **at != ';'; *at = skip_blanks(*at)) {
        const char *here = *at;
        if (!take_condition(at, rule) || (is_for_births(rule) && asks_for_more_than_size(rule))) {
            *at = here;
            return false;
        }
    }
    return true;
}

int ps_span_rules_parse(const char *text, struct ps_span_rules *out, const char **wrong)
{
    struct ps_span_rules rules = {.count = 0};
    const char *at = skip_blanks(text);
    int r = 0;

    while (*at) {
        r = rules.count == PS_SPAN_RULES_MAX ? -E2BIG : take_rule(&at, &rules.rule[rules.count]) ? 0 : -EINVAL;
        if (r)
            break;
        rules.count++;
        if (*at == ';')
            at = skip_blanks(at + 1);
    }
    if (!r)
        *out = rules;
    else if (wrong)
        *wrong = at;
    return r;
}

enum answer {
    NO,
    YES,
    NOT_KNOWN,
};

static enum answer meets(const struct ps_span_rule *rule, const struct ps_span_facts *facts)
{
    if (facts->bytes < rule->least_bytes || facts->bytes > rule->most_bytes)
        return NO;
    if (rule->by_nth && facts->nth != PS_SPAN_UNKNOWN_NTH &&
        (facts->nth < rule->first_nth || facts->nth > rule->last_nth))
        return NO;
    if (rule->by_nth && facts->nth == PS_SPAN_UNKNOWN_NTH)
        return NOT_KNOWN;
    /* The span may turn out to be born in each step; then `nth` says nothing about it. */
    if (!facts->learnt)
        return rule->by_number || rule->by_name || rule->by_birth || rule->by_class || (rule->by_nth && rule->include)
                   ? NOT_KNOWN
                   : YES;
    if (rule->by_number &&
        (facts->layer == PENSTOCK_NEVER || facts->layer < rule->first_layer || facts->layer > rule->last_layer))
        return NO;
    if (rule->by_name && (!facts->name || !ps_glob_matches(rule->name, facts->name)))
        return NO;
    if (rule->by_birth &&
        (facts->birth == PENSTOCK_NEVER || facts->birth < rule->first_birth || facts->birth > rule->last_birth))
        return NO;
    if (!rule->by_class)
        return YES;
    if (facts->class_ == PENSTOCK_CLASS_UNKNOWN)
        return NOT_KNOWN;
    return rule->classes >> facts->class_ & 1u ? YES : NO;
}

bool ps_span_rules_allow(const struct ps_span_rules *rules, const struct ps_span_facts *facts)
{
    /*
     * Go from the last rule to the first. The first rule that is surely met decides. A rule before
     * it that may be met must not be one that excludes.
     */
    bool first_includes = false;

    for (uint32_t i = rules->count; i-- > 0;) {
        const struct ps_span_rule *rule = &rules->rule[i];
        if (is_for_births(rule))
            continue;
        enum answer answer = meets(rule, facts);
        if (answer == YES || (answer == NOT_KNOWN && !rule->include))
            return rule->include;
        first_includes = rule->include;
    }
    return !first_includes;
}

static bool has_size(const struct ps_span_rule *rule, uint64_t bytes)
{
    return bytes >= rule->least_bytes && bytes <= rule->most_bytes;
}

bool ps_span_rules_plain(const struct ps_span_rules *rules, uint64_t bytes)
{
    for (uint32_t i = 0; i < rules->count; i++)
        if (rules->rule[i].plain && has_size(&rules->rule[i], bytes))
            return true;
    return false;
}

bool ps_span_rules_pieces(const struct ps_span_rules *rules, uint64_t bytes)
{
    for (uint32_t i = 0; i < rules->count; i++)
        if (rules->rule[i].pieces && has_size(&rules->rule[i], bytes))
            return true;
    return false;
}

bool ps_span_rules_want_nth(const struct ps_span_rules *rules)
{
    for (uint32_t i = 0; i < rules->count; i++)
        if (rules->rule[i].by_nth)
            return true;
    return false;
}
