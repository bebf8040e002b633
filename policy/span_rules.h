/*
 * PENSTOCK_RULES: which spans may be moved, and which allocations are not to become spans at all.
 *
 *     exclude layer=3-5; include class=activation size>=16MiB; exclude layer=7 birth=2; exclude size>=4MiB size<=4MiB nth=3
 *
 * A rule is `include` or `exclude` and its conditions, all of which a span must meet; without any, each span meets it. Of the rules that a
 * span meets the last one decides. A span that meets none may be moved, unless the first rule is an include: who begins by naming what is
 * to be moved means that and nothing else.
 *
 *     plain size>=64MiB size<=64MiB
 *
 * leaves allocations of these sizes, as the program asks for them, to CUDA: nothing else is known before memory is there, so `plain` has no other
 * conditions, and it stands apart from the rules that say what moves. So does
 *
 *     pieces size>=64MiB
 *
 * by which such an allocation is cut into spans of their own: a block that the program carves up itself. `plain` comes before it.
 *
 * Pure; nothing is allocated. Threads: a parsed list is constant.
 */
#ifndef PS_SPAN_RULES_H
#define PS_SPAN_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "penstock/policy.h"

#define PS_SPAN_RULES_MAX 32
#define PS_SPAN_RULE_NAME_BYTES 64

struct ps_span_rule {
    bool include;
    bool plain;                         /* then of no account for what moves */
    bool pieces;                        /* likewise */
    bool by_number;                     /* layer numbers, from and to */
    bool by_name;                       /* a shell pattern for the layer's name */
    bool by_birth;                      /* allocation order in the layer, from and to */
    bool by_nth;                        /* allocation order among those of its size, from and to */
    bool by_class;                      /* one of the classes */
    uint32_t first_layer, last_layer;   /* both included */
    uint32_t first_birth, last_birth;   /* from 0 */
    uint32_t first_nth, last_nth;       /* from 0 */
    uint64_t least_bytes, most_bytes;   /* both included */
    uint32_t classes;                   /* bit 1 << enum penstock_class */
    char name[PS_SPAN_RULE_NAME_BYTES]; /* by_name */
};

/* Values of ps_span_facts.nth that are no number. */
#define PS_SPAN_NO_NTH UINT64_MAX
#define PS_SPAN_UNKNOWN_NTH (UINT64_MAX - 1)

struct ps_span_rules {
    uint32_t count; /* 0: every span may be moved */
    struct ps_span_rule rule[PS_SPAN_RULES_MAX];
};

/*
 * Reads a list (empty: no rules). 0, or -EINVAL: *out is left alone, and *wrong (may be NULL) is where in `text` reading stopped; -E2BIG: more
 * than PS_SPAN_RULES_MAX rules, *wrong is the first that is too much.
 */
int ps_span_rules_parse(const char *text, struct ps_span_rules *out, const char **wrong);

/* What is known of a span. Before a step has been recorded `learnt` is false, and its size and `nth` alone count as known. */
struct ps_span_facts {
    uint64_t bytes;
    /*
     * How many spans of its size the program had allocated before it. Of those that are born in each step it is another one each time: once a
     * step has been recorded they have none, PS_SPAN_NO_NTH, and are known by layer and birth.
     */
    uint64_t nth;
    bool learnt;      /* the fields below are known */
    uint32_t layer;   /* number of the layer that it was born in; PENSTOCK_NEVER: none */
    const char *name; /* of that layer; may be NULL */
    uint32_t birth;   /* how many spans were born in that layer before it; PENSTOCK_NEVER: it was born outside the step */
    enum penstock_class class_;
};

/* Whether some rule asks for `nth`, which somebody then has to count. */
bool ps_span_rules_want_nth(const struct ps_span_rules *rules);

/* Whether an allocation of so many bytes, as the program asks for it, is to be left to CUDA. */
bool ps_span_rules_plain(const struct ps_span_rules *rules, uint64_t bytes);

/* Whether an allocation of so many bytes, as the program asks for it, is to be managed in pieces. */
bool ps_span_rules_pieces(const struct ps_span_rules *rules, uint64_t bytes);

/*
 * Whether the span may be moved. While it is not learnt: only if it may be whatever its layer, birth and class turn out to be, so that no byte of
 * an excluded span moves in the first steps either.
 */
bool ps_span_rules_allow(const struct ps_span_rules *rules, const struct ps_span_facts *facts);

#endif
