/*
 * PENSTOCK_RULES: the user's rules. They say which spans may move, and which allocations do not
 * become spans at all.
 *
 *     exclude layer=3-5; include class=activation size>=16MiB; exclude layer=7 birth=2
 *     exclude size>=4MiB size<=4MiB nth=3
 *
 * A rule is `include` or `exclude` with conditions. A span meets a rule if it meets all of its
 * conditions; every span meets a rule without conditions. The last rule that a span meets decides.
 * A span that meets no rule may move, unless the first rule is an include. A user who begins with
 * an include wants only the named spans to move.
 *
 *     plain size>=64MiB size<=64MiB
 *
 * leaves allocations of these sizes, as the program asks for them, to CUDA. Before memory is there
 * only the size is known, so `plain` has no other conditions. It has no effect on the rules about
 * moving. The same holds for
 *
 *     pieces size>=64MiB
 *
 * It makes such an allocation a block, which is cut into pieces. Each piece is a span of its own.
 * It is meant for allocations that the program carves up itself. `plain` takes precedence over
 * `pieces`.
 *
 * Pure; allocates nothing. Threads: any; a parsed list is constant.
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
    bool plain;                         /* a `plain` rule, which says nothing about moving */
    bool pieces;                        /* a `pieces` rule, likewise */
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

/* Values of ps_span_facts.nth that are not numbers. */
#define PS_SPAN_NO_NTH UINT64_MAX
#define PS_SPAN_UNKNOWN_NTH (UINT64_MAX - 1)

struct ps_span_rules {
    uint32_t count; /* 0: every span may move */
    struct ps_span_rule rule[PS_SPAN_RULES_MAX];
};

/*
 * Reads a list of rules; an empty text has no rules. Returns 0 or a negative errno, and then *out
 * is unchanged. -EINVAL: *wrong is the place in `text` where reading stopped. -E2BIG: the list has
 * more than PS_SPAN_RULES_MAX rules, and *wrong is the first rule beyond. `wrong` may be NULL.
 */
int ps_span_rules_parse(const char *text, struct ps_span_rules *out, const char **wrong);

/*
 * The known facts about a span. `learnt` is false until a step has been recorded. Until then only
 * its size and `nth` are known.
 */
struct ps_span_facts {
    uint64_t bytes;
    /*
     * The number of spans of its size that the program allocated before it. For a span that is born
     * in each step this number grows each time. Once a step has been recorded, such a span has
     * PS_SPAN_NO_NTH, and is identified by layer and birth.
     */
    uint64_t nth;
    bool learnt;      /* the fields below are known */
    uint32_t layer;   /* number of the layer that it was born in; PENSTOCK_NEVER: none */
    const char *name; /* of that layer; may be NULL */
    /* The number of spans born before it in that layer; PENSTOCK_NEVER: born outside the step. */
    uint32_t birth;
    enum penstock_class class_;
};

/* Returns whether a rule asks for `nth`, which the caller then has to count. */
bool ps_span_rules_want_nth(const struct ps_span_rules *rules);

/* Returns whether an allocation of `bytes`, as the program asks for it, is left to CUDA. */
bool ps_span_rules_plain(const struct ps_span_rules *rules, uint64_t bytes);

/* Returns whether an allocation of `bytes`, as the program asks for it, is managed in pieces. */
bool ps_span_rules_pieces(const struct ps_span_rules *rules, uint64_t bytes);

/*
 * Returns whether the span may move. Until `learnt` is set, it may move only if no layer, birth or
 * class could exclude it. So no byte of an excluded span moves in the first steps either.
 */
bool ps_span_rules_allow(const struct ps_span_rules *rules, const struct ps_span_facts *facts);

#endif
